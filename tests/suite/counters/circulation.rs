//! When a rollup is due, and how events are read back (N8 to N12).

use super::*;
use tallystone_counters::Event;
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::namespace::{Cardinality, MEDIUM_IDLE_MS, SKEW_MS};

#[tokio::test]
async fn n8_a_thousand_adds_in_a_window_are_due_once_and_together() {
    let mut ns = TestNamespace::new("coalesce", NamespaceConfig::default()).await;
    let coalesce_ms = ns.config.coalesce_ms;
    for number in 0..1_000 {
        ns.at(NOON_MS + number * coalesce_ms / 1_000);
        let now_ms = ns.now_ms();
        ns.append_one(add("c", &format!("t{number}"), now_ms, 1)).await.expect("counted");
    }
    let mut jobs = 0;
    for _ in 0..200 {
        ns.pass(100);
        // A counter is due in each shard that has events of it: the first shard's job rolls up all of them.
        for shard in 0..SHARDS {
            for (name, _) in ns.store.due(shard, 10, 60_000).await.expect("an answer").counters {
                let rolled_up = ns.roll_up(name.as_str()).await;
                jobs += usize::from(matches!(rolled_up, RolledUp::Committed { .. }));
            }
        }
    }
    assert_eq!((jobs, ns.count("c").await), (1, 1_000));
}

#[tokio::test]
async fn n9_a_due_counter_is_held_and_not_lost() {
    let mut ns = TestNamespace::new("held", one_shard(Cardinality::High)).await;
    let adds = [add("c", "t", NOON_MS, 1), add("c", "u", NOON_MS + 1_000, 1)];
    assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
    let due_ms = NOON_MS + WINDOW_MS + ns.config.coalesce_ms + 5_000 + SKEW_MS;
    ns.at(due_ms - 1);
    assert_eq!(ns.due(1_000).await, []);
    ns.pass(1);
    assert_eq!(ns.due(1_000).await, [(counter("c"), due_ms)]);
    // The server that made the call may have died.
    ns.pass(999);
    assert_eq!(ns.due(1_000).await, []);
    ns.pass(1);
    assert_eq!(ns.due(1_000).await, [(counter("c"), due_ms + 1_000)]);
    ns.roll_up("c").await;
    ns.pass(3_600_000);
    assert_eq!(ns.due(1_000).await, [], "nothing is left of it");
}

#[tokio::test]
async fn n9_the_longest_waiting_come_first_and_the_next_due_time_is_returned() {
    let ns = TestNamespace::new("order", one_shard(Cardinality::High)).await;
    let home = home(&ns, "c0").await;
    let mut names = Vec::new();
    for number in 0..100 {
        let name = format!("c{number}");
        let now_ms = ns.now_ms();
        ns.append_one(add(&name, "t", now_ms, 1)).await.expect("counted");
        if ns.store.pending(&[counter(&name)]).await.expect("pending")[0][0].0 == home {
            names.push(counter(&name));
        }
        ns.pass(WINDOW_MS);
    }
    ns.pass(60_000);
    assert!(names.len() > 4, "{names:?}");
    let first = ns.store.due(home, 2, 10_000).await.expect("an answer");
    assert_eq!((first.counters.len(), first.dirty, first.now_ms), (2, names.len() as u64, ns.now_ms()));
    assert!(first.next_ms.is_some_and(|next_ms| next_ms <= first.now_ms), "more wait");
    let rest = ns.store.due(home, 1_000, 20_000).await.expect("an answer");
    assert_eq!(rest.next_ms, Some(rest.now_ms + 10_000), "the two that are held");
    let found: Vec<CounterName> = first.counters.into_iter().chain(rest.counters).map(|(name, _)| name).collect();
    assert_eq!(found, names);
}

