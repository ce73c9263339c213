//! A worker that is stopped in the middle of rollups, beyond its lease, and goes on (N8).

use super::judge::all_rollups;
use super::machines::{Machines, listed};
use super::now_ms;
use crate::system::program::SOON;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{IdempotencyToken, NamespaceConfig, NewAdd, NewClear};
use tallystone_counters::{Checkpoint, Checkpoints, CounterName};
use tallystone_workers::{Rollup, RollupStage};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "paused";
const COUNTERS: u64 = 150;
/// Of one batch: it takes so long that the worker can be stopped in the middle of it. A worker has requested no more than
/// twice as many, so that what a stopped one is given as its leases lapse comes to an end.
const BATCH: u32 = 20;
/// All counters are rolled up within this.
const ROUND: Duration = Duration::from_secs(8);

fn names() -> impl Iterator<Item = String> {
    (0..COUNTERS).map(|number| format!("c{number:03}"))
}

/// What each counter comes to, and when it was cleared last.
#[derive(Default)]
struct Expected {
    counts: BTreeMap<String, i64>,
    cut_ms: u64,
}

/// Adds to each counter before and after a clear in the same half second, which a rollup has to read record by record.
async fn add(machines: &Machines, round: u64, expected: &mut Expected) {
    // The clear cuts a window in two: a moment in the middle of the last one that is over, after what earlier rounds added.
    let cut_ms = loop {
        let cut_ms = now_ms() / 500 * 500 - 250;
        if cut_ms > expected.cut_ms {
            break cut_ms;
        }
        sleep(Duration::from_millis(10)).await;
    };
    let token = |what: &str, time_ms| IdempotencyToken::new(format!("{what} {round}"), time_ms);
    let adds = |what: &str, time_ms, delta| {
        names().map(|name| NewAdd::new(name, delta).token(token(what, time_ms))).collect::<Vec<_>>()
    };
    let client = &machines.clients[0];
    let clears = names().map(|name| NewClear::new(name).token(token("clear", cut_ms))).collect();
    let delta = 1_000 + round.cast_signed();
    let before = client.add_many(NAMESPACE, adds("before", cut_ms - 1, 7)).await.expect("adds");
    let after = client.add_many(NAMESPACE, adds("after", cut_ms + 1, delta)).await.expect("adds");
    let cleared = client.clear_many(NAMESPACE, clears).await.expect("clears");
    assert!(before.iter().chain(&after).all(Result::is_ok) && cleared.iter().all(Result::is_ok));
    *expected = Expected { counts: names().map(|name| (name, delta)).collect(), cut_ms };
}

/// What the first worker, which is stopped, has begun and not committed. Of what its records do not end it may have sent
/// the commit: the checkpoint is then written under a lease that came after the counter's rollup before.
async fn begun_rollups(machines: &Machines, store: &impl Checkpoints) -> Vec<Rollup> {
    let rollups = all_rollups(machines.workers[0].lives());
    let (begun, ended): (Vec<_>, Vec<_>) = rollups.into_iter().partition(|rollup| rollup.stage == RollupStage::Begin);
    let names: Vec<_> = begun.iter().map(|rollup| CounterName::parse(rollup.of.1.clone()).expect("a name")).collect();
    let checkpoints = store.read(&names).await.expect("their checkpoints");
    let is_open = |(rollup, checkpoint): &(Rollup, Checkpoint)| {
        let before = ended.iter().filter(|before| before.of == rollup.of).map(|before| before.end_us).max();
        checkpoint.exact_to_ms == 0 || before.is_some_and(|end_us| checkpoint.lease.leased_at_ms < end_us / 1_000)
    };
    begun.into_iter().zip(checkpoints).filter(is_open).map(|(rollup, _)| rollup).collect()
}

/// The first worker is about to roll up a whole batch, or several counters of it.
fn is_amid_a_batch(machines: &Machines) -> bool {
    let text = machines.workers[0].text();
    text.lines().rev().take_while(|line| line.ends_with("\"begin\"}")).count() > 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_a_worker_stopped_beyond_its_lease_changes_no_count() {
    let mut machines = Machines::start(1).await;
    let config = NamespaceConfig {
        accept_limit_ms: Some(2_000),
        coalesce_ms: Some(0),
        num_queues: Some(1),
        rollup_batch_count: Some(BATCH),
        // All records of a counter are in one place, so that a clear cuts them in two.
        buckets_per_id: Some(1),
        ..NamespaceConfig::default()
    };
    machines.clients[0].put_namespace(NAMESPACE, config).await.expect("a new namespace");
    let store = machines.store(NAMESPACE).await;
    let mut expected = Expected::default();
    let give_up_at = Instant::now() + SOON;
    let mut round = 0;
    let begun_rollups = loop {
        round += 1;
        add(&machines, round, &mut expected).await;
        let next_round_at = Instant::now() + ROUND;
        while !is_amid_a_batch(&machines) && Instant::now() < next_round_at {
            yield_now().await;
        }
        machines.workers[0].stop();
        let begun_rollups = begun_rollups(&machines, &store).await;
        if begun_rollups.len() > 1 {
            break begun_rollups;
        }
        // It was faster.
        assert!(Instant::now() < give_up_at, "it cannot be stopped in the middle of anything");
        machines.workers[0].go_on();
    };
    println!("stopped in round {round} with {} rollups begun", begun_rollups.len());

    // Another one comes, and gets the jobs when the leases have lapsed; so that a commit of the first could do harm,
    // there is something newer in them, too.
    let stuck = listed(&machines.clients[0], NAMESPACE).await;
    add(&machines, round + 1, &mut expected).await;
    machines.add_worker();
    machines.until_rolled_up(NAMESPACE, &expected.counts).await;
    let moved = listed(&machines.clients[0], NAMESPACE).await;
    for rollup in &begun_rollups {
        let exact_to_ms = |entries: &BTreeMap<_, tallystone_client::CounterEntry>| {
            entries.get(&rollup.of.1).map_or(0, |entry| entry.exact_to_ms)
        };
        assert!(exact_to_ms(&stuck) < exact_to_ms(&moved), "{rollup:?}");
    }

    machines.workers[0].go_on();
    let ended = loop {
        let all = all_rollups(machines.workers[0].lives());
        let ended: Vec<Rollup> = all
            .into_iter()
            .filter(|rollup| {
                begun_rollups.iter().any(|begun| begun.of == rollup.of && begun.begin_us == rollup.begin_us)
            })
            .collect();
        assert_eq!(ended.len(), begun_rollups.len());
        if ended.iter().all(|rollup| rollup.stage != RollupStage::Begin) {
            break ended;
        }
        assert!(Instant::now() < give_up_at + SOON, "it does not go on");
        sleep(Duration::from_millis(10)).await;
    };
    for rollup in &ended {
        assert!(matches!(rollup.stage, RollupStage::Lost | RollupStage::Nothing), "{rollup:?}");
    }
    assert!(ended.iter().any(|rollup| rollup.stage == RollupStage::Lost), "all of them had nothing to do");
    // Its commits changed nothing, and both go on as if nothing had been.
    let after = listed(&machines.clients[0], NAMESPACE).await;
    let counts = |entries: &BTreeMap<String, tallystone_client::CounterEntry>| -> BTreeMap<String, i64> {
        entries.iter().map(|(name, entry)| (name.clone(), entry.count)).collect()
    };
    assert_eq!(counts(&after), expected.counts);
    add(&machines, round + 2, &mut expected).await;
    machines.until_rolled_up(NAMESPACE, &expected.counts).await;
}
