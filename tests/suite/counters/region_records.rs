//! Records of regions (N12): those of a region that was built again, those with a clear that is older than the namespace that merges
//! them, and those of checkpoints that are committed while an earlier one is published.

use super::regions::{DAY_MS, config, region};
use super::*;
use tallystone_counters::regions::{Followed, RegionRecord, follow_clear, global};
use tallystone_lua::counter::FIRST_AGE_MS_MAX;

/// The namespaces of a region, and the name of one of them.
fn namespaces_of(name: &str, redis: &TestRedis, clock_ms: &Arc<AtomicU64>) -> (RedisNamespaces, NamespaceName) {
    let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
    let namespace = NamespaceName::parse(format!("{name}-{:08x}", rand::random::<u32>())).expect("a namespace");
    (namespaces.with_region(Some(region(name))), namespace)
}

async fn put(namespaces: &RedisNamespaces, name: &NamespaceName, config: NamespaceConfig) -> RedisNamespace {
    let namespace = namespaces.put(name, config).await.expect("a namespace");
    namespaces.open(&namespace).await.expect("its stores")
}

/// Its registry knows nothing of the namespace that the others have records of.
#[tokio::test]
async fn n12_the_records_of_a_region_that_was_built_again_replace_those_of_before() {
    let ns = TestNamespace::with_regions("others").await;
    let (here, us, a) = (&ns.store.redis, region("us"), counter("a"));
    let merged = async |record: RegionRecord| {
        here.merge(&[(a.clone(), us.clone(), record)]).await.expect("merged");
        // Of eu, us and ap.
        here.known(std::slice::from_ref(&a)).await.expect("records").remove(0)[1].map(|record| record.count)
    };
    let before = RegionRecord { incarnation: 1, exact_to_ms: NOON_MS, count: 5, ..RegionRecord::default() };
    assert_eq!(merged(before).await, Some(5));
    let (redis, clock_ms) = (TestRedis::start().await, Arc::new(AtomicU64::new(NOON_MS)));
    let (namespaces, name) = namespaces_of("us", &redis, &clock_ms);
    let checkpoint = |count| Checkpoint { count, exact_to_ms: NOON_MS - 5_000, ..Checkpoint::default() };
    let store = put(&namespaces, &name, config()).await;
    let first = store.region_record(&checkpoint(2));
    assert_eq!(merged(first).await, Some(2));
    let store = put(&namespaces, &name, NamespaceConfig { coalesce_ms: 7, ..config() }).await;
    assert_eq!(store.region_record(&checkpoint(2)), first, "a change of the namespace hides nothing");
    // It is created again, in the same millisecond, and once more after the clock was set back.
    for (back_ms, count) in [(0, 3), (3_600_000, 4)] {
        clock_ms.fetch_sub(back_ms, Ordering::SeqCst);
        namespaces.delete(&name, None).await.expect("deleted");
        let store = put(&namespaces, &name, config()).await;
        assert_eq!(merged(store.region_record(&checkpoint(count))).await, Some(count));
    }
    assert_eq!(merged(first).await, Some(4), "a record that was on its way for long");
    // No registry knows where it comes from, as if an earlier version had created it.
    assert_eq!(here.region_record(&checkpoint(1)).incarnation, 0);
}

