//! Passed thresholds (N16), at the stores: each is listed once, whatever dies, and a reader notices what is gone.

use super::interrupted::{Dying, Last};
use super::recounts::of_count;
use super::*;
use tallystone_counters::crossings::{CrossingsPage, CrossingsRead, last_entries, read_crossings};
use tallystone_counters::namespace::Threshold;
use tallystone_counters::recount::recount;
use tallystone_counters::{CrossingLists, Deletions};
use tallystone_link::StreamId;
use tallystone_lua::counter::{CROSSINGS, CounterShardKeys};

/// A counter, a threshold and the new count.
type Seen = (String, i64, i64);

fn config(thresholds: &[(&str, i64)]) -> NamespaceConfig {
    let threshold = |(prefix, count): &(&str, i64)| Threshold { prefix: (*prefix).to_owned(), count: *count };
    let thresholds = thresholds.iter().map(threshold).collect();
    // What is pending of a counter is in its home shard.
    NamespaceConfig { thresholds, buckets_per_id: 1, ..NamespaceConfig::default() }
}

fn seen(page: &CrossingsPage) -> Vec<Seen> {
    let of_entry = |entry: &tallystone_counters::CrossingEntry| {
        let (counter, count) = (entry.counter.to_string(), entry.count);
        entry.thresholds.iter().map(move |threshold| (counter.clone(), *threshold, count)).collect::<Vec<Seen>>()
    };
    page.entries.iter().flat_map(of_entry).collect()
}

/// Of one counter: each threshold, and the count that has passed it.
fn passed(all: &[Seen], name: &str) -> Vec<(i64, i64)> {
    all.iter().filter(|(counter, ..)| counter == name).map(|(_, threshold, count)| (*threshold, *count)).collect()
}

impl TestNamespace {
    /// What Redis lists, as the oracle does.
    async fn crossings(&self) -> Vec<Seen> {
        self.store.check_crossings().await;
        seen(&self.page(None, 1_000_000).await.expect("a page"))
    }

    async fn page(&self, after: Option<&CrossingsRead>, count: usize) -> Result<CrossingsPage, Refusal> {
        read_crossings(&self.store.redis, after, count).await
    }

    /// An add, and its rollup.
    async fn add_and_settle(&mut self, name: &str, delta: i64) {
        let token = rand::random::<u64>().to_string();
        self.append_one(add(name, &token, self.now_ms(), delta)).await.expect("an add");
        self.settled(name).await;
    }

    /// The key of a counter's list.
    async fn list_of(&self, name: &str) -> (u16, String) {
        let home = self.pending(name).await[0].0;
        (home, CounterShardKeys::new(self.store.redis.tag(), home).key(CROSSINGS))
    }
}

#[tokio::test]
async fn n16_rollups_report_the_thresholds_that_counts_pass_up_and_down() {
    let mut ns = TestNamespace::new("up-down", config(&[("", 100), ("", 10), ("b", 50), ("", -5)])).await;
    ns.add_and_settle("a", 9).await;
    assert_eq!(ns.crossings().await, []);
    ns.add_and_settle("a", 1).await;
    ns.add_and_settle("a", 1).await;
    ns.add_and_settle("b", 200).await;
    ns.add_and_settle("a", -2).await;
    ns.append_one(event("b", "clear", ns.now_ms(), Change::Clear)).await.expect("a clear");
    ns.append_one(add("b", "more", ns.now_ms() + 1, -6)).await.expect("an add");
    ns.settled("b").await;
    let all = ns.crossings().await;
    assert_eq!(passed(&all, "a"), [(10, 10), (10, 9)]);
    // In the order in which a count passes them.
    assert_eq!(passed(&all, "b"), [(10, 200), (50, 200), (100, 200), (100, -6), (50, -6), (10, -6), (-5, -6)]);
    // What passes and returns within one rollup is not seen.
    let (up, down) = (add("a", "up", ns.now_ms(), 5), add("a", "down", ns.now_ms() + 1, -5));
    assert!(ns.store.append(&[up, down]).await.iter().all(Result::is_ok));
    assert_eq!(ns.settled("a").await, 9);
    assert_eq!(ns.crossings().await, all);
}

#[tokio::test]
async fn n16_a_changed_list_of_thresholds_holds_from_the_next_rollup_on() {
    let mut ns = TestNamespace::new("changed", config(&[("", 10)])).await;
    ns.add_and_settle("a", 20).await;
    ns.reconfigure(config(&[("", 15), ("", 30)])).await;
    ns.add_and_settle("a", 1).await;
    assert_eq!(passed(&ns.crossings().await, "a"), [(10, 20)], "15 was passed before");
    ns.add_and_settle("a", 9).await;
    ns.reconfigure(config(&[])).await;
    ns.add_and_settle("a", -30).await;
    assert_eq!(passed(&ns.crossings().await, "a"), [(10, 20), (30, 30)]);
}

