//! Short histories of a small exclusive queue behind two servers, judged by two linearizability checkers, of which one is not ours
//! (Q13): with everything in order, while Redis is killed, and while a server is killed. `TALLYSTONE_CRASH_SEED` repeats the
//! choices of a run, `TALLYSTONE_TEST_LONG` makes it twenty times as long.

use super::load::{KEY, queue_config};
use super::machines::Machines;
use super::rounds::{Victim, strike};
use crate::histories::linear::{Call, History, Reply};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::*;
use tallystone_tests::amount;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Rounds of each kind.
const ROUNDS: u64 = 30;
const ROUNDS_LONG: u64 = 600;
const CALLERS: u64 = 4;
/// Calls of a caller, by turns. Those of a long round outlast the outage. The checker of stateright tries orders again and again that
/// lead to the same state, so it judges the short ones.
const CALLS: [usize; 2] = [4, 16];
/// Calls without a reply may also never have been carried out, which doubles the orders.
const UNHEARD_MAX: usize = 3;
const IDS: u8 = 6;
/// Longer than a history.
const LEASE_MS: u64 = 600_000;

/// What the callers of a round have done and heard, and the leases that they know of.
type Shared = Arc<Mutex<(History, Vec<(u8, u64)>)>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q13_short_histories_are_linearizable_whatever_is_killed() {
    let (seed, rounds) = (super::seed(), amount(ROUNDS, ROUNDS_LONG));
    // A call that the client repeats may be carried out twice, which is two calls for the checker.
    let mut machines = Machines::start_with("", Duration::ZERO).await;
    let (mut unheard, mut judged_twice) = (0, 0);
    for (number, victim) in [None, Some(Victim::Redis), Some(Victim::Server(0))].into_iter().enumerate() {
        for round in 0..rounds {
            let mut rng = StdRng::seed_from_u64(seed << 20 | (number as u64) << 16 | round);
            let queue = format!("{number}-{round}");
            let history = Shared::default();
            let creator = machines.clients[1].with_retry_for(Duration::from_secs(60));
            creator.create_queue(&queue, queue_config(true)).await.expect("a new queue");
            let mut callers = JoinSet::new();
            for caller in 0..CALLERS {
                let client = machines.clients[caller as usize % 2].clone();
                let calls = CALLS[round as usize % 2];
                callers.spawn(live(client, queue.clone(), history.clone(), (calls, rng.random())));
            }
            sleep(Duration::from_micros(rng.random_range(0..6_000))).await;
            if let Some(victim) = victim {
                strike(&mut machines, victim, Duration::from_millis(rng.random_range(0..20))).await;
            }
            callers.join_all().await;
            let (history, _) = std::mem::take(&mut *history.lock().unwrap());
            unheard += history.unheard();
            assert!(history.is_linearizable(), "round {round}, {victim:?}: {history:#?}");
            if round % 2 == 0 && history.unheard() <= UNHEARD_MAX {
                judged_twice += 1;
                assert!(history.is_consistent(), "round {round}, {victim:?}: {history:#?}");
            }
        }
    }
    println!("{unheard} calls without a reply, {judged_twice} histories judged twice");
    assert!(unheard > 0, "nothing was killed in the middle of a call");
}

