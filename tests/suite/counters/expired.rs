//! Counters that expire: without an event for `expire_after_ms` they are deleted (N14).

use super::interrupted::Stopped;
use super::*;
use tallystone_counters::Deletions;
use tallystone_counters::namespace::{Cardinality, CounterType};
use tallystone_counters::read::accurate;
use tallystone_link::ScanPosition;

const HOUR_MS: u64 = 3_600_000;
/// How far a rollup of a namespace with the default accept limit is behind the clock, at most.
const BEHIND_MS: u64 = 5_100 + 500;

fn config() -> NamespaceConfig {
    NamespaceConfig { expire_after_ms: HOUR_MS, ..NamespaceConfig::default() }
}

impl TestNamespace {
    /// The counters that a search finds idle.
    async fn idle(&self) -> Vec<CounterName> {
        let mut found = Vec::new();
        for shard in 0..SHARDS {
            let page = self.store.redis.expiring(shard, ScanPosition::default()).await;
            let (counters, next) = page.expect("a page");
            assert_eq!(next, None, "one page");
            found.extend(counters);
        }
        found
    }

    /// As a server does: what is found idle falls due, and what is due is rolled up.
    async fn search(&mut self) {
        let touched: Vec<_> = self.idle().await.into_iter().map(|name| (name, true)).collect();
        self.store.touch(&touched).await.expect("touched");
        for (name, _) in self.due(1_000).await {
            self.roll_up(name.as_str()).await;
        }
    }

    /// Whether it answers like one that was never written.
    async fn has_expired(&self, name: &str) -> bool {
        let page = self.store.redis.list("", 1_000).await.expect("a page");
        let is_listed = page.counters.iter().any(|listed| listed.counter.as_str() == name);
        let checkpoint = self.checkpoint(name).await;
        assert_eq!(checkpoint.is_deleted, !is_listed, "{checkpoint:?}");
        checkpoint.is_deleted && (checkpoint.count, checkpoint.shown_exact_to_ms()) == (0, 0)
    }
}

#[tokio::test]
async fn n14_a_counter_without_an_event_expires_and_begins_again_from_0() {
    let mut ns = TestNamespace::new("expires", config()).await;
    ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
    assert_eq!(ns.settled("c").await, 40);
    ns.at(NOON_MS + HOUR_MS + BEHIND_MS - 1);
    ns.search().await;
    assert!(!ns.has_expired("c").await, "too early");
    ns.pass(1);
    assert_eq!(ns.idle().await, [counter("c")]);
    ns.search().await;
    assert!(ns.has_expired("c").await);
    assert_eq!(ns.store.deleted_to(&counter("c")).await, Ok(Some(NOON_MS)), "its events are not listed");
    // It is found no more, and a rollup changes nothing.
    ns.pass(2 * HOUR_MS);
    assert_eq!(ns.idle().await, []);
    ns.roll_up("c").await;
    assert!(ns.has_expired("c").await);
    // The same add is known; another one counts from 0.
    assert_eq!(ns.append_one(add("c", "t", NOON_MS, 40)).await, duplicate(NOON_MS));
    ns.append_one(add_now("c", "u", 7)).await.expect("an add");
    assert_eq!(ns.settled("c").await, 7);
    assert!(!ns.has_expired("c").await);
}

#[tokio::test]
async fn n14_an_event_keeps_a_counter_and_a_clear_is_one() {
    let mut ns = TestNamespace::new("kept", config()).await;
    for (name, change) in [("added", Change::Add(0)), ("cleared", Change::Clear), ("idle", Change::Add(1))] {
        ns.append_one(add(name, "t", NOON_MS, 40)).await.expect("an add");
        if name != "idle" {
            ns.append_one(event(name, "u", NOON_MS + 1_000, change)).await.expect("an event");
        }
    }
    for name in ["added", "cleared", "idle"] {
        ns.settled(name).await;
    }
    ns.at(NOON_MS + HOUR_MS + BEHIND_MS);
    assert_eq!(ns.idle().await, [counter("idle")]);
    // A rollup of one that is not idle for long enough changes nothing either.
    for name in ["added", "cleared", "idle"] {
        ns.roll_up(name).await;
    }
    let mut expired = Vec::new();
    for name in ["added", "cleared", "idle"] {
        expired.push(ns.has_expired(name).await);
    }
    assert_eq!(expired, [false, false, true]);
    ns.pass(HOUR_MS);
    ns.search().await;
    assert!(ns.has_expired("added").await && ns.has_expired("cleared").await);
}

