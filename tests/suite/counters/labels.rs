//! The source and the item key of adds (N20): kept with the event, in the archive, and grouped by audits. The random programs of
//! `exactness` have them, too.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use tallystone_counters::audit::{Audit, GroupBy, Groups, begin, go_on};
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::namespace::CounterType;

const UUID: &str = "0198f6a2-7d3c-7b1e-9f20-5a6b7c8d9e0f";

fn labeled(text: &str, time_ms: u64, delta: i64, source: &str, key: &str) -> NewEvent {
    NewEvent { labels: Labels::parse(source, key).expect("labels"), ..add("c", text, time_ms, delta) }
}

/// What is in the groups of an audit: the number of adds and their sum, by key.
type Found = BTreeMap<String, (u64, i128)>;

/// A whole audit, its groups, and its number of pages.
async fn audited(store: &Compared, by: GroupBy) -> (Audit, Found, usize) {
    let (name, mut found, mut pages) = (counter("c"), Found::new(), 0);
    let mut add_page = |groups: Groups| {
        if groups.is_cleared() {
            found.clear();
        }
        for (key, group) in groups {
            let of = found.entry(key.into_string()).or_default();
            *of = (of.0 + group.adds, of.1 + group.sum);
        }
        pages += 1;
    };
    let mut groups = Groups::by(Some(by));
    let mut audit = begin(store, &name, &mut groups).await.expect("an audit");
    add_page(groups);
    while !audit.is_finished() {
        let mut groups = Groups::by(Some(by));
        audit = go_on(store, &name, audit, &mut groups).await.expect("a page");
        add_page(groups);
    }
    (audit, found, pages)
}

impl TestNamespace {
    /// The labels of the events of "c" in the minute before noon, in the order of their times.
    async fn labels(&self) -> Vec<Labels> {
        let (mut next, end) = ((NOON_MS - 60_000) / WINDOW_MS, NOON_MS / WINDOW_MS + 1);
        let mut all = Vec::new();
        while next < end {
            let scan = self.store.scan(&counter("c"), next..end, 2).await.expect("events");
            all.extend(scan.events.into_iter().map(|event| event.labels));
            next = scan.next_window;
        }
        all
    }
}

fn found<const N: usize>(of: [(&str, u64, i128); N]) -> Found {
    of.into_iter().map(|(key, adds, sum)| (key.to_owned(), (adds, sum))).collect()
}

#[tokio::test]
async fn n20_labels_stay_with_the_event_when_it_leaves_redis_and_audits_group_by_them() {
    let mut ns = TestNamespace::new("labels", NamespaceConfig { archived: true, ..NamespaceConfig::default() }).await;
    let long = "x".repeat(64);
    let adds = [
        labeled("1", NOON_MS - 4_000, 5, "eu", UUID),
        labeled("2", NOON_MS - 3_000, -2, "us", UUID),
        labeled("3", NOON_MS - 2_000, 1 << 50, "eu", ""),
        labeled("4", NOON_MS - 1_000, 7, "", ""),
        labeled(&long, NOON_MS, -1, &long, &"é".repeat(32)),
    ];
    let again = async |ns: &TestNamespace| {
        let answers = adds.iter().map(|add| duplicate(add.time_ms.expect("a time")));
        assert_eq!(ns.store.append(&adds).await, answers.collect::<Vec<_>>());
        for (source, key) in [("us", UUID), ("", UUID), ("eu", ""), ("", ""), ("eu", &UUID[1..])] {
            let other = labeled("1", NOON_MS - 4_000, 5, source, key);
            assert_eq!(ns.append_one(other).await, Err(Refusal::TokenConflict), "{source} {key}");
        }
        let other = labeled("4", NOON_MS - 1_000, 7, "eu", "");
        assert_eq!(ns.append_one(other).await, Err(Refusal::TokenConflict));
        assert_eq!(ns.labels().await, adds.iter().map(|add| add.labels.clone()).collect::<Vec<_>>());
    };
    assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
    again(&ns).await;
    assert_eq!(ns.settled("c").await, (1 << 50) + 9);
    let groups = async |ns: &TestNamespace| {
        let (audit, by_source, _) = audited(&ns.store, GroupBy::Source).await;
        assert_eq!(audit.recounted(), i128::from(audit.count));
        assert_eq!(by_source, found([("", 1, 7), ("eu", 2, (1 << 50) + 5), ("us", 1, -2), (&long, 1, -1)]));
        let (_, by_item, _) = audited(&ns.store, GroupBy::EventItemKey).await;
        assert_eq!(by_item, found([("", 2, (1 << 50) + 7), (UUID, 2, 3), (&"é".repeat(32), 1, -1)]));
    };
    groups(&ns).await;
    ns.archive_everything().await;
    again(&ns).await;
    groups(&ns).await;
    // What comes later has no labels: its object is one without their columns, and is merged with the other.
    let later_ms = ns.now_ms();
    assert_eq!(ns.append_one(add("c", "later", later_ms, 1)).await, counted(later_ms));
    ns.settled("c").await;
    ns.archive_everything().await;
    while ns.store.redis.merge_archive(&mut BTreeSet::new()).await.expect("objects") > 0 {}
    again(&ns).await;
    let (_, by_source, _) = audited(&ns.store, GroupBy::Source).await;
    assert_eq!(by_source.get(""), Some(&(2, 8)));
}

