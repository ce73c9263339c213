//! A namespace that was written under a clock that was ahead is set back to the clock, and no count changes (X6, N3, N8).

use super::late::Archived;
use super::*;
use std::time::Duration;
use tallystone_counters::redis::ClockAhead;
use tallystone_counters::{Deletions, Events, read};

const WRONG_MS: u64 = 600_000;
const COUNTERS: usize = 60;

/// A namespace that was used while its clock was ahead.
struct Ahead {
    namespaces: RedisNamespaces,
    name: NamespaceName,
    clock_ms: Arc<AtomicU64>,
    /// A server that does not know of a reset.
    old: RedisNamespace,
    counters: Vec<CounterName>,
    /// What was added with a token, at a time ahead.
    added: NewEvent,
    _redis: Arc<TestRedis>,
}

impl Ahead {
    async fn new(test: &str) -> Ahead {
        let redis = TestRedis::shared().await;
        let client = redis::Client::open(redis.url()).expect("an address");
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS + WRONG_MS));
        let namespaces = RedisNamespaces::new(client, ReplicaWait::default(), Clock::Test(clock_ms.clone()));
        let name = NamespaceName::parse(format!("{test}-{:08x}", rand::random::<u32>())).expect("a name");
        let namespace = namespaces.put(&name, NamespaceConfig::default()).await.expect("a namespace");
        let old = namespaces.open(&namespace).await.expect("its stores");
        let counters: Vec<CounterName> = (0..COUNTERS).map(|number| counter(&format!("c{number}"))).collect();
        let added = add("c0", "with a token", NOON_MS + WRONG_MS, 100);
        let ahead = Ahead { namespaces, name, clock_ms, old, counters, added, _redis: redis };
        assert!(ahead.old.append(std::slice::from_ref(&ahead.added)).await[0].is_ok());
        ahead.add_to_all("rolled up", 5).await;
        ahead.clock_ms.fetch_add(20_000, Ordering::SeqCst);
        let lease = LeaseOrder { leased_at_ms: ahead.clock_ms.load(Ordering::SeqCst), fencing_token: 9 };
        let jobs: Vec<Job> = ahead.counters.iter().map(|counter| Job { counter: counter.clone(), lease }).collect();
        assert!(
            roll_up(&ahead.old, &ahead.old, &jobs)
                .await
                .iter()
                .all(|done| matches!(done, Ok(RolledUp::Committed { .. })))
        );
        // What no rollup has counted: adds, and the clears of every third counter with an add behind it.
        ahead.add_to_all("pending", 7).await;
        ahead.clock_ms.fetch_add(1, Ordering::SeqCst);
        let clears = ahead.counters.iter().step_by(3).map(|counter| NewEvent {
            counter: counter.clone(),
            token: token("clear"),
            time_ms: None,
            change: Change::Clear,
            bounds: Bounds::default(),
            labels: Labels::default(),
        });
        assert!(ahead.old.append(&clears.collect::<Vec<_>>()).await.iter().all(Result::is_ok));
        ahead.clock_ms.fetch_add(1, Ordering::SeqCst);
        ahead.add_to_all("behind the clear", 1).await;
        // The clock is right again.
        ahead.clock_ms.store(NOON_MS + 30_000, Ordering::SeqCst);
        ahead
    }

    async fn add_to_all(&self, token: &str, delta: i64) {
        let adds: Vec<NewEvent> = self.counters.iter().map(|counter| add_now(counter.as_str(), token, delta)).collect();
        assert!(self.old.append(&adds).await.iter().all(Result::is_ok));
    }

    async fn counts(&self) -> Vec<i64> {
        let counts = read::accurate(&self.old, &self.old, &self.counters).await.expect("counts");
        counts.into_iter().map(|(count, _)| count).collect()
    }

    fn expected() -> Vec<i64> {
        let sum = |number: usize| if number.is_multiple_of(3) { 1 } else { 13 };
        (0..COUNTERS).map(sum).collect()
    }

    /// It works by the clock as it is: adds count, rollups count them, retries are found.
    async fn assert_right(&self) {
        assert_eq!(self.counts().await, Ahead::expected());
        assert_eq!(self.namespaces.clock_ahead(&self.name).await, Ok(ClockAhead::default()));
        let namespace = self.namespaces.get(&self.name).await.expect("an answer").expect("the namespace");
        let store = self.namespaces.open(&namespace).await.expect("its stores");
        self.clock_ms.fetch_add(1_000, Ordering::SeqCst);
        let now_ms = self.clock_ms.load(Ordering::SeqCst);
        for counter in &self.counters {
            assert_eq!(store.append(&[add(counter.as_str(), "now", now_ms, 2)]).await, [counted(now_ms)]);
        }
        let again = store.append(std::slice::from_ref(&self.added)).await;
        assert_eq!(again, [duplicate(NOON_MS + WRONG_MS)], "a retry of what counted at a time ahead");
        self.clock_ms.fetch_add(60_000, Ordering::SeqCst);
        let lease = LeaseOrder { leased_at_ms: now_ms, fencing_token: 1 };
        let jobs: Vec<Job> = self.counters.iter().map(|counter| Job { counter: counter.clone(), lease }).collect();
        for done in roll_up(&store, &store, &jobs).await {
            assert!(matches!(done, Ok(RolledUp::Committed { .. })), "{done:?}");
        }
        let counts = store.read(&self.counters).await.expect("checkpoints").into_iter().map(|after| after.count);
        assert!(counts.eq(Ahead::expected().into_iter().map(|count| count + 2)));
        let first = self.old.append(&[add("c0", "late", now_ms, 1)]).await;
        assert_eq!(first, [Err(Refusal::Stale)], "a server of before the reset");
    }
}

