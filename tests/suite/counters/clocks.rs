//! A store's clock that is wrong, for a moment or for good: limits follow it, fences stay (N6, N7, X6).

use super::*;

/// How wrong it is, in ms.
const WRONG_MS: u64 = 600_000;

/// Adds to "c", one after the other, with tokens of this time; how many of them counted.
async fn counted_at(ns: &TestNamespace, kind: &str, time_ms: u64) -> usize {
    let adds: Vec<NewEvent> = (0..64).map(|number| add("c", &format!("{kind}{number}"), time_ms, 1)).collect();
    ns.store.append(&adds).await.iter().filter(|answer| **answer == counted(time_ms)).count()
}

#[tokio::test]
async fn n6_a_clock_that_was_ahead_for_a_moment_refuses_nothing_afterwards() {
    let mut ns = TestNamespace::new("ahead", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
    ns.at(NOON_MS + WRONG_MS);
    // What happens meanwhile: an add without a time, polls, the clear of another counter.
    assert_eq!(ns.append_one(add_now("other", "t", 1)).await, counted(NOON_MS + WRONG_MS));
    ns.due(1_000).await;
    assert_eq!(ns.store.tick(&[(counter("cleared"), 0)]).await, Ok(vec![0]));
    assert_eq!(counted_at(&ns, "meanwhile", NOON_MS).await, 0, "it is too old by the store's clock");
    ns.at(NOON_MS + 1);
    assert_eq!(counted_at(&ns, "after", NOON_MS + 1).await, 64);
    assert_eq!(counted_at(&ns, "a second ahead", NOON_MS + 1_001).await, 64);
    assert_eq!(counted_at(&ns, "meanwhile", NOON_MS).await, 0, "what was refused as too old stays refused");
    // The next rollup is not late, and counts all but what has a time that is yet to come.
    ns.pass(60_000);
    ns.roll_up("c").await;
    assert_eq!(ns.count("c").await, 128);
}

#[tokio::test]
async fn n6_a_clock_that_is_set_back_takes_adds_by_its_own_time() {
    let mut ns = TestNamespace::new("back", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
    assert_eq!(counted_at(&ns, "before", NOON_MS).await, 64);
    assert_eq!(ns.settled("c").await, 64);
    let sealed_to_ms = ns.checkpoint("c").await.exact_to_ms;
    ns.set_back(WRONG_MS);
    let now_ms = ns.now_ms();
    assert_eq!(counted_at(&ns, "too early", now_ms + WRONG_MS).await, 0, "by the store's clock it is yet to come");
    assert_eq!(counted_at(&ns, "sealed", now_ms).await, 0, "it is in a rollup's span");
    // What happens when it is counted counts, behind the seal.
    assert_eq!(ns.append_one(add_now("c", "now", 1)).await, counted(sealed_to_ms));
    ns.at(now_ms + WRONG_MS);
    assert_eq!(counted_at(&ns, "too early", now_ms + WRONG_MS).await, 64, "the clock is right again");
    assert_eq!(ns.settled("c").await, 64 + 1 + 64);
}
