//! kill -9 of Redis, servers and workers at random moments under load. `TALLYSTONE_CRASH_SEED` repeats the choices of a
//! run, `TALLYSTONE_TEST_LONG` makes it twenty times as long.

use super::judge::{all_rollups, check_none_overlap};
use super::load::Load;
use super::machines::{Machines, WorkerProcess};
use super::{POLL, crossings};
use crate::crash::machines::Redis;
use crate::system::program::SOON;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{CounterClient, NamespaceConfig};
use tallystone_tests::amount;
use tallystone_workers::RollupStage;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const ROUNDS: u32 = 12;
const ROUNDS_LONG: u32 = 240;
pub(super) const NAMESPACE: &str = "rounds";
/// A rollup's lease lasts as long.
pub(super) const ACCEPT_LIMIT: Duration = Duration::from_secs(1);
/// All counts are exact this time after the last restart.
const CONVERGED_WITHIN: Duration = Duration::from_millis(ACCEPT_LIMIT.as_millis() as u64 + 2_000);

/// Between two reads of what a worker has written.
pub(super) const MOMENT: Duration = Duration::from_millis(1);

/// What dies in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Redis,
    Queue(usize),
    Counters(usize),
    Worker(usize),
    /// Redis, and one of each.
    Most(usize),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n3_n8_n9_every_total_is_exact_whatever_is_killed() {
    kill_and_count(Machines::start(2).await).await;
}

/// Events go to the archive after a second, so that many retries are answered there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n15_every_total_is_exact_and_no_event_is_lost_on_its_way_to_the_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = format!("[archive]\nurl = \"file://{}\"\ninterval_ms = 200\nkeep_ms = 0\n", folder.path().display());
    let redis = Redis::start().await;
    let url = redis.url();
    let (machines, load) = kill_and_count(Machines::start_on(redis, url, &archive, 2).await).await;
    let give_up_at = Instant::now() + SOON;
    let store = machines.store(NAMESPACE).await;
    while store.unarchived_from_ms().await.expect("states").is_some() {
        assert!(Instant::now() < give_up_at, "some events are not archived");
        sleep(POLL).await;
    }
    let expected = load.ledger.lock().unwrap().sums.clone();
    let (mut events, counted) = (0, load.ledger.lock().unwrap().counted);
    for (counter, sum) in expected {
        let all = all_events(&machines.clients[0], &counter).await;
        events += all.len();
        assert_eq!(all.iter().sum::<i64>(), sum, "{counter}");
    }
    assert_eq!(events, counted, "in the archive and counted");
}

/// The deltas of all events of a counter.
async fn all_events(client: &CounterClient, counter: &str) -> Vec<i64> {
    let (mut all, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = client.list_events(NAMESPACE, counter, 1, 0, 1_000, &page_token).await.expect("a page");
        all.extend(page.items.into_iter().map(|event| event.delta));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}

async fn kill_and_count(mut machines: Machines) -> (Machines, Load) {
    let rounds = amount(ROUNDS, ROUNDS_LONG);
    let mut rng = StdRng::seed_from_u64(crate::crash::seed());
    let config = NamespaceConfig { thresholds: Some(crossings::thresholds()), ..config() };
    machines.clients[0].put_namespace(NAMESPACE, config).await.expect("a new namespace");
    let (done, until) = watch::channel(false);
    let load = Load::new(NAMESPACE, &machines.clients, until);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        // A token is never another run's.
        tasks.spawn(load.clone().add(rng.random()));
    }
    tasks.spawn(load.clone().recount(rng.random()));
    for round in 0..rounds {
        let any = rng.random_range(0..2);
        let victims =
            [Victim::Redis, Victim::Queue(any), Victim::Counters(any), Victim::Worker(any), Victim::Most(any)];
        // Each of them often, whatever the dice say.
        let is_last = round + 1 == rounds;
        let victim = match round {
            0..5 => victims[round as usize],
            _ if is_last => Victim::Most(any),
            _ => *victims.choose(&mut rng).expect("victims"),
        };
        let striking = async {
            progress(&load, &machines, rng.random_range(1..150)).await;
            // Some moment in the middle of something.
            sleep(Duration::from_micros(rng.random_range(0..300_000))).await;
            // Now and then so long that what clients continue sending is too old.
            let pause_ms = if rng.random_bool(0.2) { 800..1_400 } else { 0..150 };
            // What is under way when the last of them dies is sent until it is answered, but nothing new: what is
            // pending then is to be exact in time, whatever came later.
            done.send_replace(is_last);
            strike(&mut machines, victim, Duration::from_millis(rng.random_range(pause_ms))).await;
            if !is_last {
                progress(&load, &machines, 1).await;
            }
            println!("round {round}: {victim:?}");
        };
        tokio::select! {
            () = striking => {}
            Some(ended) = tasks.join_next(), if !is_last => panic!("ended early: {ended:?}"),
        }
    }
    let restarted = Instant::now();
    timeout(SOON, tasks.join_all()).await.expect("every client ends");
    conclude(&machines, &load, restarted, CONVERGED_WITHIN).await;
    let counts = load.ledger.lock().unwrap().counts();
    crossings::check_each_is_there_once(&machines.clients[1], NAMESPACE, &counts).await;
    (machines, load)
}

