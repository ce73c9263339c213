//! Counters with many windows pending, the older of which are in a second field that adds do not write (N5).

use super::*;
use std::ops::Range;
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::{Closed, Settlement, read};

/// All of a counter at one place, and open for long.
fn config() -> NamespaceConfig {
    NamespaceConfig { buckets_per_id: 1, accept_limit_ms: 60_000, ..NamespaceConfig::default() }
}

/// An add to each of these windows, in turn: of 1, 2, 4 …
async fn add_to_windows(ns: &TestNamespace, numbers: Range<u64>) {
    for number in numbers {
        let event = add("c", &format!("t{number}"), ns.now_ms(), 1 << number);
        assert_eq!(ns.append_one(event).await, counted(ns.now_ms()));
        ns.pass(WINDOW_MS);
    }
}

/// What is pending, the latest window first.
async fn sums(ns: &TestNamespace) -> Vec<i64> {
    ns.pending("c").await.iter().flat_map(|(_, pending)| &pending.windows).map(|window| window.sum).collect()
}

/// The fields that what is pending is in.
async fn fields(ns: &TestNamespace) -> Vec<String> {
    let home = ns.pending("c").await[0].0;
    let mut connection = ns.redis.connection().await;
    let key = format!("tc:{{{}/{home}}}:pending", ns.name);
    let mut fields: Vec<String> = redis::cmd("HKEYS").arg(key).query_async(&mut connection).await.expect("fields");
    fields.sort();
    fields
}

#[tokio::test]
async fn n5_a_hot_counter_is_complete_with_its_older_windows_in_a_second_field() {
    let mut ns = TestNamespace::new("hot", config()).await;
    add_to_windows(&ns, 0..5).await;
    assert_eq!(fields(&ns).await, ["c"], "few windows are one record");
    add_to_windows(&ns, 5..20).await;
    assert_eq!(fields(&ns).await, ["\u{1}c", "c"]);
    let all: Vec<i64> = (0..20).rev().map(|number| 1 << number).collect();
    assert_eq!(sums(&ns).await, all);
    assert_eq!(read::accurate(&ns.store, &ns.store, &[counter("c")]).await.expect("counts")[0].0, (1 << 20) - 1);
    for number in 0..20 {
        let event = add("c", &format!("t{number}"), NOON_MS + number * WINDOW_MS, 1 << number);
        assert_eq!(ns.append_one(event).await, duplicate(NOON_MS + number * WINDOW_MS));
    }
    let listed = ns.store.redis.list("", 10).await.expect("a page").counters;
    assert!(listed.iter().all(|listed| listed.counter == counter("c")), "{listed:?}");
    // The last of it is out of its window, too.
    ns.pass(2 * WINDOW_MS);
    assert_eq!(ns.settled("c").await, (1 << 20) - 1);
    assert!(fields(&ns).await.is_empty(), "nothing is left of it");
}

#[tokio::test]
async fn n5_an_add_to_a_window_in_the_second_field_is_counted_there() {
    let ns = TestNamespace::new("hot-late", config()).await;
    add_to_windows(&ns, 0..20).await;
    let late_ms = NOON_MS + 3 * WINDOW_MS + 7;
    assert_eq!(ns.append_one(add("c", "late", late_ms, 1 << 40)).await, counted(late_ms));
    let mut all: Vec<i64> = (0..20).rev().map(|number| 1 << number).collect();
    all[16] += 1 << 40;
    assert_eq!(sums(&ns).await, all);
    assert_eq!(fields(&ns).await, ["c"], "what was read as a whole is written as a whole");
    // And into the second field once more, after windows that are there already.
    add_to_windows(&ns, 20..40).await;
    let mut later: Vec<i64> = (20..40).rev().map(|number| 1 << number).collect();
    later.append(&mut all);
    assert_eq!((sums(&ns).await, fields(&ns).await.len()), (later, 2));
}

