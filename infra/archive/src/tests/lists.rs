//! Lists that lack objects, and objects that cannot be read (N15).

use super::merging::Merging;
use super::*;
use futures::stream::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectMeta, ObjectStore};
use std::sync::Arc;

/// The events of five objects that follow each other, 10 ms each, of shard 0.
async fn five(archive: &Archive) -> Vec<ArchivedEvent> {
    let events: Vec<ArchivedEvent> = (0..5).map(|n| event(0, 1, n * 10 + 5, &format!("{n}"), Some(1))).collect();
    for (number, event) in (0..).zip(&events) {
        let span = span(0, number * 10, number * 10 + 10);
        archive.write(NS, object(number, vec![span], vec![event.clone()])).await.unwrap();
    }
    events
}

/// Where the objects of a store are, in the order of their times.
async fn paths(objects: &InMemory) -> Vec<object_store::path::Path> {
    let all: Vec<ObjectMeta> = objects.list(None).try_collect().await.unwrap();
    let mut paths: Vec<_> = all.into_iter().map(|object| object.location).collect();
    paths.retain(|path| path.as_ref().ends_with(".parquet"));
    paths.sort();
    paths
}

/// The same store, of which some lists lack objects.
fn lacking(objects: &Arc<InMemory>, lacking: &[object_store::path::Path], lists: usize) -> Archive {
    let (reads_left, lacking_left) = (0.into(), lists.into());
    Archive::over(Arc::new(Merging { objects: objects.clone(), reads_left, lacking: lacking.to_vec(), lacking_left }))
}

/// The scope of shard 0, of which the archive has this.
fn of_shard_0(from_ms: u64, to_ms: u64, archived_to_ms: u64) -> Scope {
    Scope { shards: vec![(0, NOON_MS + archived_to_ms)], ..scope(1, from_ms, to_ms) }
}

fn is_unavailable<T: std::fmt::Debug>(answer: &Result<T, ArchiveError>) -> bool {
    matches!(answer, Err(ArchiveError::Unavailable { .. }))
}

/// A file system may show a list of before for some time: what it lacks may have counted.
#[tokio::test]
async fn n15_what_a_list_lacks_is_never_taken_for_uncounted() {
    let objects = Arc::new(InMemory::new());
    let writer = Archive::over(objects.clone());
    writer.begin(NS, Some(NOON_MS)).await.unwrap();
    assert_eq!(writer.gapless_from_ms(NS).await.unwrap(), Some(NOON_MS));
    let events = five(&writer).await;
    let keys: Vec<EventKey> = events.iter().map(key).collect();
    let missing = &paths(&objects).await[2..3];
    for lists in [0, 1, 1_000] {
        let archive = || lacking(&objects, missing, lists);
        let answers = archive().answers(NS, &keys).await.unwrap();
        for (number, answer) in answers.iter().enumerate() {
            if number == 2 && lists == 1_000 {
                assert!(is_unavailable(answer), "{answer:?}");
            } else {
                assert!(matches!(answer, Ok(EventLookup::Has(_))), "event {number}, {lists} lists: {answer:?}");
            }
        }
        let scan = archive().scan(NS, &of_shard_0(0, 50, 50), 100, 100).await;
        assert_eq!(is_unavailable(&scan), lists == 1_000, "{scan:?}");
        assert!(scan.is_err() || scan.unwrap().events == events);
    }
    // Behind what the archive must have, nothing is missing; before, something may be.
    let scan = async |archived_to_ms| writer.scan(NS, &of_shard_0(0, 60, archived_to_ms), 100, 100).await;
    assert_eq!(scan(50).await.unwrap().events, events);
    assert!(is_unavailable(&scan(55).await));
    let other = |at_ms: u64| EventKey { time_ms: NOON_MS + at_ms, token: "other".into(), ..keys[0].clone() };
    let wanted = [other(5), other(55), EventKey { time_ms: NOON_MS - SLICE_MS, ..keys[0].clone() }];
    let answers = writer.answers(NS, &wanted).await.unwrap();
    assert!(matches!(answers[..], [Ok(EventLookup::HasNot), Err(_), Ok(EventLookup::TooEarly)]), "{answers:?}");
}

