//! A worker that is stopped in the middle of rollups, beyond its lease, and continues (N8).

use super::judge::all_rollups;
use super::machines::{Machines, listed};
use super::now_ms;
use super::rounds::MOMENT;
use crate::system::program::SOON;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{CounterEntry, IdempotencyToken, NamespaceConfig, NewAdd, NewClear};
use tallystone_counters::{Checkpoint, Checkpoints, CounterName};
use tallystone_workers::{Rollup, RollupStage};
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "paused";
const COUNTERS: u64 = 150;
/// Of one batch: it takes so long that the worker can be stopped in the middle of it. A worker has requested no more than
/// twice as many, so that what a stopped one is given as its leases lapse comes to an end.
const BATCH: u32 = 20;
/// All counters are rolled up within this.
const ROUND: Duration = Duration::from_secs(8);
const STOPS_MAX: usize = 5;

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
    let client = &machines.clients[0];
    let delta = 1_000 + round.cast_signed();
    loop {
        // The clear cuts a window in two: a moment in the middle of the last one that is over, and later than what
        // earlier rounds added.
        let cut_ms = loop {
            let cut_ms = now_ms() / 500 * 500 - 250;
            if cut_ms > expected.cut_ms {
                break cut_ms;
            }
            sleep(Duration::from_millis(10)).await;
        };
        expected.cut_ms = cut_ms;
        let token = |what: &str, time_ms| IdempotencyToken::new(format!("{what} {round}"), time_ms);
        let adds = |what: &str, time_ms, delta| {
            names().map(|name| NewAdd::new(name, delta).token(token(what, time_ms))).collect::<Vec<_>>()
        };
        let clears = names().map(|name| NewClear::new(name).token(token("clear", cut_ms))).collect();
        let before = client.add_many(NAMESPACE, adds("before", cut_ms - 1, 7)).await.expect("adds");
        let after = client.add_many(NAMESPACE, adds("after", cut_ms + 1, delta)).await.expect("adds");
        let cleared = client.clear_many(NAMESPACE, clears).await.expect("clears");
        if before.iter().chain(&after).all(Result::is_ok) && cleared.iter().all(Result::is_ok) {
            break;
        }
        // A busy machine took longer than the log accepts events. A later clear removes what was added.
        println!("too late in round {round}");
    }
    expected.counts = names().map(|name| (name, delta)).collect();
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

/// Stops the first worker in the middle of rollups, and returns those.
async fn stop_amid_rollups(
    machines: &Machines,
    store: &impl Checkpoints,
    round: &mut u64,
    expected: &mut Expected,
) -> Vec<Rollup> {
    let give_up_at = Instant::now() + SOON;
    loop {
        *round += 1;
        add(machines, *round, expected).await;
        let next_round_at = Instant::now() + ROUND;
        while !is_amid_a_batch(machines) && Instant::now() < next_round_at {
            sleep(MOMENT).await;
        }
        machines.workers[0].stop();
        let begun_rollups = begun_rollups(machines, store).await;
        if begun_rollups.len() > 1 {
            println!("stopped in round {round} with {} rollups begun", begun_rollups.len());
            return begun_rollups;
        }
        // It was faster.
        assert!(Instant::now() < give_up_at, "it cannot be stopped in the middle of anything");
        machines.workers[0].go_on();
    }
}

/// How these rollups of the first worker have ended, once all have.
async fn ends_of(begun_rollups: &[Rollup], machines: &Machines) -> Vec<Rollup> {
    let give_up_at = Instant::now() + SOON;
    let is_begun =
        |rollup: &Rollup| begun_rollups.iter().any(|begun| begun.of == rollup.of && begun.begin_us == rollup.begin_us);
    loop {
        let all = all_rollups(machines.workers[0].lives());
        let ended: Vec<Rollup> = all.into_iter().filter(is_begun).collect();
        assert_eq!(ended.len(), begun_rollups.len());
        if ended.iter().all(|rollup| rollup.stage != RollupStage::Begin) {
            return ended;
        }
        assert!(Instant::now() < give_up_at, "it does not go on");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_a_worker_stopped_beyond_its_lease_changes_no_count() {
    let mut machines = Machines::start(2).await;
    machines.workers[1].kill().await;
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
    let (mut round, mut expected) = (0, Expected::default());
    let exact_to_ms = |entries: &BTreeMap<String, CounterEntry>, rollup: &Rollup| {
        entries.get(&rollup.of.1).map_or(0, |entry| entry.exact_to_ms)
    };
    // A rollup that was stopped before it had read its checkpoint finds nothing to do, and proves nothing. Any other tries
    // to commit, or fails: on a slow machine it was stopped for longer than it waits for replies of Redis.
    for _ in 0..STOPS_MAX {
        let begun_rollups = stop_amid_rollups(&machines, &store, &mut round, &mut expected).await;

        // Another one comes, and gets the jobs when the leases have lapsed; so that a commit of the first could do harm,
        // there is something newer in them, too.
        let stuck = listed(&machines.clients[0], NAMESPACE).await;
        round += 1;
        add(&machines, round, &mut expected).await;
        machines.workers[1].start();
        machines.until_rolled_up(NAMESPACE, &expected.counts).await;
        let moved = listed(&machines.clients[0], NAMESPACE).await;
        for rollup in &begun_rollups {
            assert!(exact_to_ms(&stuck, rollup) < exact_to_ms(&moved, rollup), "{rollup:?}");
        }

        machines.workers[0].go_on();
        let ended = ends_of(&begun_rollups, &machines).await;
        for rollup in &ended {
            assert_ne!(rollup.stage, RollupStage::Committed, "{rollup:?}");
        }
        // Its commits changed nothing, and both continue as if nothing had been.
        let after = listed(&machines.clients[0], NAMESPACE).await;
        let counts: BTreeMap<String, i64> = after.into_iter().map(|(name, entry)| (name, entry.count)).collect();
        assert_eq!(counts, expected.counts);
        round += 1;
        add(&machines, round, &mut expected).await;
        machines.until_rolled_up(NAMESPACE, &expected.counts).await;
        if ended.iter().any(|rollup| rollup.stage != RollupStage::Nothing) {
            return;
        }
        machines.workers[1].kill().await;
    }
    panic!("in {STOPS_MAX} stops all rollups had nothing to do");
}
