//! Conditional adds (N18). The random programs of `exactness` have them, too.

use super::*;
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::namespace::CounterType;
use tallystone_counters::read::accurate;
use tallystone_counters::{CheckpointUpdate, Commit, Deletions};
use tallystone_model::Applied;

const UNBOUNDED: Bounds = Bounds { min: None, max: None };

/// A namespace that allows bounds.
async fn stock() -> TestNamespace {
    let config =
        NamespaceConfig { counter_type: CounterType::Accurate, buckets_per_id: 1, ..NamespaceConfig::default() };
    TestNamespace::new("bounded", config).await
}

/// Takes one, if one is there.
fn take(token: &str, time_ms: Option<u64>) -> NewEvent {
    NewEvent { time_ms, bounds: Bounds { min: Some(0), max: None }, ..add("stock", token, 0, -1) }
}

fn reached(count: i64) -> Result<Appended, Refusal> {
    Err(Refusal::BoundReached { count })
}

impl TestNamespace {
    async fn accurate_count(&self) -> i64 {
        accurate(&self.store, &self.store, &[counter("stock")]).await.expect("a count")[0].0
    }
}

#[tokio::test]
async fn n18_an_add_passes_no_bound_in_its_direction_and_is_free_in_the_other() {
    let ns = stock().await;
    let now_ms = ns.now_ms();
    let bounded =
        |token: &str, delta, min, max| NewEvent { bounds: Bounds { min, max }, ..add_now("stock", token, delta) };
    for (event, expected) in [
        (bounded("1", 3, None, Some(3)), counted(now_ms)),
        (bounded("2", 1, None, Some(3)), reached(3)),
        (bounded("3", -4, Some(0), None), reached(3)),
        (bounded("4", -3, Some(0), None), counted(now_ms)),
        (bounded("5", -1, Some(0), Some(9)), reached(0)),
        // Below its bound by an add without one: it may come nearer, and not go further.
        (bounded("6", -5, None, None), counted(now_ms)),
        (bounded("7", 2, Some(0), None), counted(now_ms)),
        (bounded("8", 0, Some(0), None), counted(now_ms)),
        (bounded("9", -1, Some(0), None), reached(-3)),
        // An add above zero is not held against `min`, nor one below zero against `max`.
        (bounded("10", 1, Some(100), None), counted(now_ms)),
        (bounded("11", -1, None, Some(-100)), counted(now_ms)),
    ] {
        assert_eq!(ns.append_one(event.clone()).await, expected, "{event:?}");
    }
    assert_eq!(ns.accurate_count().await, -3);
}

#[tokio::test]
async fn n18_bounds_are_exact_to_the_last_unit_of_64_bits() {
    let ns = stock().await;
    let most = ns.config.pending_max();
    let add = |token: &str, delta, max| NewEvent {
        bounds: Bounds { min: None, max: Some(max) },
        ..add_now("stock", token, delta)
    };
    assert_eq!(ns.append_one(add("1", most - 2, most - 3)).await, reached(0));
    assert_eq!(ns.append_one(add("1", most - 2, most - 2)).await, counted(ns.now_ms()));
    assert_eq!(ns.append_one(add("2", 2, most - 1)).await, reached(most - 2));
    assert_eq!(ns.append_one(add("2", 1, most - 1)).await, counted(ns.now_ms()));
    assert_eq!(ns.append_one(add("3", 1, i64::MAX)).await, counted(ns.now_ms()));
    assert_eq!(ns.append_one(add("4", 1, i64::MAX)).await, Err(Refusal::Overflow), "and those of the counter stand");
}

