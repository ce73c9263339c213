//! What a rollup sums can no longer change, and what can change is not summed; reads during rollups (N6, N7, N11).

use super::interrupted::{Dying, Last};
use super::*;
use std::sync::atomic::{AtomicBool, AtomicI64};
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::namespace::SKEW_MS;
use tallystone_counters::read;

#[tokio::test]
async fn n6_an_add_during_a_seal_is_summed_or_refused() {
    let config = NamespaceConfig { buckets_per_id: 1, accept_limit_ms: 1_000, ..NamespaceConfig::default() };
    for add_first in [true, false] {
        let mut ns = TestNamespace::new("seal", config.clone()).await;
        ns.append_one(add("c", "first", NOON_MS, 1)).await.expect("counted");
        // The last moment at which NOON_MS is taken, and the first at which the window around it is sealed.
        let sealed_at_ms = NOON_MS + WINDOW_MS + 1_000 + SKEW_MS;
        ns.at(if add_first { NOON_MS + 1_000 } else { sealed_at_ms });
        let (second, expected) = (add("c", "second", NOON_MS, 10), if add_first { 11 } else { 1 });
        if add_first {
            assert_eq!(ns.append_one(second).await, counted(NOON_MS));
            ns.at(sealed_at_ms);
            ns.roll_up("c").await;
        } else {
            ns.roll_up("c").await;
            // The store's clock is set back to before the seal: what was summed stays as it was.
            ns.at(NOON_MS);
            assert_eq!(ns.append_one(second).await, Err(Refusal::TooOld));
        }
        let checkpoint = ns.checkpoint("c").await;
        assert_eq!((checkpoint.count, checkpoint.exact_to_ms), (expected, NOON_MS + WINDOW_MS));
        // What ends where the window does is settled.
        assert!(ns.pending("c").await.iter().all(|(_, pending)| pending.windows.is_empty()));
        ns.at(NOON_MS + 60_000);
        assert_eq!(ns.due(1_000).await, []);
    }
}

#[tokio::test]
async fn n6_a_longer_accept_limit_opens_nothing_that_is_sealed() {
    let mut ns = TestNamespace::new("longer", NamespaceConfig::default()).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    assert_eq!(ns.settled("c").await, 1);
    ns.accept(3_600_000).await;
    assert_eq!(ns.append_one(add("c", "u", NOON_MS + 1, 1)).await, Err(Refusal::TooOld));
    let open_ms = ns.now_ms() - 5_000;
    assert_eq!(ns.append_one(add("c", "v", open_ms, 1)).await, counted(open_ms));
    assert_eq!(ns.settled("c").await, 1, "nothing is sealed that may still come");
    ns.pass(3_600_000);
    assert_eq!(ns.settled("c").await, 2);
}

#[tokio::test]
async fn n6_an_event_is_taken_from_the_first_moment_of_its_window_to_the_last() {
    let ns =
        TestNamespace::new("moments", NamespaceConfig { accept_limit_ms: 1_000, ..NamespaceConfig::default() }).await;
    let add = |time_ms| add("c", &format!("t{time_ms}"), time_ms, 1);
    assert_eq!(ns.append_one(add(NOON_MS - 1_001)).await, Err(Refusal::TooOld));
    assert_eq!(ns.append_one(add(NOON_MS - 1_000)).await, counted(NOON_MS - 1_000));
    assert_eq!(ns.append_one(add(NOON_MS + 1_001)).await, Err(Refusal::TooEarly));
    assert_eq!(ns.append_one(add(NOON_MS + 1_000)).await, counted(NOON_MS + 1_000));
    ns.pass(1);
    assert_eq!(
        ns.append_one(add(NOON_MS + 1_001)).await,
        counted(NOON_MS + 1_001),
        "what was too early is not for ever"
    );
}

