//! The range of a counter, and the tokens of its events: one rule each, where a random program would seldom come.

use super::interrupted::{Dying, Last, Stopped};
use super::*;
use tallystone_counters::Settlement;
use tallystone_counters::log::{Closed, WINDOW_MS};

#[tokio::test]
async fn n3_a_token_counts_once_through_any_server_and_long_after_its_rollup() {
    let mut ns = TestNamespace::new("token", NamespaceConfig::default()).await;
    let (other, once) = (ns.server(&ns.config, 1).await.expect("its stores"), add("c", "t", NOON_MS, 5));
    assert_eq!(ns.append_one(once.clone()).await, counted(NOON_MS));
    assert_eq!(other.append(&[once.clone(), once.clone()]).await, [duplicate(NOON_MS), duplicate(NOON_MS)]);
    assert_eq!(ns.append_one(add("c", "t", NOON_MS, 6)).await, Err(Refusal::TokenConflict));
    assert_eq!(ns.append_one(event("c", "t", NOON_MS, Change::Clear)).await, Err(Refusal::TokenConflict));
    assert_eq!(ns.append_one(add("d", "t", NOON_MS, 6)).await, counted(NOON_MS), "of another counter");
    assert_eq!(ns.append_one(add("c", "t", NOON_MS + 1, 7)).await, counted(NOON_MS + 1), "at another time");
    assert_eq!(ns.settled("c").await, 12);
    assert_eq!(ns.append_one(once.clone()).await, duplicate(NOON_MS), "a late retry of what counted");
    assert_eq!(ns.append_one(add("c", "u", NOON_MS, 5)).await, Err(Refusal::TooOld), "and of what did not");
    ns.pass(ns.config.close_after_ms);
    assert_eq!(ns.append_one(once).await, Err(Refusal::TokenExpired));
    assert_eq!(ns.settled("c").await, 12);
}

#[tokio::test]
async fn n8_a_commit_under_an_earlier_lease_is_lost() {
    let mut ns = TestNamespace::new("lease", NamespaceConfig::default()).await;
    let name = counter("c");
    let (early, late) = ([ns.job(&name)], [ns.job(&name)]);
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    ns.pass(60_000);
    assert!(matches!(*roll_up(&ns.store, &ns.store, &late).await, [Ok(RolledUp::Committed { .. })]));
    ns.pass(60_000);
    assert_eq!(roll_up(&ns.store, &ns.store, &early).await, [Ok(RolledUp::Lost)]);
    assert!(matches!(*roll_up(&ns.store, &ns.store, &late).await, [Ok(RolledUp::Committed { .. })]));
}

#[tokio::test]
async fn n3_too_old_is_true_for_ever() {
    let mut ns = TestNamespace::new("ever", NamespaceConfig::default()).await;
    ns.pass(5_500);
    let old = add("c", "t", NOON_MS, 1);
    assert_eq!(ns.append_one(old.clone()).await, Err(Refusal::TooOld));
    ns.at(NOON_MS);
    assert_eq!(ns.append_one(old.clone()).await, Err(Refusal::TooOld), "the store's clock was set back");
    ns.accept(60_000).await;
    assert_eq!(ns.append_one(old).await, Err(Refusal::TooOld), "the accept limit is longer now");
}

#[tokio::test]
async fn n2_any_part_of_what_is_pending_fits() {
    let config = NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("part", config).await;
    let most = (1_i64 << 62) - 1;
    // Their sum is small all the while; those of one window, or after a clear, are not.
    let mut sum = 0;
    for (number, delta) in [most, -most, most, -most, most].into_iter().enumerate() {
        let at_ms = NOON_MS + if delta > 0 { 0 } else { WINDOW_MS };
        match ns.append_one(add("c", &format!("t{number}"), at_ms, delta)).await {
            Ok(_) => sum += delta,
            Err(refusal) => assert_eq!(refusal, Refusal::Overflow),
        }
    }
    // Past 2^53 neighbouring integers are the same Lua number.
    for number in 0..1_000 {
        assert_eq!(ns.append_one(add("c", &format!("s{number}"), NOON_MS, 200)).await, Err(Refusal::Overflow));
    }
    assert_eq!(ns.settled("c").await, sum);
}