#[tokio::test]
async fn x6_a_reset_sets_a_namespace_back_to_the_clock_and_changes_no_count() {
    let ahead = Ahead::new("reset").await;
    let now_ms = ahead.clock_ms.load(Ordering::SeqCst);
    assert_eq!(ahead.counts().await, Ahead::expected());
    assert_eq!(ahead.old.append(&[add("c0", "before", now_ms, 1)]).await, [Err(Refusal::TooOld)]);
    let found = ahead.namespaces.clock_ahead(&ahead.name).await.expect("an answer");
    assert!(found.ahead_ms > WRONG_MS - 60_000 && !found.is_reserved, "{found:?}");
    ahead.namespaces.reset_clock(&ahead.name).await.expect("a reset");
    ahead.assert_right().await;
    let unknown = NamespaceName::parse("unknown").expect("a name");
    let refused = ahead.namespaces.reset_clock(&unknown).await;
    assert!(matches!(refused, Err(Refusal::NamespaceNotFound { .. })), "{refused:?}");
}

#[tokio::test]
async fn x6_a_reset_that_dies_anywhere_can_be_made_again() {
    let ahead = Ahead::new("dies").await;
    let mut deaths = 0;
    // Each try gets a little further: a dropped future stops at any of its calls, as a process that dies.
    while tokio::time::timeout(Duration::from_micros(300 * deaths), ahead.namespaces.reset_clock(&ahead.name))
        .await
        .map(|done| done.expect("a reset"))
        .is_err()
    {
        deaths += 1;
        assert_eq!(ahead.counts().await, Ahead::expected(), "after {deaths} deaths");
        let namespace = ahead.namespaces.get(&ahead.name).await.expect("an answer").expect("the namespace");
        let is_reserved = ahead.namespaces.clock_ahead(&ahead.name).await.expect("an answer").is_reserved;
        if is_reserved {
            let opened = ahead.namespaces.open(&namespace).await.err();
            assert_eq!(opened, Some(Refusal::Stale), "no server follows it meanwhile");
        }
    }
    assert!(deaths > 5, "{deaths}");
    ahead.assert_right().await;
}

/// The deletion is repeated after the reset, whose clock is not there yet.
#[tokio::test]
async fn x6_n14_a_deletion_at_a_time_ahead_removes_nothing_that_is_added_after_a_reset() {
    let ahead = Ahead::new("reset-deleted").await;
    let (right_ms, deleted_ms) = (ahead.clock_ms.load(Ordering::SeqCst), NOON_MS + WRONG_MS + 60_000);
    let name = counter("c1");
    let deletion = [event("c1", "deletion", deleted_ms, Change::Clear)];
    ahead.clock_ms.store(deleted_ms, Ordering::SeqCst);
    assert_eq!(ahead.old.append(&deletion).await, [counted(deleted_ms)]);
    assert_eq!(ahead.old.delete(&name, deleted_ms).await, Ok(()));
    // It is not written again.
    let gone = counter("c2");
    assert_eq!(ahead.old.append(&[event("c2", "deletion", deleted_ms, Change::Clear)]).await, [counted(deleted_ms)]);
    assert_eq!(ahead.old.delete(&gone, deleted_ms).await, Ok(()));
    ahead.clock_ms.store(right_ms, Ordering::SeqCst);
    ahead.namespaces.reset_clock(&ahead.name).await.expect("a reset");
    let namespace = ahead.namespaces.get(&ahead.name).await.expect("an answer").expect("the namespace");
    let store = ahead.namespaces.open(&namespace).await.expect("its stores");
    let added_ms = ahead.clock_ms.fetch_add(1_000, Ordering::SeqCst) + 1_000;
    assert_eq!(store.append(&[add("c1", "now", added_ms, 2)]).await, [counted(added_ms)]);
    assert_eq!(store.append(&deletion).await, [duplicate(deleted_ms)]);
    let refused = store.delete(&name, deleted_ms).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { .. })), "{refused:?}");
    let counts = read::accurate(&store, &store, std::slice::from_ref(&name)).await.expect("counts");
    assert_eq!(counts[0].0, 2);
    let hidden_to_ms = store.deleted_to(&name).await.expect("an answer").expect("a deleted counter");
    assert!(hidden_to_ms < added_ms, "events up to {hidden_to_ms} are not listed");
    assert!(store.read(&[gone]).await.expect("a checkpoint")[0].is_deleted);
}

