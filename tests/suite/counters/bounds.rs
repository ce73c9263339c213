//! One rule each, where a random program would seldom come.

use super::*;
use tallystone_counters::Checkpoints;
use tallystone_counters::log::{Closed, GRANULE_MS};
use tallystone_counters::rollup::{RolledUp, roll_up};

async fn settled(place: &mut Place, name: &str) -> i64 {
    place.pass(60_000);
    let lease = place.lease();
    roll_up(&place.store, &place.store, &counter(name), lease).await.expect("a rollup");
    place.store.read(&counter(name)).await.expect("a checkpoint").count
}

#[tokio::test]
async fn n3_a_token_counts_once_through_any_server_and_long_after_its_rollup() {
    let mut place = Place::new("token", NamespaceConfig::default()).await;
    let (other, once) = (place.server(&place.config, 1).await.expect("its stores"), add("c", "t", NOON_MS, 5));
    assert_eq!(place.append_one(once.clone()).await, Ok(Appended::Counted));
    assert_eq!(other.append(&[once.clone(), once.clone()]).await, [Ok(Appended::Duplicate), Ok(Appended::Duplicate)]);
    assert_eq!(place.append_one(add("c", "t", NOON_MS, 6)).await, Err(Refusal::TokenConflict));
    assert_eq!(place.append_one(event("c", "t", NOON_MS, Change::Clear)).await, Err(Refusal::TokenConflict));
    assert_eq!(place.append_one(add("d", "t", NOON_MS, 6)).await, Ok(Appended::Counted), "of another counter");
    assert_eq!(place.append_one(add("c", "t", NOON_MS + 1, 7)).await, Ok(Appended::Counted), "at another time");
    assert_eq!(settled(&mut place, "c").await, 12);
    assert_eq!(place.append_one(once.clone()).await, Ok(Appended::Duplicate), "a late retry of what counted");
    assert_eq!(place.append_one(add("c", "u", NOON_MS, 5)).await, Err(Refusal::TooOld), "and of what did not");
    place.pass(place.config.close_after_ms);
    assert_eq!(place.append_one(once).await, Err(Refusal::TokenExpired));
    assert_eq!(settled(&mut place, "c").await, 12);
}

#[tokio::test]
async fn n6_an_add_beside_a_rising_fence_is_in_the_window_or_refused() {
    let config = NamespaceConfig { buckets_per_id: 1, accept_limit_ms: 1_000, ..NamespaceConfig::default() };
    for add_first in [true, false] {
        let mut place = Place::new("fence", config.clone()).await;
        place.append_one(add("c", "first", NOON_MS, 1)).await.expect("counted");
        // The last moment at which NOON_MS is taken, and the first at which the granule around it is sealed.
        let sealed_at_ms = NOON_MS + GRANULE_MS + 1_000 + tallystone_counters::namespace::SKEW_MS;
        place.clock_ms.store(if add_first { NOON_MS + 1_000 } else { sealed_at_ms }, Ordering::SeqCst);
        let lease = place.lease();
        let (second, expected) = (add("c", "second", NOON_MS, 10), if add_first { 11 } else { 1 });
        if add_first {
            assert_eq!(place.append_one(second).await, Ok(Appended::Counted));
            place.clock_ms.store(sealed_at_ms, Ordering::SeqCst);
            roll_up(&place.store, &place.store, &counter("c"), lease).await.expect("a rollup");
        } else {
            roll_up(&place.store, &place.store, &counter("c"), lease).await.expect("a rollup");
            // The store's clock is set back behind the fence: what was summed stays as it was.
            place.clock_ms.store(NOON_MS, Ordering::SeqCst);
            assert_eq!(place.append_one(second).await, Err(Refusal::TooOld));
        }
        let checkpoint = place.store.read(&counter("c")).await.expect("a checkpoint");
        assert_eq!((checkpoint.count, checkpoint.exact_to_ms), (expected, NOON_MS + GRANULE_MS));
    }
}

#[tokio::test]
async fn n6_a_longer_accept_limit_opens_nothing_that_is_sealed() {
    let mut place = Place::new("longer", NamespaceConfig::default()).await;
    place.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    assert_eq!(settled(&mut place, "c").await, 1);
    place.accept(3_600_000).await;
    assert_eq!(place.append_one(add("c", "u", NOON_MS + 1, 1)).await, Err(Refusal::TooOld));
    let open_ms = place.now_ms() - 5_000;
    assert_eq!(place.append_one(add("c", "v", open_ms, 1)).await, Ok(Appended::Counted));
    assert_eq!(settled(&mut place, "c").await, 1, "nothing is sealed that may still come");
    place.pass(3_600_000);
    assert_eq!(settled(&mut place, "c").await, 2);
}