#[tokio::test]
async fn n2_a_counter_that_was_closed_in_vain_opens_again() {
    let mut ns = TestNamespace::new("vain", NamespaceConfig::default()).await;
    let name = counter("c");
    // A rollup that closed the counter died, or lost its commit to another.
    let closing = |to_ms, closed| {
        let (counter, idle_shards) = (name.clone(), Vec::new());
        Settlement { counter, to_ms, closed, last_write_ms: to_ms, is_deleted: false, idle_shards }
    };
    ns.store.close(&closing(NOON_MS, Closed::Up)).await.expect("closed");
    assert_eq!(ns.append_one(add("c", "t", NOON_MS, 1)).await, Err(Refusal::Overflow));
    ns.pass(60_000);
    for (due, _) in ns.due(1_000).await {
        ns.roll_up(due.as_str()).await;
    }
    let now_ms = ns.now_ms();
    assert_eq!(ns.append_one(add("c", "u", now_ms, 1)).await, counted(now_ms));
    // One who settles late what was before the closing has no say in it.
    ns.pass(120_000);
    ns.store.close(&closing(now_ms + 120_000, Closed::Up)).await.expect("closed");
    ns.store.settle(&[closing(now_ms + 60_000, Closed::No)]).await.expect("settled");
    let now_ms = ns.now_ms();
    assert_eq!(ns.append_one(add("c", "v", now_ms, 1)).await, Err(Refusal::Overflow));
}

#[tokio::test]
async fn n2_the_ends_of_the_range_are_refused_and_never_wrapped() {
    let config = NamespaceConfig { buckets_per_id: 2, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("range", config).await;
    let most = ((1_i64 << 62) - 1) / 2;
    for (token, delta) in [("a", i64::MAX), ("b", i64::MIN), ("c", most + 1), ("d", -most - 1)] {
        assert_eq!(ns.append_one(add("c", token, NOON_MS, delta)).await, Err(Refusal::Overflow), "{delta}");
    }
    for sign in [1, -1] {
        let name = format!("c{sign}");
        let mut sum = 0_i128;
        let mut refused = 0;
        for number in 0..40 {
            let now_ms = ns.now_ms();
            match ns.append_one(add(&name, &format!("t{number}"), now_ms, sign * most)).await {
                Ok(_) => sum += i128::from(sign * most),
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Overflow);
                    refused += 1;
                }
            }
            if number % 4 == 3 {
                assert_eq!(i128::from(ns.settled(&name).await), sum, "after {number}");
            }
        }
        assert!(refused > 20 && sum.abs() >= 1 << 62, "{refused} refused, {sum}");
        let now_ms = ns.now_ms();
        assert_eq!(ns.append_one(add(&name, "more", now_ms, sign)).await, Err(Refusal::Overflow));
        assert_eq!(ns.append_one(add(&name, "less", now_ms, -sign * most)).await, counted(now_ms));
        while ns.settled(&name).await.abs() >= 1 << 62 {
            let now_ms = ns.now_ms();
            ns.append_one(add(&name, &format!("less {now_ms}"), now_ms, -sign * most)).await.expect("there is room");
        }
        let now_ms = ns.now_ms();
        assert_eq!(ns.append_one(add(&name, "again", now_ms, sign)).await, counted(now_ms), "open again");
    }
}