#[tokio::test]
async fn n10_low_and_medium_counters_are_due_again_with_nothing_new_and_high_ones_are_not() {
    for cardinality in [Cardinality::Low, Cardinality::Medium, Cardinality::High] {
        let mut ns = TestNamespace::new("again", NamespaceConfig { cardinality, ..NamespaceConfig::default() }).await;
        let adds: Vec<NewEvent> = (0..32).map(|number| add("c", &format!("t{number}"), NOON_MS, 1)).collect();
        assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
        assert_eq!(ns.settled("c").await, 32);
        for round in 0..3 {
            let rolled_up_ms = ns.now_ms();
            ns.pass(ns.config.coalesce_ms - 1);
            assert_eq!(ns.due(1_000).await, [], "{cardinality:?} {round}");
            ns.pass(1);
            let due = ns.due(1_000).await;
            if cardinality == Cardinality::High {
                assert_eq!(due, []);
                continue;
            }
            // In one of its shards only.
            assert_eq!(due, [(counter("c"), rolled_up_ms + ns.config.coalesce_ms)]);
            assert!(matches!(ns.roll_up("c").await, RolledUp::Committed { .. }));
            let checkpoint = ns.checkpoint("c").await;
            assert_eq!((checkpoint.count, checkpoint.last_write_ms), (32, NOON_MS));
            assert!(checkpoint.exact_to_ms > rolled_up_ms - 5_000, "it is exact to a later time though nothing came");
        }
    }
}

#[tokio::test]
async fn n10_medium_counters_leave_circulation_when_they_have_been_idle() {
    let mut ns = TestNamespace::new("medium", one_shard(Cardinality::Medium)).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    assert_eq!(ns.settled("c").await, 1);
    // The first rollup whose count is exact to ten minutes after the last event is the last one.
    ns.at(NOON_MS + MEDIUM_IDLE_MS);
    assert_eq!(ns.due(1_000).await.len(), 1);
    ns.roll_up("c").await;
    ns.pass(ns.config.coalesce_ms);
    assert_eq!(ns.due(1_000).await.len(), 1, "it was exact to a time before");
    ns.roll_up("c").await;
    ns.pass(3_600_000);
    assert_eq!(ns.due(1_000).await, []);
    // With its next event it is in circulation again.
    ns.append_one(add_now("c", "u", 1)).await.expect("counted");
    assert_eq!(ns.settled("c").await, 2);
    ns.pass(ns.config.coalesce_ms);
    assert_eq!(ns.due(1_000).await.len(), 1);
}

#[tokio::test]
async fn n10_a_counter_leaves_circulation_when_its_namespace_does() {
    let mut ns = TestNamespace::new("leaves", one_shard(Cardinality::Low)).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    assert_eq!(ns.settled("c").await, 1);
    ns.reconfigure(one_shard(Cardinality::High)).await;
    ns.pass(60_000);
    assert_eq!(ns.due(1_000).await.len(), 1);
    ns.roll_up("c").await;
    ns.pass(60_000);
    assert_eq!(ns.due(1_000).await, []);
}

#[tokio::test]
async fn n11_a_read_pulls_a_waiting_counter_forward() {
    let ns = TestNamespace::new("touch", one_shard(Cardinality::High)).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    // An event of an earlier time comes later.
    ns.append_one(add("c", "u", NOON_MS - 2_000, 1)).await.expect("counted");
    ns.append_one(add("c", "v", NOON_MS + 1_000, 1)).await.expect("counted");
    assert_eq!(ns.store.touch(&[(counter("c"), false), (counter("never"), false)]).await, Ok(true));
    let sealed_ms = NOON_MS - 2_000 + WINDOW_MS + 5_000 + SKEW_MS;
    ns.at(sealed_ms - 1);
    assert_eq!(ns.due(1_000).await, []);
    ns.pass(1);
    assert_eq!(ns.due(60_000).await, [(counter("c"), sealed_ms)]);
    // It is held now, for a rollup that is on its way: nothing pulls it forward.
    assert_eq!(ns.store.touch(&[(counter("c"), true)]).await, Ok(false));
    ns.pass(59_999);
    assert_eq!(ns.due(1_000).await, []);
    ns.pass(1);
    assert_eq!(ns.due(1_000).await, [(counter("c"), sealed_ms + 60_000)]);
}

