//! Counters that are deleted, at any moment of a rollup (N14).

use super::interrupted::{Dying, Last, Stopped};
use super::*;
use tallystone_counters::Deletions;
use tallystone_counters::namespace::Cardinality;
use tallystone_counters::read::accurate;
use tallystone_lua::counter::{CounterScript, CounterShardKeys};

const HOUR_MS: u64 = 3_600_000;

fn clear(name: &str, text: &str, time_ms: u64) -> NewEvent {
    event(name, text, time_ms, Change::Clear)
}

impl TestNamespace {
    /// As the service deletes a counter.
    async fn delete(&self, name: &str, text: &str, time_ms: u64) -> Appended {
        let cleared = self.append_one(clear(name, text, time_ms)).await.expect("a clear");
        self.store.delete(&counter(name), cleared.time_ms).await.expect("a deletion");
        cleared
    }

    async fn accurate(&self, name: &str) -> i64 {
        accurate(&self.store, &self.store, &[counter(name)]).await.expect("a count")[0].0
    }

    /// Whether the counter answers like one that was never written.
    async fn is_gone(&self, name: &str) -> bool {
        let checkpoint = self.checkpoint(name).await;
        (checkpoint.count, checkpoint.shown_exact_to_ms(), self.accurate(name).await) == (0, 0, 0)
    }

    async fn listed(&self) -> Vec<String> {
        let page = self.store.redis.list("", 1_000).await.expect("a page");
        let mut names: Vec<String> = page.counters.into_iter().map(|listed| listed.counter.to_string()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn n14_a_deleted_counter_answers_like_one_never_written_until_it_is_written_again() {
    let mut ns = TestNamespace::new("deleted", NamespaceConfig::default()).await;
    ns.append_one(add("c", "early", NOON_MS, 40)).await.expect("an add");
    assert_eq!(ns.settled("c").await, 40);
    let now_ms = ns.now_ms();
    ns.append_one(add("c", "late", now_ms, 2)).await.expect("an add");
    ns.delete("c", "deletion", now_ms).await;
    assert!(ns.is_gone("c").await);
    assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(Some(now_ms)));
    assert!(ns.listed().await.is_empty());
    // Adds that were accepted before are known; one that is accepted now happened before the deletion.
    assert_eq!(ns.append_one(add("c", "early", NOON_MS, 40)).await, duplicate(NOON_MS));
    assert_eq!(ns.append_one(add("c", "late", now_ms, 2)).await, duplicate(now_ms));
    for time_ms in [now_ms, now_ms - 1, now_ms - 4_000] {
        assert_eq!(ns.append_one(add("c", "other", time_ms, 100)).await, counted(time_ms));
    }
    assert!(ns.is_gone("c").await && ns.listed().await.is_empty());
    for _ in 0..2 {
        assert_eq!(ns.settled("c").await, 0);
        assert!(ns.is_gone("c").await && ns.listed().await.is_empty());
        assert!(ns.pending("c").await.iter().all(|(_, pending)| pending.windows.is_empty()));
    }
    let again_ms = ns.now_ms();
    ns.append_one(add("c", "again", again_ms, 3)).await.expect("an add");
    assert_eq!((ns.accurate("c").await, ns.listed().await), (3, vec!["c".to_owned()]));
    assert_eq!(ns.settled("c").await, 3);
    assert_eq!(ns.listed().await, ["c"]);
    // The deletion once more: it is known, and what was added since stays.
    assert!(ns.delete("c", "deletion", now_ms).await.duplicate);
    assert_eq!((ns.accurate("c").await, ns.count("c").await), (3, 3));
    assert!(!ns.checkpoint("c").await.is_deleted);
}

/// The deletion comes while a rollup is stopped before any of its steps.
#[tokio::test]
async fn n14_a_rollup_that_began_before_a_deletion_writes_nothing_back() {
    for (step, was_rolled_up, is_rolled_up_again) in
        (0..5).flat_map(|step| [(step, false, false), (step, true, false), (step, false, true), (step, true, true)])
    {
        let mut ns = TestNamespace::new("fenced", NamespaceConfig::default()).await;
        ns.append_one(add("c", "early", NOON_MS, 40)).await.expect("an add");
        if was_rolled_up {
            assert_eq!(ns.settled("c").await, 40);
        }
        let begin_ms = ns.now_ms();
        ns.append_one(add("c", "late", begin_ms, 2)).await.expect("an add");
        ns.pass(20_000);
        let (jobs, store) = ([ns.job(&counter("c"))], ns.store.clone());
        let later = ns.job(&counter("c"));
        let stopped = Stopped::after(step, &store);
        let deletion = async {
            ns.delete("c", "deletion", ns.now_ms()).await;
            assert!(ns.is_gone("c").await);
            if is_rolled_up_again {
                ns.pass(20_000);
                roll_up(&store, &store, &[later]).await.remove(0).expect("a rollup");
            }
        };
        stopped.meanwhile(roll_up(&stopped, &stopped, &jobs), deletion).await;
        assert!(ns.is_gone("c").await, "step {step}, {was_rolled_up}, {is_rolled_up_again}");
        assert_eq!(ns.settled("c").await, 0);
        assert!(ns.is_gone("c").await, "step {step}, {was_rolled_up}, {is_rolled_up_again}");
    }
}

/// The mark of a deleted counter goes with its events; a rollup that hung since before the deletion is refused then.
#[tokio::test]
async fn n14_a_rollup_that_hung_for_a_week_writes_nothing_back() {
    let config = NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("week", config).await;
    for name in ["c", "d"] {
        ns.append_one(add(name, "t", NOON_MS, 40)).await.expect("an add");
    }
    ns.pass(20_000);
    let (jobs, store) = ([ns.job(&counter("c"))], ns.store.clone());
    // Before its commit.
    let stopped = Stopped::after(2, &store);
    let later = ns.job(&counter("c"));
    let other = ns.job(&counter("d"));
    let week = async {
        let deleted_ms = ns.now_ms();
        ns.delete("c", "deletion", deleted_ms).await;
        ns.pass(20_000);
        roll_up(&store, &store, &[later, other]).await;
        ns.pass(ns.config.delete_after_ms - HOUR_MS);
        prune(&ns).await;
        assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(Some(deleted_ms)), "its events may still be there");
        for _ in 0..2 {
            ns.pass(ns.config.seconds_per_slice * 1_000 + 2 * HOUR_MS);
            prune(&ns).await;
        }
        assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(None));
        assert_eq!(ns.checkpoint("c").await, Checkpoint::default());
        assert_eq!(ns.count("d").await, 40, "a counter that was not deleted stays");
    };
    let (result, ()) = stopped.meanwhile(roll_up(&stopped, &stopped, &jobs), week).await;
    assert_eq!(result, [Ok(RolledUp::Lost)]);
    assert_eq!(ns.checkpoint("c").await, Checkpoint::default());
}

