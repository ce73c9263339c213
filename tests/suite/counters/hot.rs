//! Counters with many granules pending, the older of which stand apart from the record that adds write (N5).

use super::*;
use std::ops::Range;
use tallystone_counters::log::GRANULE_MS;
use tallystone_counters::{Closed, Settled, read};

/// All of a counter at one place, and open for long.
fn config() -> NamespaceConfig {
    NamespaceConfig { buckets_per_id: 1, accept_limit_ms: 60_000, ..NamespaceConfig::default() }
}

/// An add to each of these granules, in turn: of 1, 2, 4 …
async fn add_to_granules(place: &Place, numbers: Range<u64>) {
    for number in numbers {
        let event = add("c", &format!("t{number}"), place.now_ms(), 1 << number);
        assert_eq!(place.append_one(event).await, counted(place.now_ms()));
        place.pass(GRANULE_MS);
    }
}

/// What is pending, the latest granule first.
async fn sums(place: &Place) -> Vec<i64> {
    place.pending("c").await.iter().flat_map(|(_, pending)| &pending.granules).map(|granule| granule.sum).collect()
}

/// The fields that what is pending is in.
async fn fields(place: &Place) -> Vec<String> {
    let home = place.pending("c").await[0].0;
    let mut connection = place.redis.connection().await;
    let key = format!("tc:{{{}/{home}}}:pending", place.name);
    let mut fields: Vec<String> = redis::cmd("HKEYS").arg(key).query_async(&mut connection).await.expect("fields");
    fields.sort();
    fields
}

#[tokio::test]
async fn n5_a_hot_counter_is_whole_though_its_older_granules_stand_apart() {
    let mut place = Place::new("hot", config()).await;
    add_to_granules(&place, 0..5).await;
    assert_eq!(fields(&place).await, ["c"], "few granules are one record");
    add_to_granules(&place, 5..20).await;
    assert_eq!(fields(&place).await, ["\u{1}c", "c"]);
    let all: Vec<i64> = (0..20).rev().map(|number| 1 << number).collect();
    assert_eq!(sums(&place).await, all);
    assert_eq!(read::accurate(&place.store, &place.store, &[counter("c")]).await.expect("counts")[0].0, (1 << 20) - 1);
    for number in 0..20 {
        let event = add("c", &format!("t{number}"), NOON_MS + number * GRANULE_MS, 1 << number);
        assert_eq!(place.append_one(event).await, duplicate(NOON_MS + number * GRANULE_MS));
    }
    let listed = place.store.list("", 10).await.expect("a page").counters;
    assert!(listed.iter().all(|listed| listed.counter == counter("c")), "{listed:?}");
    // The last of it is out of its window, too.
    place.pass(2 * GRANULE_MS);
    assert_eq!(place.settled("c").await, (1 << 20) - 1);
    assert!(fields(&place).await.is_empty(), "nothing is left of it");
}

#[tokio::test]
async fn n5_an_add_to_a_granule_that_stands_apart_is_counted_there() {
    let place = Place::new("hot-late", config()).await;
    add_to_granules(&place, 0..20).await;
    let late_ms = NOON_MS + 3 * GRANULE_MS + 7;
    assert_eq!(place.append_one(add("c", "late", late_ms, 1 << 40)).await, counted(late_ms));
    let mut all: Vec<i64> = (0..20).rev().map(|number| 1 << number).collect();
    all[16] += 1 << 40;
    assert_eq!(sums(&place).await, all);
    assert_eq!(fields(&place).await, ["c"], "what was read as a whole is written as a whole");
    // And apart once more, behind granules that stand apart already.
    add_to_granules(&place, 20..40).await;
    let mut later: Vec<i64> = (20..40).rev().map(|number| 1 << number).collect();
    later.append(&mut all);
    assert_eq!((sums(&place).await, fields(&place).await.len()), (later, 2));
}

#[tokio::test]
async fn n7_a_rollup_takes_what_its_window_has_of_a_hot_counter_and_leaves_the_rest() {
    let mut place = Place::new("hot-window", NamespaceConfig { accept_limit_ms: 5_000, ..config() }).await;
    add_to_granules(&place, 0..30).await;
    // Ten granules and a skew ago.
    let rolled_up = place.roll_up("c").await;
    let settled = place.count("c").await;
    assert!(settled > 0 && (settled + 1).count_ones() == 1, "a beginning of 1 + 2 + 4 …: {rolled_up:?}");
    let left = sums(&place).await;
    assert!(left.len() >= 10 && left.last() == Some(&(settled + 1)), "{settled} and {left:?}");
    assert_eq!(settled + left.iter().sum::<i64>(), (1 << 30) - 1);
    assert_eq!(fields(&place).await, ["c"]);
    assert_eq!(place.settled("c").await, (1 << 30) - 1);
}

#[tokio::test]
async fn n2_a_hot_counter_is_closed_and_opened_with_its_older_granules() {
    let place = Place::new("hot-closed", config()).await;
    add_to_granules(&place, 0..20).await;
    let all = sums(&place).await;
    let closing = Settled { counter: counter("c"), to_ms: NOON_MS, closed: Closed::Up };
    place.store.close(&closing).await.expect("closed");
    assert_eq!(sums(&place).await, all);
    let now_ms = place.now_ms();
    assert_eq!(place.append_one(add("c", "up", now_ms, 1)).await, Err(Refusal::Overflow));
    // As many granules again, in the other direction: those stand apart, and the counter is closed as before.
    for number in 0..20 {
        assert_eq!(
            place.append_one(add("c", &format!("d{number}"), place.now_ms(), -1)).await,
            counted(place.now_ms())
        );
        place.pass(GRANULE_MS);
    }
    assert_eq!((sums(&place).await.len(), fields(&place).await.len()), (40, 2));
    assert_eq!(place.append_one(add("c", "up", place.now_ms(), 1)).await, Err(Refusal::Overflow));
    place.store.settle(&[Settled { closed: Closed::No, to_ms: NOON_MS + 1, ..closing }]).await.expect("opened");
    assert_eq!(place.append_one(add("c", "up", place.now_ms(), 1)).await, counted(place.now_ms()));
    assert_eq!(sums(&place).await.len(), 41);
}

#[tokio::test]
async fn n12_granules_that_stand_apart_keep_their_events_from_being_dropped() {
    let retention = NamespaceConfig {
        accept_limit_ms: 1_000,
        close_after_ms: 60_000,
        delete_after_ms: 61_000,
        seconds_per_bucket: 60,
        seconds_per_slice: 60,
        ..config()
    };
    let mut place = Place::new("hot-kept", retention).await;
    let home = place.pending("c").await[0].0;
    while place.store.prune(home).await.expect("an answer") > 0 {}
    add_to_granules(&place, 0..20).await;
    assert_eq!(fields(&place).await.len(), 2);
    // Their slice is past its retention.
    place.at(NOON_MS + 122_000);
    assert_eq!(place.store.prune(home).await, Ok(0));
    assert_eq!(sums(&place).await.len(), 20);
    assert_eq!(place.settled("c").await, (1 << 20) - 1);
    assert!(place.store.prune(home).await.expect("an answer") > 0);
}
