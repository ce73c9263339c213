//! What is published.

use super::board::{
    FIELDS, KEY, add_all, column, counts, create, published_to, publisher, start_sets, start_worker, until_published,
    url,
};
use crate::counting::house::{House, until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use tallystone_assembly::RollupWorker;
use tallystone_client::{NewAdd, NewClear, NewRecount};
use tallystone_counters::namespace::PublishedTo;
use tallystone_counters::publish::{Published, PublishedCount, Unpublished};
use tallystone_tests::compact::{Engine, Node};
use tokio::task::block_in_place;

/// The first and the last id, and some between.
const IDS: [u64; 6] = [0, 1, 77, 5_000_000_000, u64::MAX - 1, u64::MAX];

/// A counter set, and a namespace whose worker publishes to it.
async fn start_likes() -> (Node, House, RollupWorker) {
    let sets = start_sets(Engine::Redis);
    create(&sets);
    let house = House::without_worker().await;
    house.put("likes", published_to("likes")).await;
    let worker = start_worker(&house, &url(&sets)).await;
    (sets, house, worker)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_one_read_answers_the_counts_of_four_namespaces() {
    for engine in Engine::ALL {
        one_read_answers(engine).await;
    }
}

async fn one_read_answers(engine: Engine) {
    let seed: u64 = rand::rng().random();
    println!("{engine:?}, seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let sets = start_sets(engine);
    create(&sets);
    let house = House::without_worker().await;
    for field in FIELDS {
        house.put(field, published_to(field)).await;
    }
    let worker = start_worker(&house, &url(&sets)).await;
    let mut expected: BTreeMap<&str, BTreeMap<u64, i64>> = BTreeMap::new();
    for round in 0..4 {
        for (number, field) in FIELDS.into_iter().enumerate() {
            let ids: Vec<u64> = (0..300).map(|id| id * 3).chain(IDS).collect();
            let deltas: Vec<(u64, i64)> = ids.into_iter().map(|id| (id, random.random_range(0..50))).collect();
            let mut wire = house.wire((round + number) % 2).await;
            add_all(&mut wire.counters, field, &deltas).await;
            let of_field = expected.entry(field).or_default();
            deltas.into_iter().for_each(|(id, delta)| *of_field.entry(id).or_default() += delta);
        }
    }
    for field in FIELDS {
        until_published(&sets, field, &expected[field]).await;
        // The read of the service is the same, with the time to which it is exact.
        let ids = || expected[field].keys().copied();
        let read = async || (counts(&house.clients[0], field, ids()).await, column(&sets, field));
        until(read, |(counts, column)| counts == column).await;
    }
    // One command for all counts of an object.
    let values = block_in_place(|| sets.wire().done(&format!("CT.GET {KEY} 77"))).ints();
    let found: Vec<i64> = values.into_iter().step_by(2).collect();
    assert_eq!(found, FIELDS.map(|field| expected[field][&77]));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_clears_and_deletions_are_published_and_names_that_are_no_numbers_are_not() {
    let (sets, house, worker) = start_likes().await;
    let client = &house.clients[0];
    let add = async |counter: &str, delta| {
        client.add("likes", NewAdd::new(counter, delta)).await.expect("an add");
    };
    for (counter, delta) in
        [("1", 5), ("2", 6), ("3", 7), ("post", 8), ("01", 9), ("+4", 10), ("18446744073709551616", 11)]
    {
        add(counter, delta).await;
    }
    until_published(&sets, "likes", &[(1, 5), (2, 6), (3, 7)].into()).await;
    house.until_entry("likes", "18446744073709551616", |entry| entry.count == 11).await;
    let before = column(&sets, "likes");
    assert_eq!(before.keys().copied().collect::<Vec<_>>(), [1, 2, 3], "others are not published");
    client.clear("likes", NewClear::new("1")).await.expect("a clear");
    client.delete("likes", NewClear::new("2")).await.expect("a deletion");
    until_published(&sets, "likes", &[(1, 0), (2, 0), (3, 7)].into()).await;
    let after = column(&sets, "likes");
    assert!(after[&1].1 > before[&1].1 && after[&2].1 > before[&2].1, "{before:?} {after:?}");
    // Both live on.
    add("1", 20).await;
    add("2", 21).await;
    until_published(&sets, "likes", &[(1, 20), (2, 21), (3, 7)].into()).await;
    worker.stop().await;
}

/// No add follows, and no read of the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_recounts_are_published_however_soon_they_follow_each_other() {
    let (sets, house, worker) = start_likes().await;
    let client = &house.clients[0];
    client.add("likes", NewAdd::new("1", 5)).await.expect("an add");
    until_published(&sets, "likes", &[(1, 5)].into()).await;
    for (adjustment, count) in [(10, 15), (100, 115), (-20, 95)] {
        let recounted = client.recount("likes", "1", NewRecount::of_count(adjustment, "by hand")).await;
        assert_eq!(recounted.expect("a recount").new_count, count);
        until_published(&sets, "likes", &[(1, count)].into()).await;
    }
    worker.stop().await;
}

fn published(set: usize, older: usize, negative: usize) -> Published {
    Published { set, older, negative, ..Published::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_an_older_count_changes_nothing_and_one_below_0_needs_a_signed_field() {
    for engine in Engine::ALL {
        let sets = start_sets(engine);
        create(&sets);
        let publisher = publisher(&url(&sets));
        let to = |key: &str, field: &str| PublishedTo { key: key.to_owned(), field: field.to_owned() };
        let count = |id, count, exact_to_ms| PublishedCount { id, count, exact_to_ms };
        let publish = async |to: PublishedTo, counts: &[PublishedCount]| publisher.publish(&to, counts).await;
        let (likes, comments) = (|| to(KEY, "likes"), || to(KEY, "comments"));
        let newest = [count(1, 10, 2_000), count(2, 20, 2_000)];
        assert_eq!(publish(likes(), &newest).await, Ok(published(2, 0, 0)));
        // A worker that hung since: the same, older, and one that is later.
        let late = [count(1, 9, 2_000), count(2, 19, 1_999), count(3, 30, 1)];
        assert_eq!(publish(likes(), &late).await, Ok(published(1, 2, 0)));
        assert_eq!(column(&sets, "likes"), [(1, (10, 2_000)), (2, (20, 2_000)), (3, (30, 1))].into());
        // Below 0: the others are published.
        let mixed = [count(1, -1, 3_000), count(2, 21, 3_000)];
        assert_eq!(publish(likes(), &mixed).await, Ok(published(1, 0, 1)));
        assert_eq!(publish(likes(), &mixed[..1]).await, Ok(published(0, 0, 1)));
        assert_eq!(column(&sets, "likes"), [(1, (10, 2_000)), (2, (21, 3_000)), (3, (30, 1))].into());
        assert_eq!(publish(comments(), &mixed).await, Ok(published(2, 0, 0)));
        assert_eq!(column(&sets, "comments"), [(1, (-1, 3_000)), (2, (21, 3_000))].into());
        // A set with so many fields that a command has fewer counts.
        let wide: String = (0..198).map(|field| format!(" f{field} 1")).collect();
        block_in_place(|| sets.wire().done(&format!("CT.CREATE wide SCHEMA likes 8{wide}")));
        block_in_place(|| sets.wire().done("CT.ALTER wide ADD likes.exact_to 41"));
        let counts: Vec<PublishedCount> = (0..1_000).map(|id| count(id, 1, 1_000)).collect();
        assert_eq!(publish(to("wide", "likes"), &counts).await, Ok(published(1_000, 0, 0)));
        // What is no field of a set is refused by its name.
        assert!(
            matches!(publish(to("other", "likes"), &newest).await, Err(Unpublished::NoSet(why)) if why.contains("'other'"))
        );
        assert!(
            matches!(publish(to(KEY, "shares"), &newest).await, Err(Unpublished::Refused(why)) if why.contains("shares"))
        );
        // A Redis that is full takes them later.
        block_in_place(|| sets.wire().done("CONFIG SET maxmemory 1"));
        let full = publish(likes(), &[count(4, 40, 1)]).await;
        assert!(matches!(&full, Err(Unpublished::Unavailable(why)) if why.contains("OOM")), "{full:?}");
        block_in_place(|| sets.wire().done("CONFIG SET maxmemory 0"));
        assert_eq!(publish(likes(), &[count(4, 40, 1)]).await, Ok(published(1, 0, 0)));
        block_in_place(|| drop(sets.wire().done("SET text x")));
        assert!(
            matches!(publish(to("text", "likes"), &newest).await, Err(Unpublished::Refused(why)) if why.contains("'text'"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_an_id_that_is_refused_does_not_count_its_batch_and_a_right_may_come_later() {
    for engine in Engine::ALL {
        let sets = start_sets(engine);
        let publisher = publisher(&url(&sets));
        let to = PublishedTo { key: "full".to_owned(), field: "likes".to_owned() };
        let done = |command: &str| block_in_place(|| drop(sets.wire().done(command)));
        done("CT.CREATE full TABLE_SLOTS 256 TABLES_MAX 1 PROBE_MAX 1 SCHEMA likes 24 likes.exact_to 41");
        let counts = |exact_to_ms, ids: std::ops::Range<u64>| -> Vec<PublishedCount> {
            ids.map(|id| PublishedCount { id, count: 1, exact_to_ms }).collect()
        };
        // One by one, until the set refuses one.
        let mut next = 0;
        loop {
            let one = publisher.publish(&to, &counts(1, next..next + 1)).await.expect("an answer");
            if one.refused == 1 {
                assert!(one.why.is_some_and(|why| why.contains("FULL")));
                break;
            }
            assert_eq!(one, published(1, 0, 0));
            next += 1;
        }
        let batch = publisher.publish(&to, &counts(2, 0..next + 1)).await.expect("an answer");
        assert_eq!((batch.set, batch.older, batch.refused), (next as usize, 0, 1), "{:?}", batch.why);
        let mut found = block_in_place(|| sets.scan("full"));
        found.retain(|_, values| values[1] != 2);
        assert_eq!(found, [].into(), "all others are set");
        // Most of a batch, as few ids still find a free slot: the number of commands has a bound.
        let before: u64 = block_in_place(|| sets.info("stats", "total_commands_processed")).parse().expect("a number");
        let few = publisher.publish(&to, &counts(3, 1_000_000..1_001_000)).await.expect("an answer");
        assert!(few.set + few.refused == 1_000 && few.refused > 900, "{few:?}");
        let after: u64 = block_in_place(|| sets.info("stats", "total_commands_processed")).parse().expect("a number");
        assert!(after - before < 150, "{} commands", after - before);
        // A user without the right gets it.
        done("ACL SETUSER default -ct.psetnewer");
        let refused = publisher.publish(&to, &counts(4, 0..1)).await;
        assert!(matches!(&refused, Err(Unpublished::NotNow(why)) if why.contains("NOPERM")), "{refused:?}");
        done("ACL SETUSER default +ct.psetnewer");
        assert_eq!(publisher.publish(&to, &counts(4, 0..1)).await, Ok(published(1, 0, 0)));
    }
}