async fn prune(ns: &TestNamespace) {
    for shard in 0..SHARDS {
        ns.store.prune(shard).await.expect("pruned");
    }
}

/// A counter that was written again before its mark goes keeps its checkpoint.
#[tokio::test]
async fn n14_a_counter_that_was_written_again_stays_when_its_mark_goes() {
    let mut ns = TestNamespace::new("again", NamespaceConfig::default()).await;
    ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
    ns.delete("c", "deletion", NOON_MS).await;
    ns.pass(20_000);
    ns.append_one(add("c", "u", ns.now_ms(), 7)).await.expect("an add");
    assert_eq!(ns.settled("c").await, 7);
    ns.pass(2 * ns.config.delete_after_ms);
    prune(&ns).await;
    prune(&ns).await;
    assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(None));
    assert_eq!(ns.count("c").await, 7);
}

/// A server has read that the mark may go; the counter is deleted once more before it goes.
#[tokio::test]
async fn n14_a_mark_that_was_renewed_meanwhile_stays() {
    let ns = TestNamespace::new("renewed", NamespaceConfig::default()).await;
    ns.delete("c", "deletion", NOON_MS).await;
    ns.delete("c", "again", NOON_MS + 1_000).await;
    let mut connection = ns.redis.connection().await;
    for shard in 0..SHARDS {
        let keys = CounterShardKeys::new(ns.name.as_str(), shard).home();
        let mut forget = redis::cmd("EVAL");
        forget.arg(CounterScript::Forget.source()).arg(keys.len()).arg(&keys[..]).arg(NOON_MS);
        forget.arg(ns.revision).arg(NOON_MS).arg("c");
        forget.exec_async(&mut connection).await.expect("a reply");
    }
    assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(Some(NOON_MS + 1_000)));
    assert!(ns.checkpoint("c").await.is_deleted);
}

/// The process dies between the clear and the mark, or the reply of either is lost; a rollup runs before the repetition.
#[tokio::test]
async fn n14_a_deletion_that_died_halfway_is_finished_by_its_repetition() {
    for is_rolled_up_between in [false, true] {
        let mut ns = TestNamespace::new("halfway", NamespaceConfig::default()).await;
        ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
        ns.append_one(clear("c", "deletion", NOON_MS + 1)).await.expect("a clear");
        if is_rolled_up_between {
            assert_eq!(ns.settled("c").await, 0);
            assert!(!ns.checkpoint("c").await.is_deleted);
        }
        assert!(ns.delete("c", "deletion", NOON_MS + 1).await.duplicate);
        assert!(ns.is_gone("c").await && ns.listed().await.is_empty());
        assert_eq!(ns.settled("c").await, 0);
        assert!(ns.is_gone("c").await && ns.listed().await.is_empty());
    }
}