#[tokio::test]
async fn n7_a_rollup_takes_what_its_window_has_of_a_hot_counter_and_leaves_the_rest() {
    let mut ns = TestNamespace::new("hot-window", NamespaceConfig { accept_limit_ms: 5_000, ..config() }).await;
    add_to_windows(&ns, 0..30).await;
    // Ten windows and a skew ago.
    let rolled_up = ns.roll_up("c").await;
    let settled = ns.count("c").await;
    assert!(settled > 0 && (settled + 1).count_ones() == 1, "a beginning of 1 + 2 + 4 …: {rolled_up:?}");
    let left = sums(&ns).await;
    assert!(left.len() >= 10 && left.last() == Some(&(settled + 1)), "{settled} and {left:?}");
    assert_eq!(settled + left.iter().sum::<i64>(), (1 << 30) - 1);
    assert_eq!(fields(&ns).await, ["c"]);
    assert_eq!(ns.settled("c").await, (1 << 30) - 1);
}

#[tokio::test]
async fn n2_a_hot_counter_is_closed_and_opened_with_its_older_windows() {
    let ns = TestNamespace::new("hot-closed", config()).await;
    add_to_windows(&ns, 0..20).await;
    let all = sums(&ns).await;
    let (to_ms, closed) = (NOON_MS, Closed::Up);
    let (last_write_ms, is_deleted, idle_shards) = (to_ms, false, Vec::new());
    let closing = Settlement { counter: counter("c"), to_ms, closed, last_write_ms, is_deleted, idle_shards };
    ns.store.close(&closing).await.expect("closed");
    assert_eq!(sums(&ns).await, all);
    let now_ms = ns.now_ms();
    assert_eq!(ns.append_one(add("c", "up", now_ms, 1)).await, Err(Refusal::Overflow));
    // As many windows again, in the other direction: those go to the second field, and the counter is closed as before.
    for number in 0..20 {
        assert_eq!(ns.append_one(add("c", &format!("d{number}"), ns.now_ms(), -1)).await, counted(ns.now_ms()));
        ns.pass(WINDOW_MS);
    }
    assert_eq!((sums(&ns).await.len(), fields(&ns).await.len()), (40, 2));
    assert_eq!(ns.append_one(add("c", "up", ns.now_ms(), 1)).await, Err(Refusal::Overflow));
    ns.store.settle(&[Settlement { closed: Closed::No, to_ms: NOON_MS + 1, ..closing }]).await.expect("opened");
    assert_eq!(ns.append_one(add("c", "up", ns.now_ms(), 1)).await, counted(ns.now_ms()));
    assert_eq!(sums(&ns).await.len(), 41);
}

#[tokio::test]
async fn n12_windows_in_the_second_field_keep_their_events_from_being_dropped() {
    let retention = NamespaceConfig {
        accept_limit_ms: 1_000,
        close_after_ms: 60_000,
        delete_after_ms: 61_000,
        seconds_per_bucket: 60,
        seconds_per_slice: 60,
        ..config()
    };
    let mut ns = TestNamespace::new("hot-kept", retention).await;
    let home = ns.pending("c").await[0].0;
    while ns.store.prune(home).await.expect("an answer") > 0 {}
    add_to_windows(&ns, 0..20).await;
    assert_eq!(fields(&ns).await.len(), 2);
    // Their slice is past its retention.
    ns.at(NOON_MS + 122_000);
    assert!(ns.store.prune(home).await.expect("an answer") > 0);
    assert_eq!(sums(&ns).await.len(), 20);
    let window = NOON_MS / tallystone_counters::log::WINDOW_MS;
    assert_eq!(ns.events("c", window).await.len(), 1, "it waits for its rollup");
    assert_eq!(ns.settled("c").await, (1 << 20) - 1);
    ns.store.prune(home).await.expect("an answer");
    assert_eq!(ns.events("c", window).await, []);
}
