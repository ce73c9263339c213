//! The rows of events: those of the objects that are right.

use super::{Node, rows};
use crate::cassandra::events::EventRows;
use crate::event::COUNTER_ID_BYTES;
use crate::rows::{SliceKey, Tables};
use crate::{Archive, ArchiveError, ArchivedEvent, NewObject, Scope, ShardSpan};
use scylla::client::session::Session;
use scylla::value::CqlTimestamp;
use std::collections::{BTreeSet, HashSet};

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;
const SLICE_MS: u64 = 600_000;

/// The columns of a row, in their order.
type EventRow = (String, i64, i32, String, Option<i64>, Option<String>, Option<String>);
type RawRow = (String, CqlTimestamp, i32, String, Option<i64>, Option<String>, Option<String>);

fn event(shard: u16, counter: u8, at_ms: u64, token: &str, delta: Option<i64>) -> ArchivedEvent {
    ArchivedEvent {
        shard,
        counter_id: [counter; COUNTER_ID_BYTES],
        counter: Some(format!("counter {counter}").into()),
        time_ms: NOON_MS + at_ms,
        token: token.into(),
        delta,
        source: None,
        event_item_key: None,
    }
}

fn row(event: &ArchivedEvent) -> EventRow {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let (source, item) = (text(&event.source), text(&event.event_item_key));
    let counter = event.counter_key().into_owned();
    (counter, event.time_ms as i64, event.shard.into(), event.token.to_string(), event.delta, source, item)
}

fn span(shard: u16, from_ms: u64, to_ms: u64) -> ShardSpan {
    ShardSpan { shard, from_ms: NOON_MS + from_ms, to_ms: NOON_MS + to_ms }
}

fn object(written_ms: u64, spans: &[ShardSpan], events: &[ArchivedEvent]) -> NewObject {
    let (spans, events) = (spans.to_vec(), events.to_vec());
    NewObject { slice_ms: NOON_MS, slice_length_ms: SLICE_MS, written_ms, spans, events }
}

/// All rows of a namespace.
async fn of_namespace(session: &Session, namespace: &str) -> BTreeSet<EventRow> {
    let cql = "SELECT counter, time, shard, event_token, delta, source, event_item_key FROM KS.events \
               WHERE namespace = 'NS' ALLOW FILTERING";
    let raw: Vec<RawRow> = rows(session, &cql.replace("NS", namespace)).await;
    raw.into_iter()
        .map(|(counter, time, shard, token, delta, source, item)| (counter, time.0, shard, token, delta, source, item))
        .collect()
}

fn expected(events: &[ArchivedEvent]) -> BTreeSet<EventRow> {
    events.iter().map(row).collect()
}

async fn begun(node: &Node, namespace: &str) -> Archive {
    let archive = node.archive();
    archive.begin(namespace, None).await.unwrap();
    archive
}

#[tokio::test]
async fn n21_each_archived_event_is_a_row_to_query() {
    let node = Node::shared().await;
    let (archive, session) = (begun(&node, "ads").await, node.session().await);
    let mut events =
        vec![event(0, 1, 5, "one", Some(4)), event(1, 1, 6, "two", Some(-9)), event(0, 1, 7, "clear", None)];
    events.push(ArchivedEvent { counter: None, ..event(0, 2, 8, "unnamed", Some(1)) });
    events.push(ArchivedEvent {
        source: Some("eu".into()),
        event_item_key: Some("item".into()),
        ..event(1, 3, 9, "labels", Some(i64::MIN))
    });
    // More than one request takes.
    events.extend((0..250).map(|number| event(0, 4, 10, &format!("{number:03}"), Some(number))));
    let spans = [span(0, 0, 100), span(1, 0, 100)];
    let written = archive.write("ads", object(1, &spans, &events)).await.unwrap();
    assert_eq!(written.rows, 255);
    assert_eq!(of_namespace(&session, "ads").await, expected(&events));
    // As docs/counters.md has it: one partition, in the order of time.
    let cql = "SELECT event_token, delta FROM KS.events WHERE namespace = 'ads' AND counter = 'counter 1' \
               AND slice = '2026-11-20T12:00:00Z' AND time >= '2026-11-20T12:00:00.006Z'";
    assert_eq!(rows::<(String, Option<i64>)>(&session, cql).await, [("two".into(), Some(-9)), ("clear".into(), None)]);
    let sum = "SELECT sum(delta) FROM KS.events WHERE namespace = 'ads' AND counter = 'counter 4' \
               AND slice = '2026-11-20T12:00:00Z'";
    assert_eq!(rows::<(i64,)>(&session, sum).await, [(249 * 250 / 2,)]);
    let unnamed = hex::encode([2; COUNTER_ID_BYTES]);
    assert!(of_namespace(&session, "ads").await.iter().any(|row| row.0 == unnamed));

    // The next slice, and another namespace.
    let later = event(0, 1, SLICE_MS + 1, "later", Some(2));
    let next = NewObject {
        slice_ms: NOON_MS + SLICE_MS,
        ..object(2, &[span(0, SLICE_MS, SLICE_MS + 9)], std::slice::from_ref(&later))
    };
    archive.write("ads", next).await.unwrap();
    archive.begin("others", None).await.unwrap();
    archive.write("others", object(1, &spans, &events[..3])).await.unwrap();
    assert_eq!(archive.delete_before("ads", SLICE_MS, NOON_MS + SLICE_MS).await.unwrap(), 1);
    assert_eq!(of_namespace(&session, "ads").await, expected(&[later]));
    assert_eq!(archive.slices("ads").await.unwrap(), [NOON_MS + SLICE_MS].into());
    assert_eq!(archive.delete_namespace("ads").await.unwrap(), 2, "an object and the mark");
    assert_eq!(of_namespace(&session, "ads").await, [].into());
    for table in ["objects", "folders", "versions"] {
        let column = if table == "folders" { "parent" } else { "folder" };
        let keys: Vec<(String,)> = rows(&session, &format!("SELECT {column} FROM KS.{table}")).await;
        let left: Vec<_> = keys.into_iter().filter(|(key,)| key.starts_with("ads")).collect();
        assert_eq!(left, [], "{table}");
    }
    let lists = "SELECT counter FROM KS.event_counters WHERE namespace = 'ads' ALLOW FILTERING";
    assert_eq!(rows::<(String,)>(&session, lists).await, []);
    assert_eq!(of_namespace(&session, "others").await, expected(&events[..3]), "another namespace keeps its rows");
    assert_eq!(archive.delete_namespace("ads").await.unwrap(), 0);
}

