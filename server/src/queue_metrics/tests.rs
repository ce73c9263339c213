//! Which queues have series, what the sums hold, and what is read from the store.

use super::*;
use crate::health::StoreHealth;
use crate::testing::{TestStore, shard_of};
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_lua::keys::Keyspace;
use tallystone_model::store::Depth;
use tallystone_model::{MessageId, NewMessage, QueueConfig, QueueName, Refusal, Store};

fn queue(name: &str) -> QueueName {
    QueueName::parse("queue", name).unwrap()
}

fn page(board: &Board) -> String {
    let mut text = String::new();
    write(board, &mut text);
    text
}

/// The values of a metric by queue; with other labels, by all labels.
fn values(board: &Board, metric: &str) -> BTreeMap<String, f64> {
    let page = page(board);
    let of = |line: &str| {
        let (labels, value) = line.strip_prefix(metric)?.strip_prefix("{queue=\"")?.split_once("\"} ")?;
        Some((labels.to_owned(), value.parse().unwrap()))
    };
    page.lines().filter_map(of).collect()
}

fn enqueued(board: &Board) -> Vec<(String, u64)> {
    values(board, "tallystone_queue_enqueued_total").into_iter().map(|(queue, value)| (queue, value as u64)).collect()
}

/// The walk over the only partition.
fn stored(depths: &[(&str, u64)]) -> [Option<BTreeMap<QueueName, Depth>>; 1] {
    let of = |(name, pending): &(&str, u64)| (queue(name), Depth { pending: *pending, ..Depth::default() });
    [Some(depths.iter().map(of).collect())]
}

fn named(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn o1_series_are_bounded_and_the_sum_of_all_never_falls() {
    let board = Board::new(Some(2), 1);
    let [a, b, c, jobs] = ["a", "b", "c", "rollup/n"].map(|name| board.tally(&queue(name)));
    for (tally, number) in [(&a, 10), (&b, 20), (&c, 30), (&jobs, 5)] {
        tally.add(Counted::Enqueued, number);
    }
    assert_eq!(enqueued(&board), named(&[("(other)", 30), ("(rollup)", 5), ("a", 10), ("b", 20)]));
    // c has not more than twice as much as a, which it would replace: nothing changes.
    board.rank(&stored(&[("a", 20), ("b", 90), ("c", 25), ("rollup/n", 7)]));
    assert_eq!(enqueued(&board), named(&[("(other)", 30), ("(rollup)", 5), ("a", 10), ("b", 20)]));
    c.add(Counted::Enqueued, 100);
    board.rank(&stored(&[("a", 20), ("b", 90), ("c", 25), ("rollup/n", 7)]));
    // Its series begins at 0, because the sum has what came before; what a has shown is in no sum.
    assert_eq!(enqueued(&board), named(&[("(other)", 130), ("(rollup)", 5), ("b", 20), ("c", 0)]));
    c.add(Counted::Enqueued, 1);
    a.add(Counted::Enqueued, 2);
    assert_eq!(enqueued(&board), named(&[("(other)", 132), ("(rollup)", 5), ("b", 20), ("c", 1)]));
}

#[test]
fn o1_a_queue_that_is_gone_has_no_series_and_its_place_is_free() {
    let board = Board::new(Some(1), 1);
    let a = board.tally(&queue("a"));
    a.add(Counted::Enqueued, 1);
    board.rank(&stored(&[("a", 1), ("deep", 2)]));
    assert_eq!(enqueued(&board), named(&[("(other)", 0), ("(rollup)", 0), ("a", 1)]));
    board.rank(&stored(&[("deep", 1)]));
    assert_eq!(enqueued(&board), named(&[("(other)", 0), ("(rollup)", 0), ("deep", 0)]));
    // Its lane still counts, until it ends: into the sum.
    let a = board.tally(&queue("a"));
    a.add(Counted::Enqueued, 3);
    assert_eq!(enqueued(&board), named(&[("(other)", 3), ("(rollup)", 0), ("deep", 0)]));
    board.forget(&queue("a"), a);
    assert_eq!(enqueued(&board), named(&[("(other)", 3), ("(rollup)", 0), ("deep", 0)]));
}

#[test]
fn x3_queues_of_a_partition_that_is_not_read_keep_their_series() {
    let board = Board::new(Some(10), 2);
    let [here, away] = [0, 1].map(|number| {
        let name = (0..).map(|n| format!("q{n}")).find(|name| Keyspace::number_of_queue(&queue(name), 2) == number);
        name.expect("a name")
    });
    board.tally(&queue(&here)).add(Counted::Enqueued, 1);
    board.tally(&queue(&away)).add(Counted::Enqueued, 2);
    let [of_here] = stored(&[(&here, 7)]);
    board.rank(&[of_here, None]);
    board.has_read(0, tokio::time::Instant::now());
    let series = enqueued(&board);
    assert!(series.contains(&(here.clone(), 1)) && series.contains(&(away.clone(), 2)), "{series:?}");
    let messages = values(&board, "tallystone_queue_messages");
    let pending = |name: &str| messages.get(&format!("{name}\",state=\"pending")).copied();
    assert_eq!((pending(&here), pending(&away)), (Some(7.0), None), "nothing is said that is not known");
}

#[test]
fn o1_refusals_are_counted_by_reason() {
    let board = Board::new(Some(1), 1);
    let tally = board.tally(&queue("a"));
    tally.refused(&Refusal::StoreFull { of: tallystone_model::Resource::Memory });
    tally.refusals("TOO_MANY_WAITERS", metrics::Counter::noop()).increment(2);
    let refused = values(&board, "tallystone_queue_refused_total");
    let expected = [("a\",reason=\"STORE_FULL".to_owned(), 1.0), ("a\",reason=\"TOO_MANY_WAITERS".to_owned(), 2.0)];
    assert_eq!(refused, expected.into());
}

#[tokio::test(start_paused = true)]
async fn o1_depths_and_ages_follow_the_store_and_a_queue_at_rest_is_not_read() {
    let store = TestStore::new();
    let board = Board::new(Some(10), 1);
    for name in ["empty", "used"] {
        store.oracle.create_queue(&queue(name), QueueConfig::default()).await.unwrap();
    }
    let new = NewMessage::new(MessageId::parse("id", "m").unwrap(), 0);
    store.oracle.enqueue(&shard_of("used"), vec![new]).await.unwrap();
    store.clock_ms.fetch_add(5_000, std::sync::atomic::Ordering::SeqCst);
    tokio::spawn(read_often(store.clone(), board.clone(), StoreHealth::of(1)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ages = values(&board, "tallystone_queue_oldest_pending_age_seconds");
    assert_eq!(ages.get("empty"), Some(&0.0));
    assert!((5.0..7.0).contains(&ages["used"]), "{ages:?}");
    let pending =
        |name: &str| values(&board, "tallystone_queue_messages").get(&format!("{name}\",state=\"pending")).copied();
    assert_eq!((pending("used"), pending("empty")), (Some(1.0), Some(0.0)));

    // The empty queue is read in walks only.
    let before = store.calls("depth");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(store.calls("depth") - before, 5, "one for each reading of the other queue");
    store.away.store(true, std::sync::atomic::Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(pending("used"), None, "nothing is said that is not known");
    store.away.store(false, std::sync::atomic::Ordering::SeqCst);
    store.oracle.purge(&shard_of("used"), true, "").await.unwrap();
    store.oracle.delete_queue(&queue("used")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!((pending("used"), pending("empty")), (None, Some(0.0)), "a deleted queue has no series");
}
