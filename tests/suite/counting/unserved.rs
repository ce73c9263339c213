//! Rollup jobs for which there is no worker, or no room (N9), and namespaces without any (Q18).

use super::house::{House, until};
use std::time::Duration;
use tallystone_client::{Client, IdempotencyToken, NamespaceConfig, NewAdd};
use tokio::time::sleep;

const NAMESPACE: &str = "unserved";
const COUNTERS: usize = 2_000;
/// For how long commands are counted.
const WATCHED: Duration = Duration::from_secs(5);

fn config() -> NamespaceConfig {
    NamespaceConfig {
        accept_limit_ms: Some(1_900),
        coalesce_ms: Some(0),
        num_queues: Some(1),
        buckets_per_id: Some(1),
        ..NamespaceConfig::default()
    }
}

async fn add_to_all(house: &House, counters: usize) {
    let names: Vec<String> = (0..counters).map(|number| format!("c{number}")).collect();
    for names in names.chunks(500) {
        let adds = names.iter().map(|name| NewAdd::new(name, 3).token(IdempotencyToken::now())).collect();
        let added = house.clients[0].add_many(NAMESPACE, adds).await.expect("adds");
        assert!(added.iter().all(Result::is_ok), "{added:?}");
    }
}

/// The jobs that wait in the namespace's only queue.
async fn waiting(queue: &Client) -> u64 {
    queue.depth(&format!("rollup/{NAMESPACE}/0of1"), None).await.map_or(0, |depth| depth.pending)
}

/// The commands of Redis in a second.
async fn rate(house: &House) -> f64 {
    let before = house.commands().await;
    sleep(WATCHED).await;
    (house.commands().await - before) as f64 / WATCHED.as_secs_f64()
}

async fn until_all_count(house: &House, counters: usize) {
    let exact = async || {
        let found = super::machines::listed(&house.clients[1], NAMESPACE).await;
        found.values().filter(|entry| entry.count == 3 && entry.exact_to_ms > 0).count()
    };
    until(exact, |exact| *exact == counters).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_without_workers_each_counter_is_offered_ever_more_rarely() {
    let mut house = House::without_worker().await;
    house.put(NAMESPACE, config()).await;
    add_to_all(&house, COUNTERS).await;
    let queue = house.queue.clone().expect("a queue");
    until(async || waiting(&queue).await, |jobs| *jobs == COUNTERS as u64).await;
    // The first holds are 2 s and 8 s long: after that nothing happens for half a minute.
    sleep(Duration::from_secs(12)).await;
    let rate = rate(&house).await;
    assert!(rate < 150.0, "{rate} commands a second");
    house.start_worker().await;
    until_all_count(&house, COUNTERS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_a_full_rollup_queue_is_left_alone() {
    const DEPTH: u64 = 100;
    let house = House::without_worker().await;
    house.put(NAMESPACE, NamespaceConfig { capacity_bytes: Some(512 * DEPTH), ..config() }).await;
    add_to_all(&house, COUNTERS).await;
    let queue = house.queue.clone().expect("a queue");
    until(async || waiting(&queue).await, |jobs| *jobs == DEPTH).await;
    // Both servers have found it full.
    sleep(Duration::from_secs(5)).await;
    let rate = rate(&house).await;
    assert!(rate < 400.0, "{rate} commands a second");
    assert_eq!(waiting(&queue).await, DEPTH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q18_idle_namespaces_cost_few_commands_however_many_there_are() {
    let house = House::with_rollups().await;
    for number in 0..50 {
        house.put(&format!("idle-{number}"), NamespaceConfig { num_queues: Some(2), ..config() }).await;
    }
    // The queues are created, and old events checked, once.
    sleep(Duration::from_secs(5)).await;
    let rate = rate(&house).await;
    assert!(rate < 100.0, "{rate} commands a second");
    // Each is still served.
    for number in [7, 49] {
        let namespace = format!("idle-{number}");
        house.clients[0].add(&namespace, NewAdd::new("c", 3)).await.expect("an add");
        house.until_entry(&namespace, "c", |entry| entry.count == 3 && entry.exact_to_ms > 0).await;
    }
}