#[tokio::test]
async fn n21_a_span_that_is_written_again_has_the_rows_of_its_later_object() {
    let node = Node::shared().await;
    let (archive, session) = (begun(&node, "again").await, node.session().await);
    let (kept, lost) = (event(0, 1, 5, "kept", Some(1)), event(0, 1, 6, "lost", Some(2)));
    let labelled = ArchivedEvent { source: Some("eu".into()), ..event(0, 2, 7, "changed", Some(3)) };
    let (outside, elsewhere) = (event(0, 1, 25, "outside", Some(4)), event(1, 1, 5, "other shard", Some(5)));
    let first = [kept.clone(), lost.clone(), labelled.clone(), outside.clone(), elsewhere.clone()];
    archive.write("again", object(10, &[span(0, 0, 30), span(1, 0, 30)], &first)).await.unwrap();
    assert_eq!(of_namespace(&session, "again").await, expected(&first));
    // The store has lost its last writes, and other adds came.
    let changed = ArchivedEvent { source: None, delta: Some(30), ..labelled };
    let new = event(0, 3, 8, "new", Some(6));
    archive.write("again", object(20, &[span(0, 0, 20)], &[kept.clone(), changed.clone(), new.clone()])).await.unwrap();
    let right = expected(&[kept.clone(), changed, new, outside, elsewhere]);
    assert_eq!(of_namespace(&session, "again").await, right);
    // What an earlier archiver still sends changes nothing.
    let slice = SliceKey { namespace: "again", slice_ms: NOON_MS };
    let tables = EventRows::over(node.connection());
    tables.put_events(slice, 10, vec![&lost, &kept], &HashSet::new()).await.unwrap();
    assert_eq!(of_namespace(&session, "again").await, right);
    // Nor does an object of before that comes late: where it alone says something, it is right.
    let alone = event(2, 1, 5, "alone", Some(7));
    let late = object(15, &[span(0, 0, 20), span(2, 0, 20)], &[lost.clone(), alone.clone()]);
    archive.write("again", late).await.unwrap();
    let right: BTreeSet<_> = right.into_iter().chain([row(&alone)]).collect();
    assert_eq!(of_namespace(&session, "again").await, right);
    assert!(archive.merge("again", NOON_MS, true).await.unwrap() > 0);
    assert_eq!(of_namespace(&session, "again").await, right, "a merge changes no row");
    let scope = Scope {
        slice_length_ms: SLICE_MS,
        counter_id: [1; COUNTER_ID_BYTES],
        shards: [0, 1, 2].map(|shard| (shard, u64::MAX)).into(),
        times_ms: NOON_MS..NOON_MS + 20,
        kept_from_ms: 0,
    };
    let scanned = archive.scan("again", &scope, 100, 100).await.unwrap().events;
    let tokens: BTreeSet<&str> = scanned.iter().map(|event| &*event.token).collect();
    assert_eq!(tokens, ["kept", "other shard", "alone"].into(), "objects and rows say the same");
    archive.delete_namespace("again").await.unwrap();
    tables.put_events(slice, 10, vec![&lost], &HashSet::new()).await.unwrap();
    assert_eq!(of_namespace(&session, "again").await, [].into(), "what was deleted does not come back");
}