#[tokio::test]
async fn n8_a_commit_under_an_earlier_lease_is_lost() {
    let mut place = Place::new("lease", NamespaceConfig::default()).await;
    let (early, late) = (place.lease(), place.lease());
    place.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    place.pass(60_000);
    roll_up(&place.store, &place.store, &counter("c"), late).await.expect("a rollup");
    place.pass(60_000);
    assert_eq!(roll_up(&place.store, &place.store, &counter("c"), early).await, Ok(RolledUp::Lost));
    assert!(matches!(roll_up(&place.store, &place.store, &counter("c"), late).await, Ok(RolledUp::Committed(_))));
}

#[tokio::test]
async fn n3_too_old_is_true_for_ever() {
    let mut place = Place::new("ever", NamespaceConfig::default()).await;
    place.pass(5_500);
    let old = add("c", "t", NOON_MS, 1);
    assert_eq!(place.append_one(old.clone()).await, Err(Refusal::TooOld));
    place.clock_ms.store(NOON_MS, Ordering::SeqCst);
    assert_eq!(place.append_one(old.clone()).await, Err(Refusal::TooOld), "the store's clock was set back");
    place.accept(60_000).await;
    assert_eq!(place.append_one(old).await, Err(Refusal::TooOld), "the accept limit is longer now");
}

#[tokio::test]
async fn n2_any_part_of_what_is_pending_fits() {
    let config = NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() };
    let mut place = Place::new("part", config).await;
    let most = (1_i64 << 62) - 1;
    // Their sum is small all the while; those of one granule, or after a clear, are not.
    let mut counted = 0;
    for (number, delta) in [most, -most, most, -most, most].into_iter().enumerate() {
        let at_ms = NOON_MS + if delta > 0 { 0 } else { GRANULE_MS };
        match place.append_one(add("c", &format!("t{number}"), at_ms, delta)).await {
            Ok(_) => counted += delta,
            Err(refusal) => assert_eq!(refusal, Refusal::Overflow),
        }
    }
    // Past 2^53 a Lua number does not tell one from the next.
    for number in 0..1_000 {
        assert_eq!(place.append_one(add("c", &format!("s{number}"), NOON_MS, 200)).await, Err(Refusal::Overflow));
    }
    assert_eq!(settled(&mut place, "c").await, counted);
}

#[tokio::test]
async fn n2_a_counter_that_was_closed_in_vain_opens_again() {
    let mut place = Place::new("vain", NamespaceConfig::default()).await;
    let name = counter("c");
    // A rollup that closed the counter died, or lost its commit to another.
    place.store.close(&name, NOON_MS, Closed::Up).await.expect("closed");
    assert_eq!(place.append_one(add("c", "t", NOON_MS, 1)).await, Err(Refusal::Overflow));
    place.pass(60_000);
    for shard in 0..place.store.shards() {
        let (due, _) = place.store.due(shard, 10, 1_000).await.expect("an answer");
        for due in due {
            let lease = place.lease();
            roll_up(&place.store, &place.store, &due, lease).await.expect("a rollup");
        }
    }
    let now_ms = place.now_ms();
    assert_eq!(place.append_one(add("c", "u", now_ms, 1)).await, Ok(Appended::Counted));
    // One who settles late what was before the closing has no say in it.
    place.store.close(&name, now_ms + 120_000, Closed::Up).await.expect("closed");
    place.store.settle(&name, now_ms + 60_000, Closed::No).await.expect("settled");
    assert_eq!(place.append_one(add("c", "v", now_ms, 1)).await, Err(Refusal::Overflow));
}

