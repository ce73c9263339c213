//! Where records stand, and that they are found there: long calls, many times, changed layouts of slots (N3, N5, N12).

use super::*;
use std::collections::BTreeMap;
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::read;

/// One shard for each counter: a burst is at one place.
fn narrow() -> NamespaceConfig {
    NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() }
}

fn burst(size: usize, time_ms: u64) -> Vec<NewEvent> {
    (0..size).map(|number| add("c", &format!("{size} {number}"), time_ms, 1)).collect()
}

async fn all_answer(store: &Compared, events: &[NewEvent], answer: Result<Appended, Refusal>) {
    for (event, actual) in events.iter().zip(store.append(events).await) {
        assert_eq!(actual, answer, "{event:?}");
    }
}

#[tokio::test]
async fn n5_thousands_of_events_in_one_call_are_counted_once() {
    let mut ns = TestNamespace::new("long", narrow()).await;
    // More than one script call takes, of one shard; each twice, far from each other and next to each other.
    let once: Vec<NewEvent> = (0..1_700).map(|number| add("c", &format!("t{number}"), NOON_MS, number)).collect();
    let twice = [once.clone(), once.iter().flat_map(|event| [event.clone(), event.clone()]).collect()].concat();
    let answers = ns.store.append(&twice).await;
    let mut counted_at: BTreeMap<&Token, usize> = BTreeMap::new();
    for (event, answer) in twice.iter().zip(&answers) {
        let answer = answer.as_ref().expect("counted, or there already");
        assert_eq!(answer.time_ms, NOON_MS);
        *counted_at.entry(&event.token).or_default() += usize::from(!answer.duplicate);
    }
    assert!(counted_at.len() == 1_700 && counted_at.values().all(|counted| *counted == 1), "{counted_at:?}");
    assert_eq!(ns.settled("c").await, 1_699 * 1_700 / 2);
}

#[tokio::test]
async fn n5_events_of_hundreds_of_buckets_of_time_are_counted_in_one_call() {
    let config = NamespaceConfig {
        seconds_per_bucket: 1,
        seconds_per_slice: 3_600,
        accept_limit_ms: 600_000,
        close_after_ms: 3_600_000,
        ..narrow()
    };
    let mut ns = TestNamespace::new("buckets", config).await;
    // There and back, so that a second call comes to buckets that the first one had.
    let times = (0..450_u64).chain((0..450).rev());
    let adds: Vec<NewEvent> =
        times.enumerate().map(|(number, s)| add("c", &format!("t{number}"), NOON_MS - s * 1_000, 1)).collect();
    for (event, answer) in adds.iter().zip(ns.store.append(&adds).await) {
        assert_eq!(answer, counted(event.time_ms.expect("a time")));
    }
    for (event, answer) in adds.iter().zip(ns.store.append(&adds).await) {
        assert_eq!(answer, duplicate(event.time_ms.expect("a time")));
    }
    assert_eq!(ns.events("c", (NOON_MS - 100_000) / WINDOW_MS).await.len(), 2);
    ns.pass(600_000);
    assert_eq!(ns.settled("c").await, 900);
}