/// A pass that is under way while its namespace is deleted.
#[tokio::test]
async fn n21_what_comes_after_a_deletion_has_no_rows_and_goes_with_the_next_one() {
    let node = Node::shared().await;
    let (archive, session) = (begun(&node, "late").await, node.session().await);
    let (spans, events) = ([span(0, 0, 10)], [event(0, 1, 5, "one", Some(1)), event(0, 2, 6, "two", None)]);
    archive.write("late", object(10, &spans, &events[..1])).await.unwrap();
    assert_eq!(archive.delete_namespace("late").await.unwrap(), 2);
    // The time of the deleted object, and a later one.
    for written_ms in [10, 11] {
        let error = archive.write("late", object(written_ms, &spans, &events)).await.unwrap_err();
        assert!(matches!(error, ArchiveError::NoMark { .. }), "{error}");
        assert_eq!(of_namespace(&session, "late").await, [].into());
    }
    assert_eq!(archive.delete_namespace("late").await.unwrap(), 2, "both are listed");
    for (table, column) in [("objects", "folder"), ("versions", "folder"), ("folders", "parent")] {
        let keys: Vec<(String,)> = rows(&session, &format!("SELECT {column} FROM KS.{table}")).await;
        assert!(!keys.iter().any(|(key,)| key.starts_with("late")), "{table}: {keys:?}");
    }
    let lists = "SELECT counter FROM KS.event_counters WHERE namespace = 'late' ALLOW FILTERING";
    assert_eq!(rows::<(String,)>(&session, lists).await, []);
}

/// Neither has found the object of the other before it wrote its own.
#[tokio::test]
async fn n21_of_two_writers_at_once_the_later_object_has_the_rows() {
    let node = Node::shared().await;
    let (archive, other, session) = (begun(&node, "both").await, node.archive(), node.session().await);
    let mut right = BTreeSet::new();
    for round in 0..10 {
        let at_ms = 10 * round;
        let spans = [span(0, at_ms, at_ms + 10)];
        let earlier = [event(0, 1, at_ms, "both", Some(1)), event(0, 1, at_ms, "earlier", Some(2))];
        let later = [event(0, 1, at_ms, "both", Some(3)), event(0, 2, at_ms, "later", Some(4))];
        let (earlier, later_object) = (object(2 * round + 1, &spans, &earlier), object(2 * round + 2, &spans, &later));
        let (one, two) = if round % 2 == 0 { (earlier, later_object) } else { (later_object, earlier) };
        let (one, two) = futures::join!(archive.write("both", one), other.write("both", two));
        one.and(two).unwrap();
        right.extend(later.iter().map(row));
        assert_eq!(of_namespace(&session, "both").await, right, "round {round}");
    }
}

/// A random number, from a seed of the test.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// Objects in any order of their times of writing: the rows are those that a list of all objects says are right.
#[tokio::test]
async fn n21_rows_follow_the_objects_in_whatever_order_they_come() {
    let node = Node::shared().await;
    let (archive, session) = (begun(&node, "random").await, node.session().await);
    let mut seed = 7;
    let mut times: Vec<u64> = (1..=24).collect();
    for at in (1..times.len()).rev() {
        times.swap(at, draw(&mut seed, at as u64 + 1) as usize);
    }
    let mut written: Vec<(u64, Vec<ShardSpan>, Vec<ArchivedEvent>)> = Vec::new();
    for written_ms in times {
        let spans: Vec<ShardSpan> = (0..2)
            .map(|shard| {
                let from_ms = draw(&mut seed, 8);
                span(shard, from_ms, from_ms + 1 + draw(&mut seed, 4))
            })
            .collect();
        let in_span =
            |span: ShardSpan| (span.from_ms - NOON_MS..span.to_ms - NOON_MS).map(move |at_ms| (span.shard, at_ms));
        let mut events: Vec<ArchivedEvent> = Vec::new();
        for (shard, at_ms) in spans.iter().copied().flat_map(in_span) {
            for token in ["a", "b"] {
                if draw(&mut seed, 2) == 0 {
                    let source = (draw(&mut seed, 2) == 0).then(|| "eu".into());
                    let delta = Some(draw(&mut seed, 3) as i64);
                    events.push(ArchivedEvent { source, ..event(shard, at_ms as u8 % 3, at_ms, token, delta) });
                }
            }
        }
        archive.write("random", object(written_ms, &spans, &events)).await.unwrap();
        written.push((written_ms, spans, events));
        let has =
            |spans: &[ShardSpan], event: &ArchivedEvent| spans.iter().any(|span| span.has(event.shard, event.time_ms));
        let is_right = |written_ms: &u64, event: &&ArchivedEvent| {
            !written.iter().any(|(later_ms, spans, _)| later_ms > written_ms && has(spans, event))
        };
        let right: BTreeSet<EventRow> = written
            .iter()
            .flat_map(|(written_ms, _, events)| events.iter().filter(|event| is_right(written_ms, event)).map(row))
            .collect();
        assert_eq!(of_namespace(&session, "random").await, right, "after the object of {written_ms}");
    }
}