#[tokio::test]
async fn n2_the_ends_of_the_range_are_refused_and_never_wrapped() {
    let config = NamespaceConfig { buckets_per_id: 2, ..NamespaceConfig::default() };
    let mut place = Place::new("range", config).await;
    let most = ((1_i64 << 62) - 1) / 2;
    for (token, delta) in [("a", i64::MAX), ("b", i64::MIN), ("c", most + 1), ("d", -most - 1)] {
        assert_eq!(place.append_one(add("c", token, NOON_MS, delta)).await, Err(Refusal::Overflow), "{delta}");
    }
    for sign in [1, -1] {
        let name = format!("c{sign}");
        let mut counted = 0_i128;
        let mut refused = 0;
        for number in 0..40 {
            let now_ms = place.now_ms();
            match place.append_one(add(&name, &format!("t{number}"), now_ms, sign * most)).await {
                Ok(_) => counted += i128::from(sign * most),
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Overflow);
                    refused += 1;
                }
            }
            if number % 4 == 3 {
                assert_eq!(i128::from(settled(&mut place, &name).await), counted, "after {number}");
            }
        }
        assert!(refused > 20 && counted.abs() >= 1 << 62, "{refused} refused, {counted}");
        let now_ms = place.now_ms();
        assert_eq!(place.append_one(add(&name, "more", now_ms, sign)).await, Err(Refusal::Overflow));
        assert_eq!(place.append_one(add(&name, "less", now_ms, -sign * most)).await, Ok(Appended::Counted));
        while settled(&mut place, &name).await.abs() >= 1 << 62 {
            let now_ms = place.now_ms();
            place.append_one(add(&name, &format!("less {now_ms}"), now_ms, -sign * most)).await.expect("there is room");
        }
        let now_ms = place.now_ms();
        assert_eq!(place.append_one(add(&name, "again", now_ms, sign)).await, Ok(Appended::Counted), "open again");
    }
}

#[tokio::test]
async fn n8_a_thousand_adds_in_a_window_are_due_once_and_together() {
    let mut place = Place::new("coalesce", NamespaceConfig::default()).await;
    let window_ms = place.config.coalesce_ms;
    for number in 0..1_000 {
        place.clock_ms.store(NOON_MS + number * window_ms / 1_000, Ordering::SeqCst);
        let now_ms = place.now_ms();
        place.append_one(add("c", &format!("t{number}"), now_ms, 1)).await.expect("counted");
    }
    let mut jobs = 0;
    for _ in 0..200 {
        place.pass(100);
        for shard in 0..place.store.shards() {
            let (due, _) = place.store.due(shard, 10, 60_000).await.expect("an answer");
            for name in due {
                let lease = place.lease();
                let rolled_up = roll_up(&place.store, &place.store, &name, lease).await.expect("a rollup");
                jobs += usize::from(matches!(rolled_up, RolledUp::Committed(_)));
            }
        }
    }
    assert_eq!((jobs, place.store.read(&counter("c")).await.expect("a checkpoint").count), (1, 1_000));
}

#[tokio::test]
async fn n1_a_server_with_an_old_configuration_is_told() {
    let place = Place::new("revision", NamespaceConfig::default()).await;
    let config = NamespaceConfig { accept_limit_ms: 60_000, ..NamespaceConfig::default() };
    let newer = place.server(&config, 2).await;
    let old = add("c", "t", NOON_MS - 30_000, 1);
    assert_eq!(place.append_one(old.clone()).await, Err(Refusal::Stale));
    assert_eq!(newer.expect("the newer").append(&[old]).await, [Ok(Appended::Counted)]);
    assert_eq!(place.server(&config, 1).await.err(), Some(Refusal::Stale));
}

#[tokio::test]
async fn n1_a_change_of_a_namespace_reaches_every_server_before_it_is_answered() {
    let redis = TestRedis::shared().await;
    let client = redis::Client::open(redis.url()).expect("an address");
    let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
    let namespaces = || RedisNamespaces::new(client.clone(), ReplicaWait::default(), Clock::Test(clock_ms.clone()));
    let (one, other) = (namespaces(), namespaces());
    let name = NamespaceName::parse(format!("registry-{:08x}", rand::random::<u32>())).expect("a name");
    assert_eq!(one.get(&name).await, Ok(None));
    let first = one.put(&name, NamespaceConfig::default()).await.expect("made");
    assert_eq!(other.get(&name).await, Ok(Some(first.clone())));
    let of_one = one.open(&first).await.expect("its stores");
    let longer = NamespaceConfig { accept_limit_ms: 60_000, ..NamespaceConfig::default() };
    let second = other.put(&name, longer.clone()).await.expect("changed");
    assert_eq!((second.revision, &second.config), (2, &longer));
    let old = add("c", "t", NOON_MS - 30_000, 1);
    assert_eq!(of_one.append(std::slice::from_ref(&old)).await, [Err(Refusal::Stale)]);
    let now = one.get(&name).await.expect("an answer").expect("the namespace");
    assert_eq!(one.open(&now).await.expect("its stores").append(&[old]).await, [Ok(Appended::Counted)]);
    let moved = NamespaceConfig { buckets_per_id: 8, ..longer };
    assert!(matches!(one.put(&name, moved).await, Err(Refusal::Invalid { field: "buckets_per_id", .. })));
}