/// Earlier versions have left gaps where there were no events. A list during a merge may have neither its inputs nor its result.
#[tokio::test]
async fn n15_where_there_may_be_gaps_two_lists_agree() {
    let objects = Arc::new(InMemory::new());
    let writer = Archive::over(objects.clone());
    writer.begin(NS, None).await.unwrap();
    assert_eq!(writer.gapless_from_ms(NS).await.unwrap(), None);
    let events = five(&writer).await;
    assert_eq!(writer.merge(NS, NOON_MS, true).await.unwrap(), 5);
    let archive = || async { lacking(&objects, &paths(&objects).await, 1) };
    let keys: Vec<EventKey> = events.iter().map(key).collect();
    let found = archive().await.found(NS, &keys).await.unwrap();
    assert!(found.iter().all(Option::is_some), "{found:?}");
    assert_eq!(archive().await.scan(NS, &of_shard_0(0, 100, 100), 100, 100).await.unwrap().events, events);
    let never = EventKey { time_ms: NOON_MS + 77, ..keys[0].clone() };
    assert!(matches!(archive().await.answers(NS, &[never]).await.unwrap()[..], [Ok(EventLookup::HasNot)]));
}

/// A loss of power has left a file without content: it concerns the times in its name, until a later object has them.
#[tokio::test]
async fn n15_an_object_that_cannot_be_read_refuses_only_what_it_alone_may_say() {
    let (folder, archive) = folder().await;
    let events = five(&archive).await;
    let mut all = files(folder.path());
    all.sort();
    std::fs::write(&all[2], b"").unwrap();
    let keys: Vec<EventKey> = events.iter().map(key).collect();
    let archive = again(&folder);
    let answers = archive.answers(NS, &keys).await.unwrap();
    for (number, answer) in answers.iter().enumerate() {
        let is_right = match answer {
            Ok(EventLookup::Has(_)) => number != 2,
            Err(ArchiveError::Damaged { .. }) => number == 2,
            _ => false,
        };
        assert!(is_right, "event {number}: {answer:?}");
    }
    let scan = async || archive.scan(NS, &of_shard_0(0, 50, 50), 100, 100).await;
    assert!(matches!(scan().await, Err(ArchiveError::Damaged { .. })));
    // A part of its times is not enough.
    archive.write(NS, object(7, vec![span(0, 20, 28)], vec![events[2].clone()])).await.unwrap();
    assert!(matches!(scan().await, Err(ArchiveError::Damaged { .. })));
    assert!(matches!(archive.answers(NS, &keys[2..3]).await.unwrap()[..], [Ok(EventLookup::Has(_))]));
    archive.write(NS, object(8, vec![span(0, 20, 30)], vec![events[2].clone()])).await.unwrap();
    assert_eq!(scan().await.unwrap().events, events);
    // Of another shard it may still have something.
    let of_two = Scope { shards: vec![(0, u64::MAX), (1, u64::MAX)], ..of_shard_0(0, 50, 50) };
    assert!(matches!(archive.scan(NS, &of_two, 100, 100).await, Err(ArchiveError::Damaged { .. })));
}

/// A damaged row group: the events of others are answered.
#[tokio::test]
async fn n15_a_damaged_row_group_fails_only_its_events() {
    let (folder, archive) = folder().await;
    let events: Vec<ArchivedEvent> = (0..40_000_u64).map(|n| event(0, 1, n, &format!("{n}"), Some(1))).collect();
    archive.write(NS, object(1, vec![span(0, 0, 40_000)], events.clone())).await.unwrap();
    let path = files(folder.path()).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let keys = [0, 20_000, 39_999].map(|number: usize| key(&events[number]));
    let answers = archive.answers(NS, &keys).await.unwrap();
    assert!(
        matches!(answers[..], [Err(ArchiveError::Damaged { .. }), Ok(EventLookup::Has(_)), Ok(EventLookup::Has(_))]),
        "{answers:?}"
    );
}
