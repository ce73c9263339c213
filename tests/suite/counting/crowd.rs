//! Many clients, servers and workers at once, on one hot counter and very many cold ones (N5, N8).

use super::judge::{all_rollups, check_none_overlap};
use super::machines::{Machines, listed};
use super::until_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::{CounterClient, IdempotencyToken, NamespaceConfig, NewAdd};
use tallystone_workers::RollupStage;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "crowd";
const HOT: &str = "hot";
const COLD: usize = 25_000;
const BATCH: usize = 500;
/// Adds to the hot counter in each batch: enough that it is in every one.
const HOT_IN_BATCH: usize = 100;
const CLIENTS: usize = 8;
/// A batch can be sent twice within this on a machine that has much to do. A rollup's lease lasts as long.
const ACCEPT_LIMIT: Duration = Duration::from_secs(4);
/// How long there are adds to the hot counter, while the cold ones are rolled up.
const HOT_FOR: Duration = Duration::from_secs(10);

/// Sends a batch through one server, and every third one once more through the other: it counts once.
async fn send(clients: &[CounterClient], number: usize, adds: Vec<NewAdd>) {
    for via in [number, number + 1].into_iter().take(1 + usize::from(number.is_multiple_of(3))) {
        let results = clients[via % clients.len()].add_many(NAMESPACE, adds.clone()).await.expect("a batch");
        for (add, result) in adds.iter().zip(results) {
            let added = result.unwrap_or_else(|refused| panic!("{add:?}: {refused}"));
            assert_eq!(added.duplicate, via != number, "{add:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n5_n8_a_crowd_adds_up_and_no_two_rollups_overlap() {
    let machines = Machines::start(4).await;
    let accept_limit_ms = Some(ACCEPT_LIMIT.as_millis() as u64);
    let config = NamespaceConfig { accept_limit_ms, coalesce_ms: Some(500), ..NamespaceConfig::default() };
    machines.clients[0].put_namespace(NAMESPACE, config).await.expect("a new namespace");
    let begin = Instant::now();
    let (next, hot_adds, hot_sum) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (clients, next) = (machines.clients.clone(), next.clone());
        let (hot_adds, hot_sum) = (hot_adds.clone(), hot_sum.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let is_cold = number < COLD / BATCH;
                if !is_cold && begin.elapsed() > HOT_FOR {
                    return;
                }
                let cold = (0..if is_cold { BATCH } else { 0 }).map(|place| number * BATCH + place);
                let cold = cold.map(|counter| NewAdd::new(format!("cold/{counter}"), delta(counter)));
                let hot = (0..HOT_IN_BATCH).map(|place| NewAdd::new(HOT, (place as i64) - 20));
                let adds: Vec<NewAdd> = cold.chain(hot).map(|add| add.token(IdempotencyToken::now())).collect();
                let hot = adds.iter().filter(|add| add.counter == HOT);
                hot_sum.fetch_add(hot.map(|add| add.delta).sum(), Ordering::Relaxed);
                hot_adds.fetch_add(HOT_IN_BATCH, Ordering::Relaxed);
                send(&clients, number, adds).await;
                if !is_cold {
                    // Those who roll up need the machine too.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no client fails");
    }
    let added = begin.elapsed();
    let mut expected: BTreeMap<String, i64> =
        (0..COLD).map(|counter| (format!("cold/{counter}"), delta(counter))).collect();
    expected.insert(HOT.to_owned(), hot_sum.load(Ordering::Relaxed));
    let mut found = BTreeMap::new();
    // A list of so many takes a while: not again and again.
    until_all(expected.len(), Duration::from_millis(500), async || {
        found = listed(&machines.clients[0], NAMESPACE).await;
        let right = |(counter, expected): &(&String, &i64)| {
            found.get(*counter).is_some_and(|entry| entry.count == **expected && entry.exact_to_ms > 0)
        };
        expected.iter().filter(right).count()
    })
    .await;
    assert_eq!(found.len(), expected.len(), "no other counter comes up");
    let rolled_up = begin.elapsed();
    let rollups = all_rollups(&machines.lives());
    let committed = rollups.iter().filter(|rollup| rollup.stage == RollupStage::Committed);
    let (of_hot, of_cold): (Vec<_>, Vec<_>) = committed.partition(|rollup| rollup.of.1 == HOT);
    let hot_adds = hot_adds.load(Ordering::Relaxed);
    let mut workers: Vec<&str> = of_cold.iter().map(|rollup| rollup.worker.as_str()).collect();
    workers.sort_unstable();
    workers.dedup();
    println!(
        "{} adds in {added:?}, all rolled up after {rolled_up:?}; hot: {hot_adds} adds, {} rollups; cold: {} rollups of {COLD} by {workers:?}",
        COLD + hot_adds,
        of_hot.len(),
        of_cold.len(),
    );
    check_none_overlap(&rollups, ACCEPT_LIMIT);
    assert_eq!(workers.len(), 4, "all workers work");
    // One job for all that comes within coalesce_ms.
    assert!(of_hot.len() >= 2 && of_hot.len() * 100 <= hot_adds, "{} rollups of {hot_adds} adds", of_hot.len());
    assert!((COLD..2 * COLD).contains(&of_cold.len()), "{} rollups of {COLD} adds", of_cold.len());
    // Reads say the same through both servers.
    for client in &machines.clients {
        let names: Vec<String> = expected.keys().step_by(200).cloned().chain([HOT.to_owned()]).collect();
        let counts = client.get_many(NAMESPACE, names.clone()).await.expect("counts");
        for (name, count) in names.iter().zip(counts) {
            assert_eq!(count.expect("a count").count, expected[name], "{name}");
        }
    }
}

fn delta(counter: usize) -> i64 {
    (counter % 1_000) as i64 - 300
}