/// All that its count has was added after the clear, and nothing of that is missing.
#[tokio::test]
async fn n12_a_clear_that_is_older_than_the_namespace_is_followed_however_late_it_comes() {
    let (redis, clock_ms) = (TestRedis::shared().await, Arc::new(AtomicU64::new(NOON_MS)));
    let (namespaces, name) = namespaces_of("ap", &redis, &clock_ms);
    let (store, a) = (put(&namespaces, &name, config()).await, counter("a"));
    let add_and_roll_up = async |token: &str, delta, fencing_token| {
        let at_ms = clock_ms.load(Ordering::SeqCst);
        assert_eq!(store.append(&[add("a", token, at_ms, delta)]).await, [counted(at_ms)]);
        clock_ms.fetch_add(60_000, Ordering::SeqCst);
        let lease = LeaseOrder { leased_at_ms: NOON_MS, fencing_token };
        let done = roll_up(&store, &store, &[Job { counter: a.clone(), lease }]).await.remove(0);
        assert!(matches!(done, Ok(RolledUp::Committed { .. })), "{done:?}");
        store.read(std::slice::from_ref(&a)).await.expect("a checkpoint").remove(0)
    };
    let follow = async |cleared_ms| follow_clear(&store, &a, cleared_ms, || store.kept_from_ms()).await;
    add_and_roll_up("t", 5, 1).await;
    // Events are kept for seven days.
    let cleared_ms = NOON_MS - 8 * DAY_MS;
    let exact_to_ms = cleared_ms + 60_000;
    let of_eu = RegionRecord { cleared_ms, exact_to_ms, count: 3, ..RegionRecord::default() };
    assert_eq!(store.merge(&[(a.clone(), region("eu"), of_eu)]).await, Ok(1));
    assert_eq!(follow(cleared_ms).await, Ok(Followed::Done));
    let checkpoint = store.read(std::slice::from_ref(&a)).await.expect("a checkpoint").remove(0);
    assert_eq!((checkpoint.count, checkpoint.cleared_ms), (5, cleared_ms));
    let known = [(region("eu"), Some(of_eu)), (region("ap"), Some(store.region_record(&checkpoint)))];
    assert_eq!(global(&known).expect("a sum").count, 8);
    // Also when the namespace is older than the retention. A clear that is not older than the namespace needs its events.
    clock_ms.fetch_add(30 * DAY_MS, Ordering::SeqCst);
    assert_eq!(add_and_roll_up("u", 7, 2).await.count, 12);
    let cleared_ms = NOON_MS - DAY_MS;
    assert_eq!(follow(cleared_ms).await, Ok(Followed::Done));
    let checkpoint = store.read(std::slice::from_ref(&a)).await.expect("a checkpoint").remove(0);
    assert_eq!((checkpoint.count, checkpoint.cleared_ms), (12, cleared_ms));
    let kept_from_ms = store.kept_from_ms();
    assert_eq!(follow(NOON_MS - 1).await, Err(Refusal::EventsDropped { kept_from_ms }));
}

/// Its events may be from before the time that a wrong clock showed when it was created.
#[tokio::test]
async fn x6_n12_a_namespace_is_as_old_as_the_earliest_time_of_its_changes() {
    let (redis, clock_ms) = (TestRedis::shared().await, Arc::new(AtomicU64::new(NOON_MS)));
    let (namespaces, name) = namespaces_of("eu", &redis, &clock_ms);
    let first_ms = async |now_ms, coalesce_ms| {
        clock_ms.store(now_ms, Ordering::SeqCst);
        put(&namespaces, &name, NamespaceConfig { coalesce_ms, ..config() }).await.first_ms()
    };
    assert_eq!(first_ms(NOON_MS, 1).await, NOON_MS - FIRST_AGE_MS_MAX);
    assert_eq!(first_ms(NOON_MS - DAY_MS, 2).await, NOON_MS - DAY_MS - FIRST_AGE_MS_MAX);
    assert_eq!(first_ms(NOON_MS + DAY_MS, 3).await, NOON_MS - DAY_MS - FIRST_AGE_MS_MAX);
}

/// A counter that lacks something waits, but not with a checkpoint that is not published.
#[tokio::test]
async fn n12_a_checkpoint_that_is_committed_while_an_earlier_one_is_published_is_published_at_once() {
    let with_one_shard = NamespaceConfig { buckets_per_id: 1, ..config() };
    let mut ns = TestNamespace::new("meanwhile", with_one_shard).await;
    let store = ns.store.redis.clone();
    for name in ["lacks a rollup", "lacks a clear"] {
        let (of, added_ms, home) = (counter(name), ns.now_ms(), ns.pending(name).await[0].0);
        ns.append_one(add(name, "t", added_ms, 5)).await.expect("an add");
        assert_eq!(ns.settled(name).await, 5);
        let record = match name {
            "lacks a rollup" => RegionRecord { last_write_ms: added_ms + DAY_MS, ..RegionRecord::default() },
            _ => RegionRecord { cleared_ms: added_ms, ..RegionRecord::default() },
        };
        store.merge(&[(of.clone(), region("us"), record)]).await.expect("merged");
        let is_behind = async || store.behind(home, 10).await.expect("counters").contains(&of);
        let attend = async |published: Checkpoint| {
            let lacking = store.attend(home, &[(of.clone(), published)], 1_000, 600_000).await.expect("an answer");
            assert!(lacking[0].is_something(), "{lacking:?}");
        };
        let published = ns.checkpoint(name).await;
        assert!(is_behind().await);
        // A rollup commits before the record of the earlier checkpoint has arrived.
        ns.append_one(add(name, "u", ns.now_ms(), 2)).await.expect("an add");
        assert_eq!(ns.settled(name).await, 7);
        attend(published).await;
        assert!(is_behind().await, "{name}");
        attend(ns.checkpoint(name).await).await;
        assert!(!is_behind().await, "{name}");
    }
}