#[tokio::test]
async fn n3_records_are_found_after_the_layout_of_slots_changes() {
    let mut ns = TestNamespace::new("layout-changed", narrow()).await;
    let (other, third) = (ns.server(&ns.config, 1).await, ns.server(&ns.config, 1).await);
    let (other, third) = (other.expect("its stores"), third.expect("its stores"));
    all_answer(&other, &[add("c", "other", NOON_MS, 1)], counted(NOON_MS)).await;
    // Each time more than 6 for each slot, each time in a later window; the other server learns it from the answers.
    let mut bursts = Vec::new();
    for (number, size) in [110, 210, 400, 800, 60].into_iter().enumerate() {
        let now_ms = ns.now_ms();
        // So far ahead as events may be, before the layout changes: it changes for later times only.
        let before: Vec<NewEvent> =
            (0..20).map(|event| add("c", &format!("{number} {event}"), now_ms + 1_000, 1)).collect();
        all_answer(&ns.store, &before, counted(now_ms + 1_000)).await;
        bursts.push((now_ms, burst(size, now_ms)));
        all_answer(&ns.store, &bursts[number].1, counted(now_ms)).await;
        // Some times have another layout than the current one.
        let ahead = add("c", &format!("ahead {number}"), now_ms + 1_000, 1);
        all_answer(&other, std::slice::from_ref(&ahead), counted(now_ms + 1_000)).await;
        all_answer(&ns.store, &[ahead], duplicate(now_ms + 1_000)).await;
        all_answer(&ns.store, &before, duplicate(now_ms + 1_000)).await;
        ns.pass(750);
    }
    assert_eq!(slots(&ns, "c").await, [16, 32, 64, 128, 256]);
    for (now_ms, burst) in &bursts {
        for store in [&ns.store, &other, &third] {
            all_answer(store, burst, duplicate(*now_ms)).await;
        }
        let mut expected: Vec<&Token> = burst.iter().map(|event| &event.token).collect();
        expected.sort();
        let found = ns.events("c", *now_ms / WINDOW_MS).await;
        let of_burst = found.iter().filter(|event| event.time_ms == *now_ms && expected.contains(&&event.token));
        assert_eq!(of_burst.map(|event| &event.token).collect::<Vec<&Token>>(), expected);
    }
    // A clear cuts a window of many slots in two: the sum of what came after it is found in all of them.
    let (now_ms, _) = bursts[3];
    all_answer(&other, &[event("c", "clear", now_ms - 1, Change::Clear)], counted(now_ms - 1)).await;
    all_answer(&other, &[add("c", "before", now_ms - 2, 1_000)], counted(now_ms - 2)).await;
    let names = [counter("c")];
    // Its burst, the last one, and the events ahead of the burst before it, of this burst and of the last one.
    let after = 800 + 60 + 3 * 21;
    assert_eq!(read::accurate(&third, &third, &names).await.expect("counts")[0].0, after);
    assert_eq!(ns.settled("c").await, after);
}

/// How many slots windows have, from one change to the next, in the home shard of a counter.
async fn slots(ns: &TestNamespace, name: &str) -> Vec<u16> {
    let pending = ns.store.redis.pending(&[counter(name)]).await.expect("what is pending");
    let (home, mut connection) = (pending[0][0].0, ns.redis.connection().await);
    let key = format!("tc:{{{}/{home}}}:layout", ns.name);
    let raw: Vec<u8> = redis::cmd("GET").arg(key).query_async(&mut connection).await.expect("a layout");
    // Of each the number of the first window in five bytes, and the number of slots in four.
    raw.chunks_exact(9).map(|entry| u16::from_be_bytes([entry[7], entry[8]])).collect()
}

#[tokio::test]
async fn n12_events_are_read_as_long_as_they_are_kept_whatever_the_layout_became() {
    let config = NamespaceConfig { close_after_ms: 60_000, delete_after_ms: 3_600_000, ..narrow() };
    let ns = TestNamespace::new("kept", config).await;
    // Their tokens are no longer looked up, but the events are kept.
    for size in [300, 600, 1_200] {
        all_answer(&ns.store, &burst(size, ns.now_ms()), counted(ns.now_ms())).await;
        ns.pass(600_000);
    }
    for (number, size) in [300, 600, 1_200].into_iter().enumerate() {
        assert_eq!(ns.events("c", (NOON_MS + 600_000 * number as u64) / WINDOW_MS).await.len(), size);
    }
}

