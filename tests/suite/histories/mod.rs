//! Two servers on one Redis under concurrent load; what the clients saw is written down and then judged (Q9, Q11, Q13).
//!
//! What lives here: the load, the record, and one file per judgement, each with bad histories made by hand that it must
//! find out. What may not: checks that rely on the servers.

mod depths;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod linear;
pub(crate) mod load;
pub(crate) mod pair;
pub(crate) mod versions;

use load::{Habit, KEY, Load, ORIGIN, Phase};
use pair::Pair;
use std::time::Duration;
use tallystone_client::{Backoff, QueueConfig, State};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long the load lasts.
const LOAD: Duration = Duration::from_secs(12);
/// How long everything may take to come to its end.
const END: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q13_two_servers_on_one_redis_are_one_queue() {
    run(1, None).await;
}

/// Each message and each value is in one shard, so what was true of one is true of all of them (X4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_two_servers_on_one_redis_are_one_queue_of_several_shards() {
    run(7, None).await;
}

/// The simple queue gets other shards in the middle of the load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_two_servers_on_one_redis_are_one_queue_whose_number_of_shards_changes() {
    run(1, Some(4)).await;
}

/// `change`: to how many shards the simple queue changes under load.
async fn run(shards: u32, change: Option<u32>) {
    let seed = rand::random::<u32>();
    println!("seed {seed}");
    let pair = Pair::start().await;
    let (phase, phases) = watch::channel(Phase::Load);
    let indexes = Some(vec![vec![ORIGIN.to_owned()]]);
    let loads =
        [("simple", QueueConfig::simple()), ("exclusive", QueueConfig::exclusive(KEY))].map(|(name, config)| {
            let load = Load::new(name, name == "exclusive", &pair.clients, &phases);
            let (indexes, retry_backoff) = (indexes.clone(), Some(Backoff::NONE));
            (load, QueueConfig { shards: Some(shards), indexes, retry_backoff, ..config })
        });
    let mut tasks = JoinSet::new();
    for (number, (load, config)) in loads.iter().enumerate() {
        pair.clients[0].create_queue(&load.queue, config.clone()).await.expect("a new queue");
        let mut seed = u64::from(seed) * 1_000 + number as u64 * 100;
        let mut next_seed = || {
            seed += 1;
            seed
        };
        for via in 0..2 {
            tasks.spawn(load.clone().produce(via, next_seed()));
            for habit in [Habit::Prompt, Habit::Prompt, Habit::Filtered, Habit::Filtered, Habit::Slow, Habit::Slow] {
                tasks.spawn(load.clone().work(via, habit, next_seed()));
            }
            for _ in 0..2 {
                tasks.spawn(load.clone().stream(via, next_seed()));
            }
        }
        tasks.spawn(load.clone().read(next_seed()));
        tasks.spawn(load.clone().operate(next_seed()));
    }
    let lasts = async {
        sleep(LOAD / 3).await;
        if change.is_some() {
            let change = QueueConfig { shards: change, ..QueueConfig::default() };
            pair.clients[1].update_queue(&loads[0].0.queue, change).await.expect("another number of shards");
        }
        sleep(LOAD * 2 / 3).await;
    };
    tokio::select! {
        () = lasts => {}
        // No task ends before the load does, unless it panics.
        Some(ended) = tasks.join_next() => panic!("ended early: {ended:?}"),
    }
    phase.send_replace(Phase::Drain);
    for (load, _) in &loads {
        drained(load).await;
    }
    phase.send_replace(Phase::Done);
    timeout(END, tasks.join_all()).await.expect("every worker ends");
    for (load, _) in &loads {
        judge(load).await;
    }
    drop(loads);
    pair.stop().await;
}

/// Waits until every message has ended.
async fn drained(load: &Load) {
    let give_up_at = Instant::now() + END;
    loop {
        let depth = load.clients[0].depth(&load.queue, None).await.expect("a Depth");
        if depth.live() == 0 {
            return;
        }
        assert!(Instant::now() < give_up_at, "{}: still {depth:?}", load.queue);
        sleep(Duration::from_millis(20)).await;
    }
}

async fn judge(load: &Load) {
    for via in 0..2 {
        load.count(via, None).await;
        check_invariants(load, via).await;
    }
    let history = load.recorder.history();
    let count = |wanted: fn(&history::What) -> bool| history.iter().filter(|op| wanted(&op.what)).count();
    use history::{End, What};
    println!(
        "{}: {} enqueued, {} leased, {} completed, {} lost, {} changed, {} seen, {} counted, {} pauses",
        load.queue,
        count(|what| matches!(what, What::Enqueued { .. })),
        count(|what| matches!(what, What::Leased { .. })),
        count(|what| matches!(what, What::Ended { end: End::To(State::Completed, _), .. })),
        count(|what| matches!(what, What::Ended { end: End::Lost, .. })),
        count(|what| matches!(what, What::Changed { .. })),
        count(|what| matches!(what, What::Seen { .. })),
        count(|what| matches!(what, What::Counted { .. })),
        count(|what| matches!(what, What::Paused)),
    );
    // A load that does not contend proves nothing.
    assert!(count(|what| matches!(what, What::Ended { end: End::To(State::Completed, _), .. })) > 100);
    assert!(count(|what| matches!(what, What::Ended { end: End::Lost, .. })) > 0, "no lease has lapsed");
    let violations = [leases::check(&history, 0), versions::check(&history), depths::check(&history)].concat();
    assert!(violations.is_empty(), "{}: {} violations: {violations:#?}", load.queue, violations.len());
}

/// The scrubber finds nothing.
async fn check_invariants(load: &Load, via: usize) {
    let mut cursor = String::new();
    loop {
        let step = load.clients[via].check_queue(&load.queue, &cursor).await.expect("a step of the scrubber");
        assert_eq!(step.violations, [], "{}", load.queue);
        if step.cursor.is_empty() {
            return;
        }
        cursor = step.cursor;
    }
}