#[tokio::test]
async fn n16_a_recount_reports_crossings_and_a_deletion_none() {
    let mut ns = TestNamespace::new("recounted", config(&[("", 10)])).await;
    ns.add_and_settle("a", 5).await;
    for (text, adjustment) in [("r", 20), ("s", 1), ("t", -20)] {
        let recount = recount(&ns.store, &counter("a"), &of_count(text, adjustment), 0).await;
        assert_eq!(recount.map(|recounted| recounted.adjustment), Ok(adjustment));
        recount_again(&ns, text, adjustment).await;
    }
    let expected = [(10, 25), (10, 6)];
    assert_eq!(passed(&ns.crossings().await, "a"), expected);
    ns.add_and_settle("a", 100).await;
    let cleared = ns.append_one(event("a", "clear", ns.now_ms(), Change::Clear)).await.expect("a clear");
    ns.store.delete(&counter("a"), cleared.time_ms).await.expect("a deletion");
    ns.settled("a").await;
    let expected = [&expected[..], &[(10, 106)]].concat();
    assert_eq!(passed(&ns.crossings().await, "a"), expected);
    // It begins at 0 again.
    ns.add_and_settle("a", 11).await;
    assert_eq!(passed(&ns.crossings().await, "a"), [&expected[..], &[(10, 11)]].concat());
}

/// A repeated recount changes nothing, so it passes nothing.
async fn recount_again(ns: &TestNamespace, text: &str, adjustment: i64) {
    let before = ns.crossings().await;
    recount(&ns.store, &counter("a"), &of_count(text, adjustment), 0).await.expect("its first answer");
    assert_eq!(ns.crossings().await, before);
}

#[tokio::test]
async fn n16_a_rollup_that_dies_at_any_step_reports_each_crossing_once() {
    for last in [Last::Lost, Last::InPart, Last::Unheard] {
        // Read, seal, commit, settle: the process dies at each. Then the next one, and the one after it does not.
        for calls in 1..=4 {
            let config = NamespaceConfig { buckets_per_id: 4, ..config(&[("", 10), ("", 20)]) };
            let mut ns = TestNamespace::new("dying", config).await;
            let names = ["a", "b", "c", "d"];
            let adds: Vec<NewEvent> = names.iter().map(|name| add(name, "t", NOON_MS, 25)).collect();
            assert!(ns.store.append(&adds).await.iter().all(Result::is_ok));
            ns.pass(60_000);
            let (store, narrow) = (ns.store.clone(), ns.narrow(1).await);
            for _ in 0..2 {
                let jobs: Vec<Job> = names.iter().map(|name| ns.job(&counter(name))).collect();
                let dying = Dying::new(&store, &narrow, calls, last);
                assert!(roll_up(&dying, &dying, &jobs).await.iter().all(Result::is_err), "{last:?} {calls}");
            }
            for name in names {
                ns.settled(name).await;
                ns.add_and_settle(name, -10).await;
            }
            let all = ns.crossings().await;
            for name in names {
                assert_eq!(passed(&all, name), [(10, 25), (20, 25), (20, 15)], "{last:?} {calls} {name}");
            }
        }
    }
}

#[tokio::test]
async fn n16_a_reader_that_goes_on_from_its_position_gets_each_crossing_once() {
    let mut ns = TestNamespace::new("pages", config(&[("", 1), ("", 2), ("", 3)])).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let now = last_entries(&ns.store.redis).await.expect("positions");
    for delta in [1, 1, -2, 3] {
        for name in names {
            ns.add_and_settle(name, delta).await;
        }
    }
    let mut homes = std::collections::BTreeSet::new();
    for name in names {
        homes.insert(ns.list_of(name).await.0);
    }
    assert!(homes.len() > 1, "they are in several shards");
    let all = ns.crossings().await;
    assert_eq!(all.len(), names.len() * 7);
    for count in [1, 2, 5, 1_000] {
        let (mut read, mut pages, mut after) = (Vec::new(), 0, Some(now));
        let mut complete_to_ms = 0;
        loop {
            let page = ns.page(after.as_ref(), count).await.expect("a page");
            let last_ms = page.entries.last().map_or(u64::MAX, |entry| entry.id.ms);
            assert!(page.complete_to_ms >= complete_to_ms, "it goes on");
            // What is on later pages is not complete.
            let next = ns.page(Some(&page.next), 1).await.expect("a page");
            assert!(next.entries.first().is_none_or(|entry| entry.id.ms >= page.complete_to_ms), "{next:?}");
            assert!(page.entries.is_empty() || page.complete_to_ms >= last_ms, "{page:?}");
            complete_to_ms = page.complete_to_ms;
            if page.entries.is_empty() {
                break;
            }
            read.extend(seen(&page));
            (after, pages) = (Some(page.next), pages + 1);
        }
        assert_eq!(read, all, "{count} at once");
        assert!(pages > 1 || count == 1_000, "{pages} pages");
    }
    assert_eq!(last_entries(&ns.store.redis).await, ns.page(None, 1_000).await.map(|page| page.next));
}