#[tokio::test]
async fn n8_events_that_wait_for_their_rollup_are_summed_whatever_the_layout_became() {
    let config = NamespaceConfig {
        accept_limit_ms: 1_000,
        close_after_ms: 60_000,
        delete_after_ms: 61_000,
        seconds_per_bucket: 60,
        seconds_per_slice: 60,
        ..narrow()
    };
    let mut ns = TestNamespace::new("waits", config).await;
    // Slots are many, then; and a clear cuts the window in two, so that its records are read.
    all_answer(&ns.store, &burst(3_000, ns.now_ms()), counted(NOON_MS)).await;
    ns.pass(WINDOW_MS);
    let now_ms = ns.now_ms();
    all_answer(&ns.store, &[event("c", "clear", now_ms, Change::Clear)], counted(now_ms)).await;
    ns.pass(1);
    all_answer(&ns.store, &burst(40, now_ms + 1), counted(now_ms + 1)).await;
    // Long past their retention slots are laid out otherwise, and more than once.
    for size in [4_000, 9_000, 20_000] {
        ns.pass(200_000);
        all_answer(&ns.store, &burst(size, ns.now_ms()), counted(ns.now_ms())).await;
    }
    let all = 40 + 4_000 + 9_000 + 20_000;
    let names = [counter("c")];
    assert_eq!(read::accurate(&ns.store, &ns.store, &names).await.expect("counts")[0].0, all);
    let home = ns.pending("c").await[0].0;
    while ns.store.prune(home).await.expect("an answer") > 0 {}
    let clear_window = ns.events("c", NOON_MS / WINDOW_MS + 1).await;
    assert_eq!(clear_window.len(), 41, "nothing of what waits goes");
    assert_eq!(ns.settled("c").await, all);
    ns.pass(200_000);
    let layouts = slots(&ns, "c").await.len();
    while ns.store.prune(home).await.expect("an answer") > 0 {}
    ns.pass(700_000);
    all_answer(&ns.store, &burst(41_000, ns.now_ms()), counted(ns.now_ms())).await;
    assert!(slots(&ns, "c").await.len() < layouts, "entries that no record needs are dropped");
}

/// All that Redis holds of a namespace.
async fn saved(ns: &TestNamespace) -> Vec<(String, Vec<u8>)> {
    let mut connection = ns.redis.connection().await;
    let pattern = format!("tc:{{{}/*}}:*", ns.name);
    let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
    let mut saved = Vec::new();
    for key in keys {
        let dump: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut connection).await.expect("a value");
        saved.push((key, dump));
    }
    saved
}

/// Redis has lost all writes since then, as after a crash without an fsync for every write.
async fn lose_writes_since(ns: &TestNamespace, saved: &[(String, Vec<u8>)]) {
    let mut connection = ns.redis.connection().await;
    for (key, dump) in saved {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(0).arg(dump).arg("REPLACE").exec_async(&mut connection).await.expect("a value");
    }
}

#[tokio::test]
async fn n3_a_token_counts_once_though_the_store_lost_a_layout_and_another_has_taken_its_place() {
    let ns = TestNamespace::new("lost-layout", narrow()).await;
    let other = ns.server(&ns.config, 1).await.expect("its stores");
    // On Redis alone: the oracle loses nothing.
    let append = async |server: &Compared, events: &[NewEvent]| -> usize {
        let answers = server.redis.append(events).await.into_iter();
        answers.filter(|answer| answer.as_ref().is_ok_and(|appended| !appended.duplicate)).count()
    };
    assert_eq!(append(&ns.store, &burst(20, ns.now_ms())).await, 20);
    let before = saved(&ns).await;
    assert_eq!(append(&ns.store, &burst(110, ns.now_ms())).await, 110);
    assert_eq!(slots(&ns, "c").await, [16, 32]);
    // Its next call learns it.
    assert_eq!(append(&ns.store, &burst(1, ns.now_ms())).await, 1);
    lose_writes_since(&ns, &before).await;
    assert_eq!(append(&other, &burst(500, ns.now_ms())).await, 500);
    assert_eq!(slots(&ns, "c").await, [16, 128], "another layout than the one that was lost");
    // The one server retries what the other has added.
    ns.pass(1_000);
    let retried = burst(100, ns.now_ms());
    assert_eq!(append(&other, &retried).await, 100);
    assert_eq!(append(&ns.store, &retried).await, 0, "counted twice");
    assert_eq!(append(&other, &retried).await, 0);
}