/// The mark is ahead of the seals for as long as the accept limit. Rollups meanwhile do not hold up what is added then.
#[tokio::test]
async fn n14_what_is_added_behind_a_deletion_is_counted_when_it_is_due() {
    let config =
        NamespaceConfig { accept_limit_ms: 30_000, coalesce_ms: 0, buckets_per_id: 1, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("meanwhile", config).await;
    ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
    ns.pass(30_000);
    ns.delete("c", "deletion", NOON_MS + 30_000).await;
    ns.append_one(add("c", "u", NOON_MS + 30_001, 7)).await.expect("an add");
    let due_ms = NOON_MS + 30_500 + 30_100;
    while ns.count("c").await != 7 {
        assert!(ns.now_ms() <= due_ms, "due at {due_ms}, and not counted yet: {:?}", ns.checkpoint("c").await);
        ns.pass(500);
        for (name, _) in ns.due(5_000).await {
            ns.roll_up(name.as_str()).await;
        }
    }
}

/// A rollup of a deleted counter hangs before it settles, until the counter was written again.
#[tokio::test]
async fn n14_a_counter_that_was_written_again_stays_in_circulation() {
    let config = NamespaceConfig { cardinality: Cardinality::Low, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("alive", config).await;
    ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
    ns.delete("c", "deletion", NOON_MS).await;
    ns.pass(20_000);
    let (jobs, store) = ([ns.job(&counter("c"))], ns.store.clone());
    let stopped = Stopped::after(3, &store);
    let again = async {
        ns.append_one(add_now("c", "u", 7)).await.expect("an add");
        assert_eq!(ns.settled("c").await, 7);
    };
    let (rolled_up, ()) = stopped.meanwhile(roll_up(&stopped, &stopped, &jobs), again).await;
    assert!(matches!(rolled_up[..], [Ok(RolledUp::Committed { .. })]), "{rolled_up:?}");
    ns.pass(60_000);
    let due: Vec<String> = ns.due(1_000).await.into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(due, ["c"]);
}

/// A rollup has settled the home shards only, and died. No other one runs until the events have gone.
#[tokio::test]
async fn n14_a_mark_stays_while_something_of_its_counter_is_pending() {
    let mut ns = TestNamespace::new("unsettled", NamespaceConfig::default()).await;
    let names: Vec<String> = (0..16).map(|number| format!("c{number}")).collect();
    let narrow = ns.narrow(1).await;
    for name in &names {
        for number in 0..16 {
            ns.append_one(add(name, &format!("t{number}"), NOON_MS, 1)).await.expect("an add");
        }
        ns.delete(name, "deletion", NOON_MS + 1).await;
    }
    ns.pass(20_000);
    let jobs: Vec<Job> = names.iter().map(|name| ns.job(&counter(name))).collect();
    let store = ns.store.clone();
    // The steps are read, seal, commit and settle.
    let dying = Dying::new(&store, &narrow, 4, Last::InPart);
    roll_up(&dying, &dying, &jobs).await;
    for _ in 0..2 {
        ns.pass(ns.config.delete_after_ms + ns.config.seconds_per_slice * 1_000 + 2 * HOUR_MS);
        prune(&ns).await;
        prune(&ns).await;
    }
    for name in &names {
        assert_eq!(ns.settled(name).await, 0, "{name}");
        assert!(ns.is_gone(name).await, "{name}");
    }
    prune(&ns).await;
    for name in &names {
        assert_eq!(ns.store.deleted_to(&counter(name)).await, Ok(None), "{name}");
        assert_eq!(ns.checkpoint(name).await, Checkpoint::default());
    }
}

/// A rollup of a deleted counter dies at any of its steps; the next one leaves nothing behind.
#[tokio::test]
async fn n14_a_rollup_of_a_deleted_counter_may_die_anywhere() {
    for (calls, last) in (1..6).flat_map(|calls| [Last::Lost, Last::InPart, Last::Unheard].map(|last| (calls, last))) {
        let mut ns = TestNamespace::new("dying", NamespaceConfig::default()).await;
        ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
        ns.delete("c", "deletion", NOON_MS + 1).await;
        ns.append_one(add("c", "u", NOON_MS + 2, 5)).await.expect("an add");
        ns.append_one(add("d", "t", NOON_MS, 40)).await.expect("an add");
        ns.delete("d", "deletion", NOON_MS + 1).await;
        ns.pass(20_000);
        let jobs = [ns.job(&counter("c")), ns.job(&counter("d"))];
        let (store, narrow) = (ns.store.clone(), ns.narrow(1).await);
        let dying = Dying::new(&store, &narrow, calls, last);
        roll_up(&dying, &dying, &jobs).await;
        assert_eq!((ns.settled("c").await, ns.settled("d").await), (5, 0), "{calls} {last:?}");
        assert!(ns.is_gone("d").await && ns.listed().await == ["c"], "{calls} {last:?}");
    }
}

#[tokio::test]
async fn n14_a_deleted_counter_leaves_circulation() {
    let config = NamespaceConfig { cardinality: Cardinality::Low, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("low", config).await;
    for name in ["c", "d"] {
        ns.append_one(add(name, "t", NOON_MS, 40)).await.expect("an add");
    }
    ns.delete("c", "deletion", NOON_MS).await;
    ns.settled("c").await;
    ns.settled("d").await;
    ns.pass(60_000);
    let due: Vec<String> = ns.due(1_000).await.into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(due, ["d"]);
}