#[tokio::test]
async fn n6_where_the_limit_is_longer_than_it_was_the_seal_alone_holds() {
    let mut ns =
        TestNamespace::new("alone", NamespaceConfig { accept_limit_ms: 1_000, ..NamespaceConfig::default() }).await;
    ns.pass(10_000);
    ns.store.seal(&[counter("c")]).await.expect("sealed");
    ns.accept(60_000).await;
    let sealed_to_ms = NOON_MS + 10_000 - 1_000 - 500;
    // In all of its shards, and to the millisecond.
    for number in 0..20 {
        let (before, after) = (format!("before {number}"), format!("after {number}"));
        assert_eq!(ns.append_one(add("c", &before, sealed_to_ms - 1, 1)).await, Err(Refusal::TooOld));
        assert_eq!(ns.append_one(add("c", &after, sealed_to_ms, 1)).await, counted(sealed_to_ms));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n6_an_add_in_flight_while_the_seal_rises_is_summed_or_refused() {
    let config = NamespaceConfig { accept_limit_ms: 1_000, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::new("flight", config).await;
    let (mut counts, mut refused) = (0, 0);
    for round in 0..200 {
        let time_ms = NOON_MS + round * 10_000;
        ns.at(time_ms + 1_000);
        // On Redis alone: the oracle would put the two calls one after the other. The last moment at which it is taken, by a server whose call is late; and the first at which it is sealed.
        let slow = ns.server_at(time_ms + 1_000).await.redis;
        let fast = ns.server_at(time_ms + 1_000 + WINDOW_MS + SKEW_MS).await.redis;
        let jobs = [ns.job(&counter("c"))];
        let late = [add("c", &format!("t{round}"), time_ms, 1)];
        // Which call is the first at its shard is up to chance, with a little help.
        let rollup = roll_up(&fast, &fast, &jobs);
        let (answer, rolled_up) = match round % 4 {
            0 => (slow.append(&late).await, rollup.await),
            1 => {
                let rolled_up = rollup.await;
                (slow.append(&late).await, rolled_up)
            }
            2 => tokio::join!(slow.append(&late), rollup),
            _ => {
                let (rolled_up, answer) = tokio::join!(rollup, slow.append(&late));
                (answer, rolled_up)
            }
        };
        assert!(matches!(*rolled_up, [Ok(RolledUp::Committed { .. })]), "{rolled_up:?}");
        match &answer[0] {
            Ok(_) => counts += 1,
            Err(refusal) => {
                assert_eq!(*refusal, Refusal::TooOld);
                refused += 1;
            }
        }
        let checkpoint = slow.read(&[counter("c")]).await.expect("checkpoints").remove(0);
        assert_eq!((checkpoint.count, checkpoint.exact_to_ms > time_ms), (counts, true), "in round {round}");
    }
    assert!(counts >= 50 && refused >= 50, "{counts} counted, {refused} refused");
}

#[tokio::test]
async fn n7_where_the_seals_of_shards_differ_a_window_ends_at_the_earliest() {
    let mut ns =
        TestNamespace::new("clocks", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
    let now_ms = NOON_MS;
    let events: Vec<NewEvent> = (0..64).map(|number| add("c", &format!("t{number}"), now_ms, 1)).collect();
    assert!(ns.store.append(&events).await.iter().all(|answer| *answer == counted(now_ms)));
    // Some shards are sealed further than the others: the store's clock was ahead for a moment.
    let narrow = ns.narrow(3).await;
    ns.at(now_ms + 60_000);
    narrow.seal(&[counter("c")]).await.expect("sealed");
    ns.at(now_ms);
    let sealed = ns.store.seal(&[counter("c")]).await.expect("sealed").remove(0);
    let earliest_ms = (now_ms - 5_000 - SKEW_MS) / WINDOW_MS * WINDOW_MS;
    assert_eq!((sealed.sealed_to_ms, sealed.pending.len()), (earliest_ms, 8));
    ns.roll_up("c").await;
    assert_eq!((ns.count("c").await, ns.checkpoint("c").await.exact_to_ms), (0, earliest_ms));
    // The others still take what those refuse; and nothing is lost that was taken.
    let more: Vec<NewEvent> = (0..64).map(|number| add("c", &format!("u{number}"), now_ms, 100)).collect();
    let answers = ns.store.append(&more).await;
    let taken = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((1..64).contains(&taken), "{taken}");
    assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(Refusal::TooOld))), "{answers:?}");
    assert_eq!(ns.settled("c").await, 64 + 100 * taken as i64);
}

#[tokio::test]
async fn n7_what_reached_only_some_shards_is_mended_by_the_next_rollup() {
    for last in [Last::Lost, Last::InPart, Last::Unheard] {
        // Read, seal, commit, settle: the process dies at each.
        for calls in 1..=4 {
            let mut ns =
                TestNamespace::new("part", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
            let events: Vec<NewEvent> = (0..64).map(|number| add("c", &format!("t{number}"), NOON_MS, 1)).collect();
            assert!(ns.store.append(&events).await.iter().all(|answer| *answer == counted(NOON_MS)));
            ns.pass(60_000);
            let (store, narrow) = (ns.store.clone(), ns.narrow(3).await);
            let (dying, job) = (Dying::new(&store, &narrow, calls, last), ns.job(&counter("c")));
            assert!(matches!(*roll_up(&dying, &dying, &[job]).await, [Err(Refusal::Unavailable { .. })]));
            let is_committed = calls == 4 || calls == 3 && last == Last::Unheard;
            assert_eq!(ns.count("c").await, if is_committed { 64 } else { 0 }, "{last:?} {calls}");
            let now_ms = ns.now_ms();
            ns.append_one(add("c", "one more", now_ms, 1)).await.expect("counted");
            let names = [counter("c")];
            let (count, _) = read::accurate(&store, &store, &names).await.expect("counts").remove(0);
            assert_eq!(count, 65, "{last:?} {calls}");
            // Only the log itself says that there is something left to do.
            ns.pass(60_000);
            let due = ns.due(1_000).await;
            assert!(!due.is_empty(), "{last:?} {calls}");
            ns.roll_up(due[0].0.as_str()).await;
            assert_eq!(ns.count("c").await, 65, "{last:?} {calls}");
            assert!(ns.pending("c").await.iter().all(|(_, pending)| pending.windows.is_empty()));
            ns.pass(60_000);
            assert_eq!(ns.due(1_000).await, [], "{last:?} {calls}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n11_an_accurate_read_during_rollups_is_never_wrong() {
    const READS: usize = 400;
    let config = NamespaceConfig { accept_limit_ms: 100, ..NamespaceConfig::default() };
    let ns = TestNamespace::new("reads", config).await;
    let (names, store) = ([counter("c"), counter("d")], ns.store.redis.clone());
    let (begun, acknowledged, is_over) = (AtomicI64::new(0), AtomicI64::new(0), AtomicBool::new(false));
    let add = async {
        while !is_over.load(Ordering::SeqCst) {
            let number = begun.fetch_add(1, Ordering::SeqCst);
            let adds = [add_now("c", &format!("t{number}"), 1), add_now("d", &format!("t{number}"), -2)];
            for answer in store.append(&adds).await {
                answer.expect("counted");
            }
            acknowledged.fetch_add(1, Ordering::SeqCst);
            ns.pass(100);
        }
    };
    let mut rollups = 0;
    let roll_up = async {
        for number in 0_u64.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let lease = LeaseOrder { leased_at_ms: number, fencing_token: 0 };
            let jobs = names.clone().map(|counter| Job { counter, lease });
            let results = roll_up(&store, &store, &jobs).await;
            rollups += results.iter().filter(|result| matches!(result, Ok(RolledUp::Committed { .. }))).count();
        }
    };
    let read = async {
        for _ in 0..READS {
            let least = acknowledged.load(Ordering::SeqCst);
            let counts = read::accurate(&store, &store, &names).await.expect("counts");
            let most = begun.load(Ordering::SeqCst);
            assert!((least..=most).contains(&counts[0].0), "{least} {counts:?} {most}");
            assert!((-2 * most..=-2 * least).contains(&counts[1].0), "{least} {counts:?} {most}");
        }
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(add, roll_up, read);
    assert!(rollups > 20, "{rollups} rollups during {READS} reads");
}