#[tokio::test]
async fn n3_the_answers_to_retries_stay_true_for_ever() {
    let config = NamespaceConfig { close_after_ms: 60_000, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("retries", config).await;
    ns.pass(3_000);
    let (counted_once, refused) = (add("c", "once", NOON_MS, 5), add("c", "late", NOON_MS - 3_000, 7));
    let (clear, other) = (event("c", "clear", NOON_MS - 1, Change::Clear), add("c", "once", NOON_MS, 6));
    assert_eq!(ns.append_one(counted_once.clone()).await, counted(NOON_MS));
    assert_eq!(ns.append_one(clear.clone()).await, counted(NOON_MS - 1));
    assert_eq!(ns.append_one(refused.clone()).await, Err(Refusal::TooOld));
    // Through clocks that are set back, other limits, rollups and forgotten scripts.
    for round in 0..12 {
        let answers = ns.store.append(&[counted_once.clone(), clear.clone(), refused.clone(), other.clone()]).await;
        let expected = [duplicate(NOON_MS), duplicate(NOON_MS - 1), Err(Refusal::TooOld), Err(Refusal::TokenConflict)];
        assert_eq!(answers, expected, "in round {round} at {}", ns.now_ms());
        match round % 4 {
            0 => ns.set_back(1_000 * round),
            1 => ns.accept(5_000 * round).await,
            2 => ns.at(ns.now_ms() + 4_000),
            _ => drop(ns.roll_up("c").await),
        }
    }
    ns.at(NOON_MS + 60_000);
    assert_eq!(ns.append_one(counted_once.clone()).await, duplicate(NOON_MS), "the last moment");
    ns.pass(1);
    let events = [counted_once, clear, refused, other];
    assert!(ns.store.append(&events).await.iter().all(|answer| *answer == Err(Refusal::TokenExpired)));
    ns.set_back(30_000);
    let expected = [duplicate(NOON_MS), duplicate(NOON_MS - 1), Err(Refusal::TooOld), Err(Refusal::TokenConflict)];
    assert_eq!(ns.store.append(&events).await, expected, "nothing is dropped yet");
    assert_eq!(ns.settled("c").await, 5);
}

#[tokio::test]
async fn n2_small_deltas_and_wide_ones_add_up_to_the_last_digit() {
    let mut ns = TestNamespace::new("wide", NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() }).await;
    let wide = 1_i64 << 51;
    // Short ones up to the end of what a Lua number is exact to, wide ones, older windows, and back; then so many at the
    // end of the short ones that only together they are too much.
    let mixed = [wide - 1, wide - 1, 1, 1, 1, -(wide - 1), wide, 3, 1 << 60, -5, -(1 << 60), 7, wide + 1, -1];
    for (kind, deltas) in [("mixed", mixed.to_vec()), ("many", vec![wide - 1; 41]), ("few", vec![1 - wide; 3])] {
        let now_ms = ns.now_ms();
        let add_of = |(number, delta): (usize, &i64)| {
            let ago_ms = if kind == "mixed" { [0, 600, 0, 1_700][number % 4] } else { 0 };
            add(kind, &format!("t{number}"), now_ms - ago_ms, *delta)
        };
        let adds: Vec<NewEvent> = deltas.iter().enumerate().map(add_of).collect();
        for add in &adds {
            ns.append_one(add.clone()).await.expect("counted");
        }
        // The same in one call.
        let together = format!("{kind} together");
        let at_once = adds.iter().map(|add| NewEvent { counter: counter(&together), ..add.clone() });
        assert!(ns.store.append(&at_once.collect::<Vec<NewEvent>>()).await.iter().all(Result::is_ok));
        let sum: i64 = deltas.iter().sum();
        for name in [kind, &together] {
            let pending = ns.pending(name).await;
            let windows = pending.iter().flat_map(|(_, pending)| &pending.windows);
            assert_eq!(windows.map(|window| window.sum).sum::<i64>(), sum, "{name}");
            assert_eq!(ns.settled(name).await, sum, "{name}");
        }
    }
}

#[tokio::test]
async fn n7_the_latest_clear_of_a_window_counts_in_whatever_order_they_come() {
    let mut ns =
        TestNamespace::new("clears", NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() }).await;
    // The short way of counting, and the long one: of an older window than another event's.
    for name in ["short", "long"] {
        let begin_ms = ns.now_ms();
        if name == "long" {
            ns.append_one(add(name, "newer", begin_ms + WINDOW_MS, 1_000)).await.expect("counted");
        }
        for offset_ms in [300, 100] {
            let clear = event(name, &format!("clear {offset_ms}"), begin_ms + offset_ms, Change::Clear);
            assert_eq!(ns.append_one(clear).await, counted(begin_ms + offset_ms));
        }
        for (offset_ms, delta) in [(301, 1), (200, 20), (300, 300), (99, 4_000)] {
            let add = add(name, &format!("add {delta}"), begin_ms + offset_ms, delta);
            assert_eq!(ns.append_one(add).await, counted(begin_ms + offset_ms));
        }
        assert_eq!(ns.settled(name).await, if name == "long" { 1_001 } else { 1 }, "{name}");
    }
}

/// A counter so near the end of its range that 1,000 more close it.
async fn nearly_full(test: &str) -> TestNamespace {
    let mut ns = TestNamespace::new(test, NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() }).await;
    ns.append_one(add("c", "most", NOON_MS, (1 << 62) - 1)).await.expect("counted");
    assert_eq!(ns.settled("c").await, (1 << 62) - 1);
    ns.append_one(add_now("c", "more", 1_000)).await.expect("counted");
    ns.pass(60_000);
    ns
}

