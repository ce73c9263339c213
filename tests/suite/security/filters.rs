//! S1: filters by undeclared keys on a queue with many messages. Each set of keys wants an index, which Redis builds and keeps.

use super::victim::{Victim, works};
use crate::system::program::SOON;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::{Client, Dequeue, Filter, NewMessage, QueueConfig};
use tallystone_tests::Polling;
use tokio::time::Instant;

const FILES: u32 = 4_096;
const MESSAGES: usize = 200_000;
const BATCH: usize = 1_000;
/// As many undeclared indexes as so many messages admit.
const INDEXES: usize = 3;
/// Callers of the attack, each of which filters by other keys all the time.
const CALLERS: usize = 8;
/// The keys of each message.
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
const ROUNDS: usize = 60;
/// What the attack may take in Redis, in bytes of `used_memory`.
const GROWTH_BYTES_MAX: u64 = 100_000_000;
/// What a call may take of Redis's processor, on average. A script call takes about a twentieth of this. One that visits
/// all messages takes at least ten times as much.
const CALL_CPU_MAX: Duration = Duration::from_millis(2);
/// The same for a build, for each message; about twice what it takes.
const BUILD_CPU_MAX: Duration = Duration::from_micros(10);
/// On a machine that does much else, the steps take so long that they use up the credit of builds. Then these take ten times as long.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Rounds that take less than this are of no consequence, whatever they took before.
const FAST: Duration = Duration::from_secs(1);

async fn fill(client: &Client) {
    client.create_queue("attacked", QueueConfig::simple()).await.expect("a queue");
    for batch in 0..MESSAGES / BATCH {
        let message = |number: usize| {
            let message = NewMessage::new(format!("{batch}-{number}"), "");
            KEYS.into_iter().fold(message, |message, key| message.metadata(key, "v"))
        };
        let answers = client.enqueue("attacked", (0..BATCH).map(message).collect()).await.expect("an Enqueue");
        assert!(answers.iter().all(Result::is_ok));
    }
}

/// More sets of keys than a queue has indexes: all of the keys of the messages but the whole, and keys that no message has.
fn sets() -> Vec<Vec<String>> {
    let of_bits =
        |bits: usize| (0..KEYS.len()).filter(move |bit| (bits >> bit) & 1 == 1).map(|bit| KEYS[bit].to_owned());
    let sets = (1..(1 << KEYS.len()) - 1).map(|bits| of_bits(bits).collect());
    sets.chain((0..6).map(|number| vec![format!("other-{number}")])).collect()
}

fn by(set: &[String], value: &str) -> Filter {
    set.iter().fold(Filter::default(), |filter, key| filter.and(key, value))
}

/// Waits until no index is being built. How many of the sets have an index; the others are refused.
async fn indexed(client: &Client) -> usize {
    let (give_up_at, polling) = (Instant::now() + BUILT_WITHIN, Polling::begin());
    let mut indexed = 0;
    for set in sets() {
        loop {
            let Err(error) = client.depth("attacked", Some(by(&set, "v"))).await else {
                indexed += 1;
                break;
            };
            match error.refused().map(|refused| refused.reason.as_str()) {
                Some("TOO_MANY_INDEXES") => break,
                Some("INDEX_BUILDING") => polling.pause().await,
                _ => panic!("{error}"),
            }
            assert!(Instant::now() < give_up_at, "the index by {set:?} is not built");
        }
    }
    indexed
}

/// The median time of a message through another queue.
async fn median(client: &Client, name: &str) -> Duration {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let begin = Instant::now();
        works(client, &format!("{name}-{round}")).await;
        took.push(begin.elapsed());
    }
    took.sort();
    took[ROUNDS / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_filters_by_undeclared_keys_take_neither_the_time_nor_the_memory_of_redis() {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    fill(&innocent).await;
    let (before, bytes_before) = (median(&innocent, "before").await, victim.redis_bytes().await);
    let (stopping, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (attacked, cpu_before) = (Instant::now(), victim.redis_cpu().await);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (client, stopping, made) =
                (victim.innocent().with_retry_for(Duration::ZERO), stopping.clone(), made.clone());
            tokio::spawn(async move {
                for set in sets().iter().cycle().skip(caller) {
                    if stopping.load(Ordering::Relaxed) {
                        break;
                    }
                    // No message has these values: a Dequeue leases none, and wants the index each time.
                    let _ = client.dequeue(Dequeue::new("attacked").filter(by(set, "absent"))).await;
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let (during, mut rounds) = (median(&innocent, "during").await, ROUNDS);
    // All indexes that the queue admits are there, and the callers have had answers.
    assert_eq!(indexed(&innocent.with_retry_for(Duration::ZERO)).await, INDEXES);
    for more in 0.. {
        if made.load(Ordering::Relaxed) >= CALLERS * sets().len() {
            break;
        }
        median(&innocent, &format!("more-{more}")).await;
        rounds += ROUNDS;
    }
    let grown = victim.redis_bytes().await.saturating_sub(bytes_before);
    assert!(grown < GROWTH_BYTES_MAX, "Redis has grown by {grown} bytes");
    // Builds have the full rate until they have used up their credit. Then they take a tenth of the time of Redis, so a fifth leaves
    // room. The rest is for the calls.
    let (lasted, cpu) = (attacked.elapsed(), victim.redis_cpu().await - cpu_before);
    let builds = BUILD_CPU_MAX * u32::try_from(INDEXES * MESSAGES).expect("a small number");
    let calls = u32::try_from(made.load(Ordering::Relaxed) + rounds).expect("a small number");
    println!("{calls} calls in {lasted:?} took {cpu:?} of Redis's processor, and {grown} bytes");
    assert!(
        cpu < builds + lasted / 5 + CALL_CPU_MAX * calls,
        "{calls} calls in {lasted:?} took {cpu:?} of Redis's processor"
    );
    // The operator's own index has a place at once, and is built while the attack continues.
    let indexes = Some(vec![KEYS.map(str::to_owned).to_vec()]);
    innocent.update_queue("attacked", QueueConfig { indexes, ..QueueConfig::default() }).await.expect("an index");
    let by_all = by(&KEYS.map(str::to_owned), "v");
    let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
    let found = loop {
        match innocent.depth("attacked", Some(by_all.clone())).await {
            Ok(found) => break found,
            // It is being built.
            Err(error) => {
                assert_eq!(error.refused().map(|refused| refused.reason.as_str()), Some("INDEX_BUILDING"), "{error}");
                assert!(Instant::now() < give_up_at, "the operator's index is not built");
                polling.pause().await;
            }
        }
    };
    assert_eq!(found.pending, MESSAGES as u64);
    stopping.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no panic");
    }
    assert!(during < (before * 5).max(FAST), "a message took {during:?} during the attack, {before:?} before");
    works(&victim.innocent(), "after").await;
}
