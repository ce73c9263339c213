//! Where events are and when they go, on a clock that the test moves: buckets_per_id, seconds_per_bucket,
//! seconds_per_slice and delete_after_ms (N1, N5, N12).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::namespace::SHARDS;
use tallystone_counters::redis::{RedisNamespace, RedisNamespaces};
use tallystone_counters::{
    Bounds, Change, Checkpoints, CounterName, Events, Job, Labels, LeaseOrder, NamespaceConfig, NamespaceName,
    NewEvent, Refusal, RolledUp, RollupLog, Token, roll_up,
};
use tallystone_link::{Clock, ReplicaWait};
use tallystone_tests::TestRedis;

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;

struct TestNamespace {
    redis: Arc<TestRedis>,
    name: NamespaceName,
    store: RedisNamespace,
    clock_ms: Arc<AtomicU64>,
}

impl TestNamespace {
    async fn new(test: &str, config: NamespaceConfig) -> TestNamespace {
        let redis = TestRedis::shared().await;
        let name = NamespaceName::parse(format!("{test}-{:08x}", rand::random::<u32>())).expect("a name");
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
        let client = redis::Client::open(redis.url()).expect("an address");
        let namespaces = RedisNamespaces::new(client, ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let namespace = namespaces.put(&name, config).await.expect("a namespace");
        let store = namespaces.open(&namespace).await.expect("its stores");
        TestNamespace { redis, name, store, clock_ms }
    }

    fn at(&self, ms: u64) {
        self.clock_ms.store(ms, Ordering::SeqCst);
    }

    async fn add(&self, counter: &CounterName, tokens: std::ops::Range<u32>, time_ms: u64) {
        let change = Change::Add(1);
        let event = |number: u32| {
            let token = Token::parse(number.to_string()).expect("a token");
            let (counter, time_ms) = (counter.clone(), Some(time_ms));
            let (bounds, labels) = (Bounds::default(), Labels::default());
            NewEvent { counter, token, time_ms, change, bounds, labels }
        };
        for result in self.store.append(&tokens.map(event).collect::<Vec<_>>()).await {
            result.expect("an add");
        }
    }

    async fn roll_up(&self, counter: &CounterName) {
        let lease = LeaseOrder { leased_at_ms: self.clock_ms.load(Ordering::SeqCst), fencing_token: 1 };
        let job = Job { counter: counter.clone(), lease };
        let results = roll_up(&self.store, &self.store, &[job]).await;
        assert!(matches!(results[0], Ok(RolledUp::Committed { .. })), "{results:?}");
    }

    async fn prune(&self) -> u64 {
        let mut dropped = 0;
        for shard in 0..SHARDS {
            dropped += self.store.prune(shard).await.expect("an answer");
        }
        dropped
    }

    async fn events(&self, counter: &CounterName, time_ms: u64) -> usize {
        let window = time_ms / WINDOW_MS;
        self.store.scan(counter, window..window + 1, usize::MAX).await.expect("events").events.len()
    }

    /// The hashes in which there are events.
    async fn buckets(&self) -> BTreeSet<String> {
        let mut connection = self.redis.connection().await;
        let pattern = format!("tc:{{{}/*}}:events:*", self.name);
        let found: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
        found.into_iter().collect()
    }
}

fn counter() -> CounterName {
    CounterName::parse("c").expect("a counter")
}

#[tokio::test]
async fn n5_buckets_per_id_spreads_one_counter_over_so_many_shards() {
    for buckets_per_id in [1, 4, 8] {
        let ns = TestNamespace::new("spread", NamespaceConfig { buckets_per_id, ..NamespaceConfig::default() }).await;
        ns.add(&counter(), 0..200, NOON_MS).await;
        let pending = ns.store.pending(&[counter()]).await.expect("what is pending").remove(0);
        let shards = pending.iter().filter(|(_, pending)| !pending.windows.is_empty()).count();
        assert_eq!((shards, ns.buckets().await.len()), (buckets_per_id.into(), buckets_per_id.into()));
    }
}

#[tokio::test]
async fn n1_seconds_per_bucket_is_how_much_time_is_in_one_place() {
    for (seconds_per_bucket, expected) in [(1, 10), (5, 2), (60, 1)] {
        let config = NamespaceConfig {
            seconds_per_bucket,
            seconds_per_slice: 60,
            buckets_per_id: 1,
            accept_limit_ms: 60_000,
            ..NamespaceConfig::default()
        };
        let ns = TestNamespace::new("buckets", config).await;
        for second in 0..10 {
            ns.add(&counter(), 0..2, NOON_MS - 60_000 + second * 1_000).await;
        }
        assert_eq!(ns.buckets().await.len(), expected, "{seconds_per_bucket}");
    }
}

fn slices_of(seconds_per_slice: u64) -> NamespaceConfig {
    NamespaceConfig {
        seconds_per_bucket: 60,
        seconds_per_slice,
        close_after_ms: 60_000,
        delete_after_ms: 120_000,
        ..NamespaceConfig::default()
    }
}

#[tokio::test]
async fn n12_events_go_a_slice_at_a_time_when_all_of_it_is_past_delete_after() {
    for slice_s in [60, 600] {
        let ns = TestNamespace::new("slices", slices_of(slice_s)).await;
        let (first_ms, slice_end_ms) = (NOON_MS + 500, NOON_MS + slice_s * 1_000);
        ns.add(&counter(), 0..50, first_ms).await;
        ns.at(slice_end_ms + 10_000);
        ns.add(&counter(), 50..70, slice_end_ms + 10_000).await;
        ns.at(slice_end_ms + 20_000);
        ns.roll_up(&counter()).await;

        ns.at(slice_end_ms + 120_000 - 1);
        ns.prune().await;
        assert_eq!(ns.events(&counter(), first_ms).await, 50, "of {slice_s} s: a moment too early");
        ns.at(slice_end_ms + 120_000);
        assert!(ns.prune().await > 0);
        assert_eq!(ns.events(&counter(), first_ms).await, 0, "of {slice_s} s");
        // The next slice has its time yet.
        assert_eq!(ns.events(&counter(), slice_end_ms + 10_000).await, 20);
        ns.at(slice_end_ms + slice_s * 1_000 + 120_000);
        assert!(ns.prune().await > 0);
        assert_eq!(ns.buckets().await, BTreeSet::new());
        // The count has no need of them.
        assert_eq!(ns.store.read(&[counter()]).await.expect("a checkpoint")[0].count, 70);
    }
}

#[tokio::test]
async fn n12_events_that_are_not_rolled_up_stay_however_old_they_are() {
    let ns = TestNamespace::new("kept", slices_of(60)).await;
    ns.add(&counter(), 0..50, NOON_MS + 500).await;
    for hours in 1..4 {
        ns.at(NOON_MS + hours * 3_600_000);
        ns.prune().await;
        assert_eq!(ns.events(&counter(), NOON_MS + 500).await, 50, "after {hours} hours");
    }
    ns.roll_up(&counter()).await;
    ns.prune().await;
    assert_eq!(ns.buckets().await, BTreeSet::new());
    assert_eq!(ns.store.read(&[counter()]).await.expect("a checkpoint")[0].count, 50);
}

#[tokio::test]
async fn n12_a_counter_that_cannot_be_rolled_up_keeps_its_own_events_and_no_others() {
    let ns = TestNamespace::new("blocked", NamespaceConfig { buckets_per_id: 1, ..slices_of(600) }).await;
    let (stuck, other) = (counter(), same_shard(&ns).await);
    // In one bucket of time with what is rolled up, and in the middle of a slice.
    ns.at(NOON_MS + 130_000);
    ns.add(&stuck, 0..30, NOON_MS + 130_000).await;
    for minute in 0..30 {
        let now_ms = NOON_MS + 140_000 + minute * 60_000;
        ns.at(now_ms);
        ns.add(&other, minute as u32 * 10..minute as u32 * 10 + 10, now_ms).await;
    }
    ns.at(NOON_MS + 3_600_000);
    ns.roll_up(&other).await;
    assert!(ns.prune().await > 0);
    assert_eq!(ns.buckets().await.len(), 1, "{:?}", ns.buckets().await);
    assert_eq!(ns.events(&stuck, NOON_MS + 130_000).await, 30, "what waits is kept, and read");
    assert_eq!(ns.events(&other, NOON_MS + 200_000).await, 0);
    // Their tokens are no longer looked up, as those of all events so old.
    let late = NewEvent {
        counter: stuck.clone(),
        token: Token::parse("1").expect("a token"),
        time_ms: Some(NOON_MS + 130_000),
        change: Change::Add(1),
        bounds: Bounds::default(),
        labels: Labels::default(),
    };
    assert_eq!(ns.store.append(&[late]).await, [Err(Refusal::TokenExpired)]);
    // Nothing more comes of it until the rollup; then it goes, too.
    assert_eq!((ns.prune().await, ns.buckets().await.len()), (0, 1));
    ns.roll_up(&stuck).await;
    assert_eq!(ns.store.read(std::slice::from_ref(&stuck)).await.expect("a checkpoint")[0].count, 30);
    ns.prune().await;
    assert_eq!(ns.buckets().await, BTreeSet::new());
    assert_eq!(ns.events(&stuck, NOON_MS + 130_000).await, 0);
}

/// Another counter in the shard of "c".
async fn same_shard(ns: &TestNamespace) -> CounterName {
    let home = ns.store.pending(&[counter()]).await.expect("what is pending")[0][0].0;
    for number in 0..1_000 {
        let name = CounterName::parse(format!("other {number}")).expect("a name");
        if ns.store.pending(std::slice::from_ref(&name)).await.expect("what is pending")[0][0].0 == home {
            return name;
        }
    }
    panic!("no counter of shard {home}")
}
