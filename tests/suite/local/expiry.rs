//! Counters without adds expire at the service and in the folders of programs (L3).

use super::{POLL, namespace};
use crate::counting::house::{House, until};
use crate::system::program::SOON;
use tallystone_client::local::{LocalCounters, LocalOptions};
use tallystone_client::{CounterEntry, CounterType, NamespaceConfig, NewClear};
use tallystone_counters::namespace::SHARDS;
use tallystone_counters::redis::{RedisNamespace, RedisNamespaces};
use tallystone_counters::{CounterName, Events, NamespaceName, RollupSchedule};
use tallystone_link::{Clock, ScanPosition};
use tallystone_tests::{ClockShift, TestRedis, volatile};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const NS: &str = "ns";
/// The shortest that a namespace can have.
const EXPIRE_AFTER_MS: u64 = 600_000;

/// The namespace past the servers.
async fn store(house: &House) -> RedisNamespace {
    let namespaces = RedisNamespaces::connect(&volatile(&house.redis.url()), Clock::redis("counters", 0)).await;
    let namespaces = namespaces.expect("a connection to Redis");
    let name = NamespaceName::parse(NS).expect("a name");
    let namespace = namespaces.get(&name).await.expect("an answer").expect("a namespace");
    namespaces.open(&namespace).await.expect("its stores")
}

/// As a server does every few minutes: what is idle falls due.
async fn search(store: &RedisNamespace) {
    // It learns the store's time.
    store.tick(&[(CounterName::parse("kept").expect("a name"), 0)]).await.expect("a reply");
    for shard in 0..SHARDS {
        let (idle, _) = store.expiring(shard, ScanPosition::default()).await.expect("a page");
        let idle: Vec<_> = idle.into_iter().map(|counter| (counter, true)).collect();
        store.touch(&idle).await.expect("touched");
    }
}

async fn open(dir: &TempDir, house: &House, idle_ms: u64) -> LocalCounters {
    let mut options = LocalOptions::default();
    (options.push_interval_ms, options.pull_interval_ms) = (50, 50);
    (options.slots_max, options.idle_ms) = (64, idle_ms);
    LocalCounters::open(dir.path(), house.clients[0].clone(), options).await.expect("a folder")
}

/// Two counters expire at the service, and one is deleted there. Only what the service says makes a counter leave.
async fn leaves(counter_type: CounterType) {
    let shift = ClockShift::new();
    let house = House::on_any_clock(TestRedis::shifted(&shift).await).await;
    let config = namespace(counter_type);
    // An ACCURATE counter expires only if one bucket has all its events.
    let buckets_per_id = (counter_type == CounterType::Accurate).then_some(1);
    house.put(NS, NamespaceConfig { expire_after_ms: Some(EXPIRE_AFTER_MS), buckets_per_id, ..config }).await;
    let (store, dir) = (store(&house).await, TempDir::new().expect("a temporary folder"));
    let counters = open(&dir, &house, 3_600_000).await;
    let handle = |counter: &str| counters.counter(NS, counter).expect("room");
    let (kept, dropped, deleted) = (handle("kept"), handle("dropped"), handle("deleted"));
    let all = [(&kept, 5), (&dropped, 6), (&deleted, 7)];
    for (handle, count) in all {
        handle.add(count);
    }
    for (handle, count) in all {
        let is_expected = |entry: &CounterEntry| entry.count == count && entry.exact_to_ms > entry.last_write_ms;
        house.until_entry(NS, handle.counter(), is_expected).await;
    }
    // This pull returns counts that a rollup has computed.
    counters.pull().await.expect("a service that answers");
    for (handle, count) in all {
        let reading = until(async || handle.get(), |reading| reading.value == count).await;
        assert!(reading.error_bound.is_some(), "{reading:?}");
    }
    house.clients[0].delete(NS, NewClear::new("deleted")).await.expect("a deletion");
    until(async || deleted.get(), |reading| reading.value == 0).await;
    drop(deleted);
    until(async || counters.has(NS, "deleted"), |has| !has).await;

    shift.set_ms((EXPIRE_AFTER_MS + 60_000).cast_signed());
    let give_up_at = Instant::now() + SOON;
    while house.entry(NS, "kept").await.is_some() || house.entry(NS, "dropped").await.is_some() {
        assert!(Instant::now() < give_up_at, "it does not expire at the service");
        search(&store).await;
        sleep(POLL).await;
    }
    until(async || kept.get(), |reading| reading.value == 0).await;
    until(async || dropped.get(), |reading| reading.value == 0).await;
    assert!(counters.has(NS, "dropped"), "it has a handle");
    drop(dropped);
    until(async || counters.has(NS, "dropped"), |has| !has).await;
    assert!(counters.has(NS, "kept"), "it has a handle");
    drop(kept);
    counters.close().await.expect("nothing to push");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_an_eventual_counter_that_expires_or_is_deleted_at_the_service_leaves_the_folder() {
    leaves(CounterType::Eventual).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_an_accurate_counter_that_expires_or_is_deleted_at_the_service_leaves_the_folder() {
    leaves(CounterType::Accurate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l3_a_counter_that_is_not_used_leaves_the_folder_and_returns_with_its_count() {
    let house = House::without_rollups().await;
    house.put(NS, namespace(CounterType::Accurate)).await;
    let dir = TempDir::new().expect("a temporary folder");
    let counters = open(&dir, &house, 300).await;
    let handle = counters.counter(NS, "c").expect("room");
    handle.add(5);
    drop(handle);
    until(async || counters.has(NS, "c"), |has| !has).await;
    assert_eq!(house.count(1, NS, "c").await.count, 5, "it was pushed before it left");
    let handle = counters.counter(NS, "c").expect("room");
    handle.add(7);
    let reading = until(async || handle.get(), |reading| reading.error_bound == Some(0)).await;
    assert_eq!(reading.value, 12);
    drop(handle);
    counters.close().await.expect("a service that answers");
    assert_eq!(house.count(1, NS, "c").await.count, 12);
}