#[tokio::test]
async fn n11_a_read_of_an_idle_counter_makes_it_due_where_the_caller_requests_that() {
    let mut ns = TestNamespace::new("idle", NamespaceConfig::default()).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    assert_eq!(ns.settled("c").await, 1);
    ns.pass(60_000);
    assert_eq!(ns.store.touch(&[(counter("c"), false)]).await, Ok(false));
    assert_eq!(ns.due(1_000).await, []);
    let now_ms = ns.now_ms();
    assert_eq!(ns.store.touch(&[(counter("c"), true)]).await, Ok(true));
    assert_eq!(ns.due(1_000).await, [(counter("c"), now_ms)], "in one of its shards");
    assert!(matches!(ns.roll_up("c").await, RolledUp::Committed { .. }));
    assert!(ns.checkpoint("c").await.exact_to_ms > now_ms - 6_000);
    ns.pass(60_000);
    assert_eq!(ns.due(1_000).await, []);
}

#[tokio::test]
async fn n12_the_events_of_a_window_are_read_in_the_order_of_their_times() {
    let ns = TestNamespace::new("events", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
    let mut expected = Vec::new();
    for number in 0..60_u64 {
        let time_ms = NOON_MS + (number * 7) % WINDOW_MS;
        let change = if number % 10 == 3 { Change::Clear } else { Change::Add(1 - (1 << (number % 40))) };
        let event = event("c", &format!("t{}", number % 13), time_ms, change);
        assert_eq!(ns.append_one(event.clone()).await, counted(time_ms));
        ns.append_one(NewEvent { counter: counter("d"), ..event.clone() }).await.expect("another counter's");
        expected.push(Event { time_ms, token: event.token, change, labels: Labels::default() });
    }
    for begin_ms in [NOON_MS - 1, NOON_MS + WINDOW_MS] {
        ns.append_one(add("c", "neighbour", begin_ms, 1)).await.expect("of the neighbouring windows");
    }
    expected.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
    let window = NOON_MS / WINDOW_MS;
    assert_eq!(ns.events("c", window).await, expected);
    assert_eq!(ns.events("c", window - 2).await, []);
    assert_eq!(ns.events("never", window).await, []);
}

fn one_shard(cardinality: Cardinality) -> NamespaceConfig {
    NamespaceConfig { buckets_per_id: 1, cardinality, ..NamespaceConfig::default() }
}

/// The only shard of a counter.
async fn home(ns: &TestNamespace, name: &str) -> u16 {
    ns.pending(name).await[0].0
}

#[tokio::test]
async fn n8_counters_that_wait_follow_another_coalesce_ms_at_once() {
    let hour = NamespaceConfig { coalesce_ms: 3_600_000, ..one_shard(Cardinality::High) };
    let mut ns = TestNamespace::new("coalesce", hour.clone()).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("an add");
    ns.pass(60_000);
    assert!(ns.due(0).await.is_empty(), "it waits for an hour");
    let none = NamespaceConfig { coalesce_ms: 0, ..hour.clone() };
    ns.reconfigure(none.clone()).await;
    let due = ns.due(0).await;
    // Its window, the accept limit and the skew.
    assert_eq!(due, [(counter("c"), NOON_MS + 500 + 5_000 + 100)]);
    // And back, before anybody has rolled it up.
    ns.reconfigure(hour).await;
    assert!(ns.due(0).await.is_empty());
    ns.reconfigure(none).await;
    ns.roll_up("c").await;
    assert_eq!((ns.count("c").await, ns.due(0).await), (1, vec![]));
}

#[tokio::test]
async fn n7_a_tick_returns_how_far_the_clocks_are_and_moves_none_ahead() {
    let ns = TestNamespace::new("tick", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
    let until = |until_ms: u64| [(counter("c"), until_ms), (counter("d"), 0)];
    assert_eq!(ns.store.tick(&until(NOON_MS)).await, Ok(vec![0, 0]));
    assert_eq!(ns.store.tick(&until(NOON_MS + 700)).await, Ok(vec![700, 0]));
    assert_eq!(ns.append_one(add_now("c", "t", 1)).await, counted(NOON_MS));
    ns.pass(700);
    assert_eq!(ns.store.tick(&until(NOON_MS + 700)).await, Ok(vec![0, 0]));
    // What counts from now on is not earlier, though the store's clock is set back.
    ns.at(NOON_MS);
    assert_eq!(ns.append_one(add_now("c", "u", 1)).await, counted(NOON_MS + 700));
    assert_eq!(ns.store.tick(&until(0)).await, Ok(vec![700, 700]), "what was shown stays");
    // One shard has shown a later time than the others.
    let one_shard = ns.narrow(1).await;
    ns.at(NOON_MS + 31_000);
    assert_eq!(one_shard.tick(&[(counter("c"), 0)]).await, Ok(vec![0]));
    ns.at(NOON_MS + 1_000);
    assert_eq!(ns.store.tick(&until(0)).await, Ok(vec![30_000, 30_000]));
    for shard in 0..SHARDS {
        assert_eq!(ns.store.due(shard, 0, 0).await.expect("an answer").now_ms, NOON_MS + 1_000, "shard {shard}");
    }
    // A counter of fewer shards waits only for its own.
    let names: Vec<CounterName> = (0..20).map(|number| counter(&format!("d{number}"))).collect();
    let homes: Vec<u16> =
        one_shard.pending(&names).await.expect("what is pending").iter().map(|shards| shards[0].0).collect();
    let home = one_shard.pending(&[counter("c")]).await.expect("what is pending")[0][0].0;
    let until: Vec<(CounterName, u64)> = names.into_iter().map(|name| (name, 0)).collect();
    let expected: Vec<u64> = homes.iter().map(|of| if *of == home { 30_000 } else { 0 }).collect();
    assert!(expected.contains(&0), "{homes:?}");
    assert_eq!(one_shard.tick(&until).await, Ok(expected));
}

#[tokio::test]
async fn n9_a_counter_that_no_rollup_settles_is_held_longer_each_time() {
    let mut ns = TestNamespace::new("longer", one_shard(Cardinality::High)).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    let home = home(&ns, "c").await;
    ns.pass(60_000);
    let mut holds_ms = Vec::new();
    for _ in 0..20 {
        assert_eq!(ns.due(5_000).await.len(), 1);
        let next_ms = ns.store.due(home, 0, 0).await.expect("an answer").next_ms.expect("it is dirty");
        holds_ms.push(next_ms - ns.now_ms());
        ns.at(next_ms - 1);
        assert_eq!(ns.due(5_000).await, []);
        ns.pass(1);
    }
    assert_eq!(holds_ms[..5], [5_000, 20_000, 80_000, 320_000, 900_000]);
    assert!(holds_ms[5..].iter().all(|hold_ms| *hold_ms == 900_000), "{holds_ms:?}");
    // A rollup ends it: the next events begin with the shortest hold.
    assert_eq!(ns.settled("c").await, 1);
    let now_ms = ns.now_ms();
    ns.append_one(add("c", "u", now_ms, 1)).await.expect("counted");
    ns.pass(60_000);
    assert_eq!(ns.due(5_000).await.len(), 1);
    ns.pass(5_000);
    assert_eq!(ns.due(5_000).await.len(), 1);
}

#[tokio::test]
async fn n9_a_counter_whose_job_was_refused_falls_due_again_after_the_delay() {
    let mut ns = TestNamespace::new("deferred", one_shard(Cardinality::High)).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    let home = home(&ns, "c").await;
    ns.pass(60_000);
    for _ in 0..3 {
        assert_eq!(ns.due(5_000).await.len(), 1);
        ns.store.defer(home, &[counter("c"), counter("clean")], 7_000).await.expect("its stores");
        ns.pass(6_999);
        assert_eq!(ns.due(5_000).await, []);
        ns.pass(1);
    }
    // It was never with a job, so it is held for the shortest time.
    assert_eq!(ns.due(5_000).await.len(), 1);
    ns.pass(5_000);
    assert_eq!(ns.due(5_000).await.len(), 1);
    ns.roll_up("c").await;
    ns.store.defer(home, &[counter("c")], 0).await.expect("its stores");
    assert_eq!(ns.due(5_000).await, [], "a counter that was settled meanwhile stays clean");
    assert_eq!(ns.count("c").await, 1);
}