/// Of the namespace: short times, so that rollups are many.
pub(super) fn config() -> NamespaceConfig {
    NamespaceConfig {
        accept_limit_ms: Some(ACCEPT_LIMIT.as_millis() as u64),
        coalesce_ms: Some(200),
        num_queues: Some(4),
        ..NamespaceConfig::default()
    }
}

/// Waits for this number of further events of which all is known, and one more rollup.
pub(super) async fn progress<R>(load: &Load, machines: &Machines<R>, events: usize) {
    let mut answered = load.answered.subscribe();
    let wanted = *answered.borrow_and_update() + events;
    let rolled_up = committed(machines);
    // What it answers locks the watch: not to be kept.
    let is_reached = timeout(SOON, answered.wait_for(|count| *count >= wanted)).await.is_ok();
    assert!(is_reached, "nothing is added any more");
    let give_up_at = Instant::now() + SOON;
    while committed(machines) <= rolled_up {
        assert!(Instant::now() < give_up_at, "nothing is rolled up any more");
        sleep(POLL).await;
    }
}

/// Rollups of the workers that live.
fn committed<R>(machines: &Machines<R>) -> usize {
    machines.workers.iter().map(|worker| worker.text().matches("\"committed\"").count()).sum()
}

/// Kills, waits a little, and starts again. A worker alone dies in the middle of rollups.
async fn strike(machines: &mut Machines, victim: Victim, pause: Duration) {
    let (redis, queue, counters, worker) = match victim {
        Victim::Redis => (true, None, None, None),
        Victim::Queue(which) => (false, Some(which), None, None),
        Victim::Counters(which) => (false, None, Some(which), None),
        Victim::Worker(which) => (false, None, None, Some(which)),
        Victim::Most(which) => (true, Some(which), Some(which), Some(which)),
    };
    // Redis may have been killed before it had started.
    machines.workers.iter_mut().for_each(WorkerProcess::start_if_it_found_no_redis);
    if let Victim::Worker(which) = victim {
        let give_up_at = Instant::now() + SOON;
        while !machines.workers[which].is_at_it() {
            assert!(Instant::now() < give_up_at, "worker {which} has nothing to do");
            sleep(MOMENT).await;
        }
    }
    if redis {
        machines.redis.kill().await;
    }
    if let Some(queue) = queue {
        machines.queues[queue].kill().await;
    }
    if let Some(counters) = counters {
        machines.counters[counters].kill().await;
    }
    if let Some(worker) = worker {
        machines.workers[worker].kill().await;
    }
    sleep(pause).await;
    if redis {
        machines.redis.restart().await;
    }
    if let Some(queue) = queue {
        machines.queues[queue].restart().await;
    }
    if let Some(counters) = counters {
        machines.counters[counters].restart().await;
    }
    if let Some(worker) = worker {
        machines.workers[worker].start();
    }
}

/// When all is quiet, the replies to clients, the counts of rollups and the records of workers agree: so long after the last
/// restart, at most.
pub(super) async fn conclude<R>(machines: &Machines<R>, load: &Load, restarted: Instant, within: Duration) {
    let expected: BTreeMap<String, i64> = load.ledger.lock().unwrap().counts();
    let converged = machines.until_rolled_up(NAMESPACE, &expected).await;
    let lives = machines.lives();
    let rollups = all_rollups(&lives);
    let ended = |stage| rollups.iter().filter(|rollup| rollup.stage == stage).count();
    {
        let ledger = load.ledger.lock().unwrap();
        println!(
            "{} counted, {} of them known only when sent again, {} too old; {} recounts; {} rollups: {} committed, {} nothing, {} lost, {} failed, {} killed",
            ledger.counted,
            ledger.duplicates,
            ledger.too_old,
            ledger.recounts,
            rollups.len(),
            ended(RollupStage::Committed),
            ended(RollupStage::Nothing),
            ended(RollupStage::Lost),
            ended(RollupStage::Failed),
            ended(RollupStage::Begin),
        );
    }
    println!("exact {:?} after the last restart", converged.saturating_duration_since(restarted));
    check_none_overlap(&rollups, ACCEPT_LIMIT);
    assert!(converged <= restarted + within, "not exact in time");
    // A count that is read says the same.
    let names: Vec<String> = expected.keys().cloned().collect();
    let counts = machines.clients[1].get_many(NAMESPACE, names).await.expect("counts");
    for (count, (counter, expected)) in counts.into_iter().zip(&expected) {
        assert_eq!(count.expect("a count").count, *expected, "{counter}");
    }
}