/// An add comes before any step of the rollup that decides: it is in the old count before the seal, and begins a new one
/// after it. Another rollup may decide meanwhile.
#[tokio::test]
async fn n14_an_add_during_the_decision_counts_in_one_of_two_lives() {
    for (step, is_rolled_up_meanwhile) in (0..4).flat_map(|step| [(step, false), (step, true)]) {
        let mut ns = TestNamespace::new("race", config()).await;
        ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
        assert_eq!(ns.settled("c").await, 40);
        ns.pass(2 * HOUR_MS);
        let (jobs, store) = ([ns.job(&counter("c"))], ns.store.clone());
        let later = ns.job(&counter("c"));
        let stopped = Stopped::after(step, &store);
        let add = async {
            if is_rolled_up_meanwhile {
                roll_up(&store, &store, &[later]).await.remove(0).expect("a rollup");
            }
            ns.append_one(add_now("c", "u", 7)).await.expect("an add");
        };
        stopped.meanwhile(roll_up(&stopped, &stopped, &jobs), add).await;
        let expected = if step < 2 && !is_rolled_up_meanwhile { 47 } else { 7 };
        assert_eq!(ns.settled("c").await, expected, "step {step}, {is_rolled_up_meanwhile}");
        assert!(!ns.has_expired("c").await);
    }
}

/// An accurate read and a conditional add see a counter before it expires, or after it: at each step of the rollup that decides,
/// a read that sees an add answers what later reads do (N11, N18).
#[tokio::test]
async fn n14_n11_n18_an_accurate_counter_expires_at_one_moment() {
    for step in 0..4 {
        let exact = NamespaceConfig { counter_type: CounterType::Accurate, buckets_per_id: 1, ..config() };
        let mut ns = TestNamespace::new("accurate", exact).await;
        ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
        assert_eq!(ns.settled("c").await, 40);
        ns.pass(2 * HOUR_MS);
        let (jobs, store) = ([ns.job(&counter("c"))], ns.store.clone());
        let stopped = Stopped::after(step, &store);
        let add = async {
            let bounds = Bounds { min: Some(0), ..Bounds::default() };
            let took = ns.append_one(NewEvent { bounds, ..add_now("c", "u", -30) }).await;
            let now = accurate(&ns.store, &ns.store, &[counter("c")]).await.expect("counts").remove(0).0;
            (took.is_ok(), now)
        };
        let (_, (took, seen)) = stopped.meanwhile(roll_up(&stopped, &stopped, &jobs), add).await;
        assert_eq!(seen, if took { 10 } else { 0 }, "step {step}");
        assert_eq!(ns.settled("c").await, seen, "step {step}");
        assert_eq!(took, step < 3, "step {step}: the add finds the counter until it has expired");
    }
}

#[tokio::test]
async fn n14_the_setting_applies_to_counters_that_are_there_and_not_without_it() {
    let mut ns = TestNamespace::new("set", NamespaceConfig { expire_after_ms: 0, ..config() }).await;
    ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
    ns.settled("c").await;
    ns.pass(100 * HOUR_MS);
    ns.roll_up("c").await;
    assert_eq!(ns.count("c").await, 40);
    ns.pass(1_000);
    ns.reconfigure(config()).await;
    ns.search().await;
    assert!(ns.has_expired("c").await);
    // A counter that was never written does not become a deleted one.
    ns.roll_up("never").await;
    assert_eq!(ns.store.deleted_to(&counter("never")).await, Ok(None));
}

#[tokio::test]
async fn n14_an_expired_counter_leaves_circulation() {
    let config = NamespaceConfig { cardinality: Cardinality::Low, ..config() };
    let mut ns = TestNamespace::new("low-expires", config).await;
    ns.append_one(add("c", "t", NOON_MS, 40)).await.expect("an add");
    ns.settled("c").await;
    ns.pass(HOUR_MS);
    for (name, _) in ns.due(1_000).await {
        ns.roll_up(name.as_str()).await;
    }
    assert!(ns.has_expired("c").await);
    ns.pass(HOUR_MS);
    assert_eq!(ns.due(1_000).await, []);
}