#[tokio::test]
async fn n16_a_position_expires_when_entries_after_it_are_gone() {
    let mut ns = TestNamespace::new("expired", config(&[("", 1)])).await;
    let begin = last_entries(&ns.store.redis).await.expect("positions");
    let mut positions = vec![begin];
    for delta in [1, -1, 1] {
        ns.add_and_settle("a", delta).await;
        positions.push(last_entries(&ns.store.redis).await.expect("positions"));
    }
    let (_, key) = ns.list_of("a").await;
    let mut redis = ns.redis.connection().await;
    for kept in [2, 1] {
        let () = redis::cmd("XTRIM").arg(&key).arg("MAXLEN").arg(kept).query_async(&mut redis).await.expect("trimmed");
        for (number, position) in positions.iter().enumerate() {
            let page = ns.page(Some(position), 10).await;
            match number + kept < 3 {
                true => assert_eq!(page, Err(Refusal::PositionExpired), "{number} of {kept}"),
                false => assert_eq!(page.expect("a page").entries.len(), 3 - number, "{number} of {kept}"),
            }
        }
        assert_eq!(ns.page(None, 10).await.expect("the oldest").entries.len(), kept);
    }
}

/// A primary that has lost its last writes may have a clock that is behind: new entries have earlier ids than lost ones.
#[tokio::test]
async fn n16_after_lost_writes_a_crossing_may_be_repeated_and_none_is_missed() {
    let mut ns = TestNamespace::new("lost", config(&[("", 1)])).await;
    ns.add_and_settle("a", 1).await;
    ns.add_and_settle("a", -1).await;
    let (home, key) = ns.list_of("a").await;
    let read = ns.page(None, 10).await.expect("a page");
    assert_eq!(read.entries.len(), 2);
    let earlier = |ms: u64| StreamId { ms: read.entries[0].id.ms - ms, number: 0 };
    let (first, new) = (earlier(10), earlier(5));
    let mut redis = ns.redis.connection().await;
    let fields: Vec<(String, Vec<Vec<u8>>)> =
        redis::cmd("XRANGE").arg(&key).arg("-").arg("+").query_async(&mut redis).await.expect("entries");
    let () = redis::cmd("DEL").arg(&key).query_async(&mut redis).await.expect("deleted");
    let again = |id: StreamId, fields: &[Vec<u8>]| redis::cmd("XADD").arg(&key).arg(id.to_string()).arg(fields).clone();
    let () = again(first, &fields[0].1).query_async(&mut redis).await.expect("an entry");
    // Nothing is new yet.
    let page = ns.page(Some(&read.next), 10).await.expect("a page");
    assert_eq!(page.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [first], "once more");
    assert_eq!(page.next[usize::from(home)], first);
    assert_eq!(ns.page(Some(&page.next), 10).await.expect("a page").entries, []);
    let () = again(new, &fields[1].1).query_async(&mut redis).await.expect("an entry");
    let page = ns.page(Some(&read.next), 10).await.expect("a page");
    assert_eq!(page.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [first, new]);
    let rest = ns.page(Some(&page.next), 10).await.expect("a page");
    assert_eq!((rest.entries, rest.next), (Vec::new(), page.next));
    // All of it was lost.
    let () = redis::cmd("DEL").arg(&key).query_async(&mut redis).await.expect("deleted");
    let page = ns.page(Some(&page.next), 10).await.expect("a page");
    assert_eq!((page.entries, page.next[usize::from(home)]), (Vec::new(), StreamId::default()));
}

#[tokio::test]
async fn n16_a_store_without_crossings_has_none() {
    let mut ns = TestNamespace::new("none", NamespaceConfig::default()).await;
    ns.add_and_settle("a", 1_000).await;
    assert_eq!(ns.crossings().await, []);
    let (home, key) = ns.list_of("a").await;
    let mut redis = ns.redis.connection().await;
    let exists: bool = redis::cmd("EXISTS").arg(key).query_async(&mut redis).await.expect("an answer");
    assert!(!exists, "it costs nothing");
    assert_eq!(ns.store.redis.last_before(home, StreamId::default()).await, Ok(StreamId::default()));
}