#[tokio::test]
async fn n20_a_clear_removes_the_groups_before_it_and_has_no_labels() {
    let mut ns = TestNamespace::new("cleared", NamespaceConfig { archived: true, ..NamespaceConfig::default() }).await;
    let clear = NewEvent {
        labels: Labels::parse("eu", "k").expect("labels"),
        ..event("c", "clear", NOON_MS - 2_000, Change::Clear)
    };
    for event in [labeled("1", NOON_MS - 3_000, 5, "eu", "k"), clear.clone(), labeled("2", NOON_MS, 2, "us", "k")] {
        let time_ms = event.time_ms.expect("a time");
        assert_eq!(ns.append_one(event).await, counted(time_ms));
    }
    let without = NewEvent { labels: Labels::default(), ..clear };
    assert_eq!(ns.append_one(without.clone()).await, duplicate(NOON_MS - 2_000), "it is the same clear");
    assert!(ns.labels().await[1].are_none());
    ns.settled("c").await;
    for _ in 0..2 {
        let (audit, by_source, _) = audited(&ns.store, GroupBy::Source).await;
        assert_eq!((audit.recounted(), by_source), (2, found([("us", 1, 2)])));
        ns.archive_everything().await;
        assert_eq!(ns.append_one(without.clone()).await, duplicate(NOON_MS - 2_000));
    }
}

/// A page ends when it has very many groups; the pages together have each add once.
#[tokio::test]
async fn n20_an_audit_of_very_many_items_takes_several_pages() {
    const ADDS: u64 = 12_000;
    let mut ns = TestNamespace::new("items", NamespaceConfig::default()).await;
    // Past the oracle, which reads all events for each.
    let store = ns.store.redis.clone();
    for numbers in (0..ADDS).collect::<Vec<_>>().chunks(1_000) {
        let one = |number: &u64| labeled(&format!("t{number}"), NOON_MS - number % 4_000, 1, "", &format!("i{number}"));
        let adds: Vec<NewEvent> = numbers.iter().map(one).collect();
        assert!(store.append(&adds).await.iter().all(Result::is_ok));
    }
    ns.pass(60_000);
    let jobs = [ns.job(&counter("c"))];
    assert!(roll_up(&store, &store, &jobs).await.remove(0).is_ok());
    let (mut all, mut pages, name) = (BTreeSet::new(), 0, counter("c"));
    let mut groups = Groups::by(Some(GroupBy::EventItemKey));
    let mut audit = begin(&store, &name, &mut groups).await.expect("an audit");
    loop {
        pages += 1;
        for (key, group) in groups {
            assert!(group.adds == 1 && group.sum == 1 && all.insert(key), "each item once");
        }
        if audit.is_finished() {
            break;
        }
        groups = Groups::by(Some(GroupBy::EventItemKey));
        audit = go_on(&store, &name, audit, &mut groups).await.expect("a page");
    }
    assert_eq!((all.len() as u64, audit.sum, audit.events), (ADDS, ADDS.into(), ADDS));
    assert!(pages > 1, "one page had {ADDS} groups");
}

/// The script that checks bounds reads deltas from the log where a clear divides a window.
#[tokio::test]
async fn n20_n18_bounds_are_held_against_the_deltas_of_adds_with_labels() {
    let config =
        NamespaceConfig { counter_type: CounterType::Accurate, buckets_per_id: 1, ..NamespaceConfig::default() };
    let ns = TestNamespace::new("bounded-labels", config).await;
    let begin_ms = NOON_MS - WINDOW_MS;
    let at = |offset| begin_ms + offset;
    for (number, delta) in [7, -300, 1 << 53, -(1 << 53), 294].into_iter().enumerate() {
        let time_ms = at(30 + number as u64);
        assert_eq!(ns.append_one(labeled(&number.to_string(), time_ms, delta, "eu", UUID)).await, counted(time_ms));
    }
    assert_eq!(ns.append_one(labeled("gone", at(10), 1_000, "", "k")).await, counted(at(10)));
    assert_eq!(ns.append_one(event("c", "clear", at(20), Change::Clear)).await, counted(at(20)));
    let take = |text: &str, time_ms| NewEvent {
        bounds: Bounds { min: Some(0), max: None },
        ..labeled(text, time_ms, -1, "us", "k")
    };
    assert_eq!(ns.append_one(take("a", at(50))).await, counted(at(50)));
    assert_eq!(ns.append_one(take("b", at(51))).await, Err(Refusal::BoundReached { count: 0 }));
}