/// The reset counts to the time ahead. A counter that had no event until then would expire.
#[tokio::test]
async fn x6_n14_a_reset_expires_no_counter() {
    let (redis, clock_ms) = (TestRedis::shared().await, Arc::new(AtomicU64::new(NOON_MS)));
    let namespaces = RedisNamespaces::new(redis.source(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
    let name = NamespaceName::parse(format!("reset-idle-{:08x}", rand::random::<u32>())).expect("a name");
    let config = NamespaceConfig { expire_after_ms: 600_000, ..NamespaceConfig::default() };
    let namespace = namespaces.put(&name, config.clone()).await.expect("a namespace");
    let store = namespaces.open(&namespace).await.expect("its stores");
    assert_eq!(store.append(&[add("idle", "t", NOON_MS, 5)]).await, [counted(NOON_MS)]);
    clock_ms.store(NOON_MS + 60_000, Ordering::SeqCst);
    let lease = LeaseOrder { leased_at_ms: NOON_MS, fencing_token: 1 };
    let done = roll_up(&store, &store, &[Job { counter: counter("idle"), lease }]).await.remove(0);
    assert!(matches!(done, Ok(RolledUp::Committed { .. })), "{done:?}");
    let ahead_ms = NOON_MS + 3_600_000;
    clock_ms.store(ahead_ms, Ordering::SeqCst);
    assert_eq!(store.append(&[add("ahead", "t", ahead_ms, 7)]).await, [counted(ahead_ms)]);
    // The clock is right again.
    clock_ms.store(NOON_MS + 120_000, Ordering::SeqCst);
    namespaces.reset_clock(&name).await.expect("a reset");
    let namespace = namespaces.get(&name).await.expect("an answer").expect("the namespace");
    assert_eq!(namespace.config, config, "later rollups let its counters expire");
    let store = namespaces.open(&namespace).await.expect("its stores");
    let found = store.read(&[counter("idle"), counter("ahead")]).await.expect("checkpoints");
    let counts: Vec<(i64, bool)> = found.iter().map(|found| (found.count, found.is_deleted)).collect();
    assert_eq!(counts, [(5, false), (7, false)]);
}

/// The log would have times again that are archived, and what it then archives of them would replace what was there.
#[tokio::test]
async fn x6_n15_a_reset_of_a_namespace_whose_archive_is_ahead_is_refused() {
    let archived = Archived::with_one_add().await;
    archived.clock_ms.store(NOON_MS - 600_000, Ordering::SeqCst);
    let refused = archived.namespaces.reset_clock(&archived.name).await;
    assert!(matches!(refused, Err(Refusal::Invalid { field: "namespace", .. })), "{refused:?}");
    let ahead = archived.namespaces.clock_ahead(&archived.name).await.expect("an answer");
    assert!(ahead.ahead_ms > 600_000 && !ahead.is_reserved, "nothing has begun: {ahead:?}");
    // The clock has reached what is archived, though not yet what was sealed.
    archived.clock_ms.store(NOON_MS + 60_000, Ordering::SeqCst);
    archived.namespaces.reset_clock(&archived.name).await.expect("a reset");
    archived.clock_ms.fetch_add(1_000, Ordering::SeqCst);
    assert_eq!(archived.add("old", NOON_MS).await, duplicate(NOON_MS));
    let now_ms = archived.clock_ms.load(Ordering::SeqCst);
    assert_eq!(archived.add("new", now_ms).await, counted(now_ms));
}