async fn live(client: Client, queue: String, shared: Shared, (calls, seed): (usize, u64)) {
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..calls {
        let (call, number) = {
            let (history, leases) = &mut *shared.lock().unwrap();
            let call = choose(&mut rng, leases);
            (call.clone(), history.begin(call))
        };
        let reply = make(&client, &queue, &call).await;
        let failed = matches!(reply, Reply::NotApplied | Reply::Unheard);
        {
            let (history, leases) = &mut *shared.lock().unwrap();
            if let Reply::Leased(leased) = &reply {
                leases.extend(leased.iter().map(|(id, fencing_token, _)| (*id, *fencing_token)));
            }
            if reply != Reply::Unheard {
                history.end(number, reply);
            }
        }
        if failed {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn choose(rng: &mut StdRng, leases: &[(u8, u64)]) -> Call {
    let id = rng.random_range(0..IDS);
    let lease = (!leases.is_empty()).then(|| leases[rng.random_range(0..leases.len())]);
    match (rng.random_range(0..15), lease) {
        // The same id is the same message.
        (0..4, _) => Call::Enqueue { id, key: id % 2, priority: i64::from(id * 5 % 3) },
        (4..8, _) => Call::Dequeue { limit: rng.random_range(1..=2) },
        (8..11, Some((id, fencing_token))) => Call::Complete { id, fencing_token },
        (11..13, Some((id, fencing_token))) => Call::Release { id, fencing_token },
        (13, _) => Call::Cancel { id },
        (14, _) => Call::Depth,
        _ => Call::Get { id },
    }
}

async fn make(client: &Client, queue: &str, call: &Call) -> Reply {
    let name = |id: &u8| format!("m{id}");
    let lease = |id: &u8, fencing_token: &u64| LeaseRef { id: name(id), fencing_token: *fencing_token };
    let at = |Transition { state, version }| Reply::At(state, version);
    match call {
        Call::Enqueue { id, key, priority } => {
            let message = NewMessage::new(name(id), "").priority(*priority).metadata(KEY, format!("N{key}"));
            heard(client.enqueue(queue, vec![message]).await, |enqueued| Reply::Enqueued(enqueued.enqueued_at_ms))
        }
        Call::Dequeue { limit } => {
            let dequeue = Dequeue::new(queue).worker("a caller").lease_ms(LEASE_MS).limit(*limit as u32);
            match client.dequeue(dequeue).await {
                Ok(leases) => Reply::Leased(leases.iter().map(leased).collect()),
                Err(error) => failed(&error),
            }
        }
        Call::Complete { id, fencing_token } => {
            heard(client.complete(queue, vec![lease(id, fencing_token).into()]).await, at)
        }
        Call::Release { id, fencing_token } => {
            let release = Release::of(lease(id, fencing_token)).delay_ms(0);
            heard(client.release(queue, vec![release]).await, at)
        }
        Call::Cancel { id } => heard(client.cancel(queue, vec![Cancellation::of(name(id))]).await, at),
        Call::Get { id } => match client.get_message(queue, &name(id)).await {
            Ok(message) => Reply::At(message.state, message.version),
            Err(error) => without_effect(failed(&error)),
        },
        Call::Depth => match client.depth(queue, None).await {
            Ok(Depth { pending, running, completed, canceled, .. }) => {
                Reply::Counts([pending, running, completed, canceled])
            }
            Err(error) => without_effect(failed(&error)),
        },
    }
}

fn leased(lease: &Lease) -> (u8, u64, u32) {
    let id = lease.id.strip_prefix('m').and_then(|id| id.parse().ok()).expect("an id of this test");
    (id, lease.fencing_token, lease.version)
}

/// The reply about the only item of a batch.
fn heard<T>(items: Items<T>, reply: impl Fn(T) -> Reply) -> Reply {
    match items.map(|mut items| items.remove(0)) {
        Ok(Ok(item)) => reply(item),
        Ok(Err(refused)) => failed(&Error::Refused(refused)),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> Reply {
    match error {
        Error::Unavailable { applied: Applied::No, .. } => Reply::NotApplied,
        Error::Unavailable { applied: Applied::Unknown, .. } => Reply::Unheard,
        Error::Refused(refused) => match refused.reason.as_str() {
            "LEASE_LOST" => Reply::LeaseLost,
            "WRONG_STATE" => Reply::WrongState,
            "MESSAGE_NOT_FOUND" => Reply::NotFound,
            _ if refused.is_unavailable() => match refused.metadata.get("applied").map(String::as_str) {
                Some("no") => Reply::NotApplied,
                _ => Reply::Unheard,
            },
            _ => panic!("{error:?}"),
        },
        _ => panic!("{error:?}"),
    }
}

/// The failure of a call that only reads.
fn without_effect(reply: Reply) -> Reply {
    if reply == Reply::Unheard { Reply::NotApplied } else { reply }
}