#[tokio::test]
async fn n18_a_retry_is_answered_as_before_and_a_refused_one_may_count_later() {
    let mut ns = stock().await;
    let now_ms = ns.now_ms();
    assert_eq!(ns.append_one(take("a", Some(now_ms))).await, reached(0));
    assert_eq!(ns.append_one(add("stock", "restock", now_ms, 1)).await, counted(now_ms));
    assert_eq!(ns.append_one(take("a", Some(now_ms))).await, counted(now_ms));
    assert_eq!(ns.append_one(take("a", Some(now_ms))).await, Ok(Appended { time_ms: now_ms, duplicate: true }));
    assert_eq!(ns.append_one(take("b", Some(now_ms))).await, reached(0));
    let without = NewEvent { bounds: UNBOUNDED, ..take("a", Some(now_ms)) };
    assert_eq!(ns.append_one(without).await, Ok(Appended { time_ms: now_ms, duplicate: true }), "the same event");
    // The same when it is rolled up.
    ns.pass(30_000);
    ns.roll_up("stock").await;
    assert_eq!(ns.append_one(take("a", Some(now_ms))).await, Ok(Appended { time_ms: now_ms, duplicate: true }));
    assert_eq!(ns.append_one(take("c", None)).await, reached(0), "the checkpoint is in the count");
}

#[tokio::test]
async fn n18_items_of_a_call_are_held_against_those_before_them() {
    let ns = stock().await;
    let at = ns.now_ms();
    let items = [
        take("1", Some(at)),
        add("stock", "restock", at, 2),
        take("2", Some(at)),
        take("2", Some(at)),
        add("stock", "broken", at, -1),
        take("3", Some(at)),
        event("stock", "stocktaking", at, Change::Clear),
        // A clear removes what is at its time, so nothing can be taken there.
        take("4", Some(at)),
        add("stock", "delivery", at + 1, 1),
        take("5", Some(at + 1)),
        take("6", Some(at + 1)),
    ];
    let duplicate = Ok(Appended { time_ms: at, duplicate: true });
    let expected = [
        reached(0),
        counted(at),
        counted(at),
        duplicate,
        counted(at),
        reached(0),
        counted(at),
        Err(Refusal::TooOld),
        counted(at + 1),
        counted(at + 1),
        reached(0),
    ];
    assert_eq!(ns.store.append(&items).await, expected);
    assert_eq!(ns.accurate_count().await, 0);
}

#[tokio::test]
async fn n18_a_clear_counts_wherever_it_is_among_the_adds() {
    let mut ns = stock().await;
    // Behind the clock, in a window that has time buckets before and after it.
    let window_ms = NOON_MS - WINDOW_MS;
    let at = |offset| window_ms + offset;
    for (event, time_ms) in [
        (add("stock", "before", at(10), 5), at(10)),
        (add("stock", "behind", at(30), 7), at(30)),
        (add("stock", "far behind", at(31), -300), at(31)),
        (add("stock", "wide", at(32), 1 << 53), at(32)),
        (add("stock", "wide", at(33), -(1 << 53)), at(33)),
        // The last of all divides the window.
        (event("stock", "clear", at(20), Change::Clear), at(20)),
        (add("stock", "late, and removed", at(19), 1_000), at(19)),
        (add("other", "of another counter", at(40), 1_000), at(40)),
        (add("stock", "much", at(40), 294), at(40)),
    ] {
        assert_eq!(ns.append_one(event.clone()).await, counted(time_ms), "{event:?}");
    }
    assert_eq!(ns.accurate_count().await, 1);
    // In a call that reads and writes the same slots.
    let items =
        [take("1", Some(at(41))), take("2", Some(at(42))), add("stock", "one more", at(43), 1), take("3", None)];
    let expected = [counted(at(41)), reached(0), counted(at(43)), counted(ns.now_ms())];
    assert_eq!(ns.store.append(&items).await, expected);
    assert_eq!(ns.append_one(take("2", Some(at(42)))).await, reached(0));
    assert_eq!(ns.append_one(take("4", Some(at(20)))).await, Err(Refusal::TooOld), "it would be removed");
    assert_eq!(ns.settled("stock").await, 0);
}