#[tokio::test]
async fn n2_a_counter_is_closed_before_a_count_near_the_end_of_its_range_stands() {
    let mut ns = nearly_full("closed").await;
    // Read, seal, close, commit; then the process dies.
    let (store, job) = (ns.store.clone(), ns.job(&counter("c")));
    let dying = Dying::new(&store, &store, 5, Last::Lost);
    assert!(matches!(*roll_up(&dying, &dying, &[job]).await, [Err(Refusal::Unavailable { .. })]));
    assert_eq!(ns.count("c").await, (1 << 62) + 999);
    assert_eq!(ns.append_one(add_now("c", "one", 1)).await, Err(Refusal::Overflow));
    assert_eq!(ns.append_one(add_now("c", "less", -1_000)).await, counted(ns.now_ms()));
    assert_eq!(ns.settled("c").await, (1 << 62) - 1);
    assert_eq!(ns.append_one(add_now("c", "again", 1)).await, counted(ns.now_ms()));
}

#[tokio::test]
async fn n2_a_counter_that_was_closed_late_opens_again() {
    let mut ns = nearly_full("late").await;
    let (store, job) = (ns.store.clone(), ns.job(&counter("c")));
    // The one that closes it is stopped before it settles; meanwhile another brings the count down and opens it.
    let stopped = Stopped::after(4, &store);
    let closing = roll_up(&stopped, &stopped, std::slice::from_ref(&job));
    let opening = async {
        ns.append_one(add_now("c", "less", -1_000)).await.expect("counted");
        ns.settled("c").await
    };
    let (closed, opened) = stopped.meanwhile(closing, opening).await;
    assert!(matches!(*closed, [Ok(RolledUp::Committed { .. })]) && opened == (1 << 62) - 1, "{closed:?} {opened}");
    // Whatever it has done last, the log keeps the counter dirty.
    ns.pass(60_000);
    for (name, _) in ns.due(1_000).await {
        ns.roll_up(name.as_str()).await;
    }
    assert_eq!(ns.append_one(add_now("c", "again", 1)).await, counted(ns.now_ms()));
    ns.settled("c").await;
    ns.pass(60_000);
    assert_eq!(ns.due(1_000).await.len(), 0);
}

#[tokio::test]
async fn n8_shards_in_which_nothing_was_pending_are_not_settled() {
    let ns = TestNamespace::new("idle-shards", NamespaceConfig::default()).await;
    let name = counter("c");
    let spread = |now_ms: u64| (0..64).map(move |number| add("c", &format!("t{number}-{now_ms}"), now_ms, 1));
    for event in spread(NOON_MS) {
        assert_eq!(ns.append_one(event).await, counted(NOON_MS));
    }
    ns.pass(60_000);
    let shards: Vec<u16> = ns.pending("c").await.into_iter().map(|(shard, _)| shard).collect();
    assert_eq!(shards.len(), 4);
    let left = async || {
        let pending = ns.pending("c").await.into_iter().filter(|(_, pending)| !pending.windows.is_empty());
        pending.map(|(shard, _)| shard).collect::<Vec<u16>>()
    };
    let settlement = |closed, idle: &[u16]| {
        let to_ms = NOON_MS + 30_000;
        [Settlement {
            counter: name.clone(),
            to_ms,
            closed,
            last_write_ms: to_ms,
            is_deleted: false,
            idle_shards: idle.to_vec(),
        }]
    };
    // The home shard is settled in any case: it keeps the counter in circulation.
    ns.store.settle(&settlement(Closed::No, &shards)).await.expect("settled");
    let others = left().await;
    assert_eq!(others.len(), 3, "{others:?} of {shards:?}");
    ns.store.settle(&settlement(Closed::No, &others[1..])).await.expect("settled");
    assert_eq!(left().await, others[1..]);
    // Every shard of a counter that is closed must refuse its adds.
    ns.store.settle(&settlement(Closed::Up, &shards)).await.expect("settled");
    assert_eq!(left().await, [0; 0]);
    for event in spread(ns.now_ms()) {
        assert_eq!(ns.append_one(event).await, Err(Refusal::Overflow));
    }
}
