//! kill -9 of Redis and of servers at random moments under load. `TALLYSTONE_CRASH_SEED` repeats the choices of a run,
//! `TALLYSTONE_TEST_LONG` makes it much longer.

use super::conclude::{check_invariants, conclude, drain, progress};
use super::judge::LATE_MS;
use super::load::{KEY, LEASE_MS, Load, Phase, only, queue_config};
use super::machines::Machines;
use crate::system::program::SOON;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tallystone_client::*;
use tallystone_link::RedisConfig;
use tallystone_tests::amount;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The queue of messages whose holders have died; only the sweeper moves them.
const ORPHANS: &str = "orphans";
const POLL: Duration = Duration::from_millis(20);

/// What dies in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Redis,
    Server(usize),
    RedisAndServer(usize),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_nothing_acknowledged_is_lost_whatever_is_killed() {
    kill_in_rounds(1, amount(12, 240)).await;
}

/// Each shard and each call on it may be at another step when its server dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_nothing_acknowledged_is_lost_where_queues_have_shards() {
    kill_in_rounds(4, amount(8, 120)).await;
}

async fn kill_in_rounds(shards: u32, rounds: u32) {
    let mut rng = StdRng::seed_from_u64(super::seed());
    let mut machines = Machines::start().await;
    let (phase, phases) = watch::channel(Phase::Load);
    let mut tasks = JoinSet::new();
    let mut loads = Vec::new();
    for (name, exclusive) in [("simple", false), ("exclusive", true), (ORPHANS, true)] {
        let config = QueueConfig { shards: Some(shards), ..queue_config(exclusive) };
        machines.clients[0].create_queue(name, config).await.expect("a new queue");
        if name == ORPHANS {
            continue;
        }
        let load = Load::new(name, exclusive, &machines.clients, &phases);
        for via in 0..2 {
            let mut next_seed = || rng.random::<u64>();
            tasks.spawn(load.clone().produce(via, next_seed()));
            for _ in 0..3 {
                tasks.spawn(load.clone().work(via, next_seed()));
            }
            tasks.spawn(load.clone().stream(via, next_seed()));
        }
        loads.push(load);
    }
    for round in 0..rounds {
        let victims =
            [Victim::Redis, Victim::Server(0), Victim::Server(1), Victim::RedisAndServer(rng.random_range(0..2))];
        // Each of them often, whatever the dice say.
        let victim = if round < 4 { victims[round as usize] } else { *victims.choose(&mut rng).expect("victims") };
        let round = async {
            progress(&loads, rng.random_range(1..150)).await;
            let orphan = Orphan::leave(&machines, round).await;
            // Some moment in the middle of something.
            sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
            strike(&mut machines, victim, Duration::from_millis(rng.random_range(0..150))).await;
            progress(&loads, 1).await;
            orphan.found(&machines).await;
            for queue in ["simple", "exclusive", ORPHANS] {
                check_invariants(&machines.clients, queue).await;
            }
            println!("round {round}: {victim:?}");
        };
        tokio::select! {
            () = round => {}
            Some(ended) = tasks.join_next() => panic!("ended early: {ended:?}"),
        }
    }
    drain(phase, tasks, &machines.clients, &loads).await;
    for load in &loads {
        let redis = RedisConfig { url: machines.redis.url(), ..RedisConfig::default() };
        // The clock is the same one, but what servers measure of it has their round trips in it. On a busy machine they are as long as calls.
        let longest_ms = load.recorder.history().iter().map(|op| op.span.length_ms()).max().unwrap_or_default();
        conclude(&machines.clients, &redis, load, LATE_MS.min(LEASE_MS + longest_ms)).await;
    }
}

/// Kills, waits a little, and starts again.
pub(super) async fn strike(machines: &mut Machines, victim: Victim, pause: Duration) {
    let (redis, server) = match victim {
        Victim::Redis => (true, None),
        Victim::Server(server) => (false, Some(server)),
        Victim::RedisAndServer(server) => (true, Some(server)),
    };
    if redis {
        machines.redis.kill().await;
    }
    if let Some(server) = server {
        machines.servers[server].kill().await;
    }
    sleep(pause).await;
    if redis {
        machines.redis.restart().await;
    }
    if let Some(server) = server {
        machines.servers[server].restart().await;
    }
}

/// A message whose worker has died, and another that waits behind it for their key.
struct Orphan {
    key: String,
    lease: Lease,
}

impl Orphan {
    async fn leave(machines: &Machines, round: u32) -> Self {
        let key = format!("round {round}");
        let message = |place: i64| NewMessage::new(format!("{key}/{place}"), "").priority(place).metadata(KEY, &key);
        let messages = vec![message(1), message(2)];
        let client = &machines.clients[round as usize % 2];
        let accepted = client.enqueue(ORPHANS, messages).await.expect("an Enqueue");
        assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
        let lease = take(client).await;
        assert_eq!(lease.id, format!("{key}/1"));
        Orphan { key, lease }
    }

    /// The sweeper takes the lease away when it is over; then the key is free, and both messages run in their order.
    async fn found(self, machines: &Machines) {
        let client = &machines.clients[0];
        let give_up_at = Instant::now() + SOON;
        // No worker dequeues here, so that only the sweeper can have done it.
        while client.get_message(ORPHANS, &self.lease.id).await.expect("a message").state == State::Running {
            assert!(Instant::now() < give_up_at, "{} is still locked", self.key);
            sleep(POLL).await;
        }
        for place in 1..=2 {
            let lease = take(client).await;
            assert_eq!(lease.id, format!("{}/{place}", self.key));
            assert!(lease.fencing_token > self.lease.fencing_token, "fencing tokens rise across crashes");
            let complete = client.complete(ORPHANS, vec![(&lease).into()]).await;
            assert_eq!(only(complete).expect("a lease that lives").state, State::Completed);
        }
        let late = client.complete(ORPHANS, vec![(&self.lease).into()]).await;
        assert!(only(late).is_err_and(|refused| refused.is_lease_lost()));
    }
}

async fn take(client: &Client) -> Lease {
    let request = || Dequeue::new(ORPHANS).worker("an orphan's").lease_ms(LEASE_MS);
    let leases = client.dequeue(request().wait_ms(5_000)).await.expect("a Dequeue");
    leases.into_iter().next().expect("a runnable message")
}