#[tokio::test]
async fn n18_what_happens_now_waits_for_a_clear_that_is_ahead_of_the_clock() {
    let ns = stock().await;
    let ahead_ms = ns.now_ms() + 800;
    assert_eq!(ns.append_one(event("stock", "clear", ahead_ms, Change::Clear)).await, counted(ahead_ms));
    assert_eq!(ns.append_one(add("stock", "1", ahead_ms + 1, 1)).await, counted(ahead_ms + 1));
    let refused = ns.append_one(take("2", None)).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{refused:?}");
    ns.at(ahead_ms + 1);
    assert_eq!(ns.append_one(take("2", None)).await, counted(ahead_ms + 1));
    assert_eq!(ns.append_one(take("3", None)).await, reached(0));
}

#[tokio::test]
async fn n18_what_is_committed_and_not_settled_counts_once() {
    let mut ns = stock().await;
    assert_eq!(ns.append_one(add("stock", "1", ns.now_ms(), 2)).await, counted(ns.now_ms()));
    ns.pass(30_000);
    // A rollup that dies before it settles.
    let job = ns.job(&counter("stock"));
    let before = ns.checkpoint("stock").await;
    let sealed = ns.store.seal(&[counter("stock")]).await.expect("sealed").remove(0);
    let after = Checkpoint { count: 2, exact_to_ms: sealed.sealed_to_ms, lease: job.lease, ..before };
    let update = CheckpointUpdate { counter: counter("stock"), before, after };
    assert_eq!(ns.store.commit(&[update]).await, Ok(vec![Commit::Done]));
    assert!(!ns.pending("stock").await[0].1.windows.is_empty());
    let answers = ns.store.append(&[take("a", None), take("b", None), take("c", None)]).await;
    assert_eq!(answers, [counted(ns.now_ms()), counted(ns.now_ms()), reached(0)]);
    assert_eq!(ns.settled("stock").await, 0);
}

#[tokio::test]
async fn n18_many_windows_that_wait_are_all_in_the_count() {
    let ns = stock().await;
    // More than the field of a counter has: the older ones go to a second field.
    for number in 0..40 {
        ns.pass(WINDOW_MS);
        assert_eq!(ns.append_one(add_now("stock", &number.to_string(), 1)).await, counted(ns.now_ms()));
    }
    let takes: Vec<NewEvent> = (0..41).map(|number| take(&format!("take {number}"), None)).collect();
    let answers = ns.store.append(&takes).await;
    assert_eq!((&answers[..40], &answers[40]), (&vec![counted(ns.now_ms()); 40][..], &reached(0)));
}

#[tokio::test]
async fn n18_n14_a_deleted_counter_begins_at_zero() {
    let ns = stock().await;
    assert_eq!(ns.append_one(add("stock", "1", ns.now_ms(), 9)).await, counted(ns.now_ms()));
    let clear = event("stock", "deletion", ns.now_ms(), Change::Clear);
    assert_eq!(ns.append_one(clear).await, counted(ns.now_ms()));
    assert_eq!(ns.store.delete(&counter("stock"), ns.now_ms()).await, Ok(()));
    ns.pass(1);
    assert_eq!(ns.append_one(take("2", None)).await, reached(0));
    assert_eq!(ns.append_one(add_now("stock", "3", 1)).await, counted(ns.now_ms()));
    assert_eq!(ns.append_one(take("4", None)).await, counted(ns.now_ms()));
    assert_eq!(ns.append_one(take("5", None)).await, reached(0));
}

#[tokio::test]
async fn n18_a_namespace_whose_counts_no_script_knows_refuses_bounds() {
    let kinds = [(CounterType::Accurate, 2, true), (CounterType::Eventual, 1, true), (CounterType::Accurate, 1, false)];
    for (counter_type, buckets_per_id, is_refused) in kinds {
        let config = NamespaceConfig { counter_type, buckets_per_id, ..NamespaceConfig::default() };
        let ns = TestNamespace::new("unbounded", config).await;
        let refused = ns.append_one(take("1", None)).await.expect_err("nothing is there");
        assert_eq!(matches!(refused, Refusal::Invalid { field: "min", .. }), is_refused, "{refused:?}");
    }
}
