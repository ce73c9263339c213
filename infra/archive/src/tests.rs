//! The archive in a folder, compared with a list of everything that was written.

use crate::event::COUNTER_ID_BYTES;
use crate::{Archive, ArchiveError, ArchivedEvent, EventKey, EventLookup, Found, NewObject, Reached, Scope, ShardSpan};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

mod hostile;
mod lists;
mod merging;
mod random;

const NS: &str = "ads";
/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;
const SLICE_MS: u64 = 600_000;

async fn folder() -> (TempDir, Archive) {
    let folder = tempfile::tempdir().unwrap();
    let archive = again(&folder);
    archive.begin(NS, None).await.unwrap();
    (folder, archive)
}

/// An answer, without why there is no event.
fn event_of(known: EventLookup) -> Option<Found> {
    match known {
        EventLookup::Has(found) => Some(found),
        EventLookup::HasNot | EventLookup::TooEarly => None,
    }
}

impl Archive {
    /// The answers to all of these, in their order.
    async fn answers(
        &self,
        namespace: &str,
        wanted: &[EventKey],
    ) -> Result<Vec<Result<EventLookup, ArchiveError>>, ArchiveError> {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        self.find(namespace, SLICE_MS, wanted, &sender).await?;
        drop(sender);
        let mut answers: Vec<Option<Result<EventLookup, ArchiveError>>> = vec![None; wanted.len()];
        while let Some((number, answer)) = receiver.recv().await {
            assert!(answers[number].replace(answer).is_none(), "event {number} is answered once");
        }
        Ok(answers.into_iter().map(|answer| answer.expect("every event is answered")).collect())
    }

    /// The events of which all are answered.
    async fn found(&self, namespace: &str, wanted: &[EventKey]) -> Result<Vec<Option<Found>>, ArchiveError> {
        self.answers(namespace, wanted).await?.into_iter().map(|answer| answer.map(event_of)).collect()
    }
}

/// The same archive, as another process opens it.
fn again(folder: &TempDir) -> Archive {
    Archive::open(&format!("file://{}", folder.path().join("deep/er").display())).unwrap()
}

fn id(number: u8) -> [u8; COUNTER_ID_BYTES] {
    [number; COUNTER_ID_BYTES]
}

fn event(shard: u16, counter: u8, at_ms: u64, token: &str, delta: Option<i64>) -> ArchivedEvent {
    let name = (!counter.is_multiple_of(3)).then(|| format!("counter {counter}").into());
    ArchivedEvent {
        shard,
        counter_id: id(counter),
        counter: name,
        time_ms: NOON_MS + at_ms,
        token: token.into(),
        delta,
        source: None,
        event_item_key: None,
    }
}

fn span(shard: u16, from_ms: u64, to_ms: u64) -> ShardSpan {
    ShardSpan { shard, from_ms: NOON_MS + from_ms, to_ms: NOON_MS + to_ms }
}

fn object(written_ms: u64, spans: Vec<ShardSpan>, events: Vec<ArchivedEvent>) -> NewObject {
    NewObject { slice_ms: NOON_MS, slice_length_ms: SLICE_MS, written_ms, spans, events }
}

fn key(event: &ArchivedEvent) -> EventKey {
    let ArchivedEvent { shard, counter_id, time_ms, token, .. } = event.clone();
    EventKey { shard, counter_id, time_ms, token }
}

fn scope(counter: u8, from_ms: u64, to_ms: u64) -> Scope {
    Scope {
        slice_length_ms: SLICE_MS,
        counter_id: id(counter),
        shards: [0, 1, 2].map(|shard| (shard, u64::MAX)).into(),
        times_ms: NOON_MS + from_ms..NOON_MS + to_ms,
        kept_from_ms: 0,
    }
}

async fn has(archive: &Archive, event: &ArchivedEvent) -> bool {
    let found = archive.found(NS, &[key(event)]).await.unwrap().remove(0);
    assert!(found.as_ref().is_none_or(|found| found.delta == event.delta), "{event:?}");
    found.is_some()
}

/// The objects of an archive, without the marks.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some() {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn n15_what_was_written_reads_back_and_nothing_else() {
    let (_folder, archive) = folder().await;
    let deltas = [0, 1, -1, 255, -32_769, i64::MIN, i64::MAX].map(Some).into_iter().chain([None]);
    let token = |number: usize| if number == 0 { "é".repeat(32) } else { format!("t-{number}") };
    let events: Vec<ArchivedEvent> = deltas
        .enumerate()
        .map(|(number, delta)| event(number as u16 % 2, number as u8, number as u64, &token(number), delta))
        .collect();
    let written = archive.write(NS, object(1, vec![span(0, 0, 10), span(1, 0, 10)], events.clone())).await.unwrap();
    assert_eq!(written.rows, 8);
    for event in &events {
        assert!(has(&archive, event).await, "{event:?}");
        let scan = archive.scan(NS, &scope(event.counter_id[0], 0, 10), 100, 100).await.unwrap();
        assert_eq!((scan.events, scan.next_ms), (vec![event.clone()], NOON_MS + 10));
        let others = [
            ArchivedEvent { token: "other".into(), ..event.clone() },
            ArchivedEvent { time_ms: event.time_ms + 1, ..event.clone() },
            ArchivedEvent { shard: event.shard + 1, ..event.clone() },
            ArchivedEvent { counter_id: id(99), ..event.clone() },
        ];
        for other in others {
            assert!(!has(&archive, &other).await, "{other:?}");
        }
    }
    archive.begin("another", None).await.unwrap();
    assert_eq!(archive.found("another", &[key(&events[0])]).await.unwrap(), [None]);
    assert_eq!(archive.reached(NS, NOON_MS).await.unwrap(), Reached { written_ms: 1, to_ms: NOON_MS + 10 });
    assert_eq!(archive.reached(NS, 0).await.unwrap(), Reached::default());
    archive.check().await.unwrap();
}

/// The version and the columns of each object, in the order of their spans.
async fn columns(archive: &Archive) -> Vec<(bool, usize)> {
    let all = 0..u64::MAX;
    let objects = archive.reader.open(NS, NOON_MS, |_| std::slice::from_ref(&all).to_vec()).await.unwrap().objects;
    let columns = |footer: &crate::footer::Footer| footer.parquet.file_metadata().schema_descr().num_columns();
    objects.iter().map(|object| (object.footer.has_labels, columns(&object.footer))).collect()
}

/// Objects without labels are as they were before there were any, so that earlier programs read them, too.
#[tokio::test]
async fn n20_only_an_object_with_labels_has_their_columns_and_others_are_merged_with_it() {
    let (_folder, archive) = folder().await;
    let events: Vec<ArchivedEvent> = (0..4).map(|n| event(0, 1, 10 * n + 5, &format!("t{n}"), Some(1))).collect();
    let write = async |number: usize, event: ArchivedEvent| {
        let at = 10 * number as u64;
        archive.write(NS, object(at, vec![span(0, at, at + 10)], vec![event])).await.unwrap();
    };
    let mut expected = events.clone();
    expected[1].source = Some("eu".into());
    expected[2].event_item_key = Some("0198f6a2".into());
    for (number, event) in expected.iter().enumerate() {
        write(number, event.clone()).await;
    }
    assert_eq!(columns(&archive).await, [(false, 6), (true, 8), (true, 8), (false, 6)]);
    let scanned = async || archive.scan(NS, &scope(1, 0, 100), 100, 100).await.unwrap().events;
    assert_eq!(scanned().await, expected);
    assert_eq!(archive.merge(NS, NOON_MS, true).await.unwrap(), 4);
    assert_eq!(columns(&archive).await, [(true, 8)]);
    assert_eq!(scanned().await, expected);
    let found = archive.found(NS, &events.iter().map(key).collect::<Vec<_>>()).await.unwrap();
    let sources = found.iter().flatten().map(|found| found.source.as_deref());
    assert_eq!(sources.collect::<Vec<_>>(), [None, Some("eu"), None, None]);
    let keys = found.iter().flatten().map(|found| found.event_item_key.as_deref());
    assert_eq!(keys.collect::<Vec<_>>(), [None, None, Some("0198f6a2"), None]);
}

#[tokio::test]
async fn n15_an_object_has_each_event_once_and_none_outside_of_its_spans() {
    let (folder, archive) = folder().await;
    let refused = async |spans: Vec<ShardSpan>, events: Vec<ArchivedEvent>| {
        matches!(archive.write(NS, object(1, spans, events)).await, Err(ArchiveError::Invalid { .. }))
    };
    let one = event(0, 1, 5, "t", Some(1));
    assert!(refused(vec![span(0, 0, 10)], vec![one.clone(), one.clone()]).await, "twice");
    assert!(refused(vec![span(0, 0, 10)], vec![one.clone(), ArchivedEvent { delta: None, ..one.clone() }]).await);
    assert!(refused(vec![span(0, 0, 5)], vec![one.clone()]).await, "behind its end");
    assert!(refused(vec![span(1, 0, 10)], vec![one]).await, "of another shard");
    assert!(refused(vec![span(0, 0, SLICE_MS + 1)], Vec::new()).await, "out of the slice");
    assert!(refused(Vec::new(), Vec::new()).await, "no span");
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn n15_a_reader_fetches_only_the_row_groups_that_it_needs() {
    let (folder, archive) = folder().await;
    let events: Vec<ArchivedEvent> = (0..100_000_u32)
        .map(|number| {
            let token = format!("{:032x}", u128::from(number) * 0x9e37_79b9_7f4a_7c15);
            event(0, (number / 400) as u8, u64::from(number % 400), &token, Some(i64::from(number % 7)))
        })
        .collect();
    let written = archive.write(NS, object(1, vec![span(0, 0, 400)], events.clone())).await.unwrap();
    println!("{} bytes, {:.1} each", written.bytes, written.bytes as f64 / 1e5);
    assert!(has(&archive, &events[50_000]).await);
    // Other row groups may be anything: a reader that fetches them notices.
    let path = files(folder.path()).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(has(&archive, &events[99_999]).await);
    let first = archive.found(NS, &[key(&events[0])]).await;
    assert!(matches!(first, Err(ArchiveError::Damaged { .. })), "{first:?}");
}

#[tokio::test]
async fn n15_of_two_objects_the_later_one_is_right_where_both_have_a_span() {
    let (_folder, archive) = folder().await;
    let lost = [event(0, 1, 5, "lost", Some(1)), event(0, 1, 15, "lost", Some(1)), event(1, 1, 15, "kept", Some(1))];
    archive.write(NS, object(1, vec![span(0, 0, 20), span(1, 0, 20)], lost.to_vec())).await.unwrap();
    assert!(has(&archive, &lost[1]).await);
    let new = event(0, 1, 15, "new", Some(2));
    archive.write(NS, object(2, vec![span(0, 10, 20)], vec![new.clone()])).await.unwrap();
    assert!(has(&archive, &lost[0]).await, "before the later span");
    assert!(!has(&archive, &lost[1]).await, "in the later span");
    assert!(has(&archive, &lost[2]).await, "of another shard");
    assert!(has(&archive, &new).await);
    let scan = archive.scan(NS, &scope(1, 0, 30), 100, 100).await.unwrap();
    assert_eq!(scan.events, [lost[0].clone(), lost[2].clone(), new.clone()]);
    // Nothing is there any more, says an object without events.
    archive.write(NS, object(3, vec![span(0, 0, 20)], Vec::new())).await.unwrap();
    assert_eq!(archive.scan(NS, &scope(1, 0, 30), 100, 100).await.unwrap().events, [lost[2].clone()]);
}

#[tokio::test]
async fn n15_a_changed_byte_is_noticed() {
    let (folder, archive) = folder().await;
    let events: Vec<ArchivedEvent> =
        (0..500).map(|number| event(0, (number % 5) as u8, number, &format!("token {number}"), Some(1))).collect();
    archive.write(NS, object(1, vec![span(0, 0, 500)], events.clone())).await.unwrap();
    let path = files(folder.path()).remove(0);
    let right = std::fs::read(&path).unwrap();
    let keys: Vec<EventKey> = events.iter().map(key).collect();
    let whole = archive.found(NS, &keys).await.unwrap();
    assert!(whole.iter().all(Option::is_some));
    for at in (0..right.len()).step_by(37).chain([right.len() - 1]) {
        let mut bytes = right.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
        // Without the footer that this one has read before.
        let archive = again(&folder);
        match archive.found(NS, &keys).await {
            Err(ArchiveError::Damaged { .. }) => {}
            // The magic number at the begin is in no row group.
            found => assert!(at < 4 && found.unwrap() == whole, "byte {at} of {}", right.len()),
        }
    }
    for short in [0, 3, 8, right.len() / 2, right.len() - 1] {
        std::fs::write(&path, &right[..short]).unwrap();
        let archive = again(&folder);
        assert!(archive.found(NS, &keys).await.is_err(), "{short} bytes");
    }
}

#[tokio::test]
async fn n15_retention_deletes_whole_slices_and_a_deletion_one_namespace() {
    let (folder, archive) = folder().await;
    for (namespace, number) in ["a", "a:1", "a.b"].into_iter().flat_map(|namespace| [0, 1, 2].map(|n| (namespace, n))) {
        let at_ms = number * SLICE_MS;
        let new = NewObject {
            slice_ms: NOON_MS + at_ms,
            ..object(1, vec![span(0, at_ms, at_ms + 5)], vec![event(0, 1, at_ms, "t", Some(1))])
        };
        archive.begin(namespace, None).await.unwrap();
        archive.write(namespace, new).await.unwrap();
    }
    // What a writer leaves that dies.
    let other = files(folder.path()).into_iter().find(|file| file.to_string_lossy().contains("a.b")).unwrap();
    std::fs::write(other.with_extension("parquet#1"), b"PAR1").unwrap();
    let first = archive.reader.names("a", NOON_MS).await.unwrap();
    assert_eq!(first.len(), 1);
    let slice = files(folder.path()).into_iter().map(|file| file.parent().unwrap().to_owned());
    let first_of_a = slice.filter(|slice| slice.parent().is_some_and(|of| of.ends_with("a"))).min().unwrap();
    std::fs::write(first_of_a.join("object.parquet#1"), b"PAR1").unwrap();
    assert_eq!(archive.first_slice_ms("a").await.unwrap(), Some(NOON_MS));
    assert_eq!(archive.delete_before("a", SLICE_MS, NOON_MS + 2 * SLICE_MS - 1).await.unwrap(), 1);
    assert_eq!(archive.first_slice_ms("a").await.unwrap(), Some(NOON_MS + SLICE_MS));
    assert_eq!(archive.delete_namespace("a").await.unwrap(), 3, "two objects and the mark");
    assert!(matches!(archive.first_slice_ms("a").await, Err(ArchiveError::NoMark { .. })));
    for other in ["a:1", "a.b"] {
        let scan = archive.scan(other, &scope(1, 0, 3 * SLICE_MS), 100, 100).await.unwrap();
        assert_eq!((scan.events.len(), scan.next_ms), (3, NOON_MS + 3 * SLICE_MS), "{other}");
    }
}

/// One minute of a slice, with events of many counters.
fn minute(number: u64) -> NewObject {
    let from_ms = number * 1_000;
    let events = (0..300_u64)
        .map(|n| event((n % 2) as u16, (n % 7) as u8, from_ms + n * 3, &format!("{number}-{n}"), Some(n as i64)));
    let spans = [0, 1].map(|shard| span(shard, from_ms, from_ms + 1_000));
    object(number, spans.into(), events.collect())
}

async fn all_events(archive: &Archive) -> Vec<Vec<ArchivedEvent>> {
    let mut all = Vec::new();
    for counter in 0..7 {
        all.push(archive.scan(NS, &scope(counter, 0, SLICE_MS), usize::MAX, usize::MAX).await.unwrap().events);
    }
    all
}

#[tokio::test]
async fn n15_a_merge_changes_no_answer_even_if_it_dies() {
    let (folder, archive) = folder().await;
    for number in 0..40 {
        archive.write(NS, minute(number)).await.unwrap();
    }
    // Of a store that had lost its last writes: what this says replaces a part of two objects.
    let again = event(0, 1, 32_100, "again", Some(9));
    archive.write(NS, object(100, vec![span(0, 31_500, 32_500)], vec![again.clone()])).await.unwrap();
    let (before, reached) = (all_events(&archive).await, archive.reached(NS, NOON_MS).await.unwrap());
    assert!(before.concat().contains(&again) && before.concat().len() > 11_000);
    let saved: Vec<(PathBuf, Vec<u8>)> =
        files(folder.path()).into_iter().map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
    // 32 minutes, the object that overlaps the last of them, and the next minute, which that object overlaps, too.
    assert_eq!(archive.merge(NS, NOON_MS, false).await.unwrap(), 34);
    assert_eq!(archive.merge(NS, NOON_MS, false).await.unwrap(), 0, "too few are left");
    assert_eq!((files(folder.path()).len(), all_events(&archive).await == before), (8, true));
    // As if the merge had died before its deletions, and in the middle of them.
    for some in [saved.len(), 20] {
        saved.iter().take(some).for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
        let archive = self::again(&folder);
        assert!(all_events(&archive).await == before, "{some} objects are there twice");
        while archive.merge(NS, NOON_MS, true).await.unwrap() > 0 {
            assert!(all_events(&archive).await == before);
        }
        assert_eq!(files(folder.path()).len(), 1);
    }
    assert_eq!(archive.reached(NS, NOON_MS).await.unwrap(), reached);
    // What is written later still replaces what it overlaps.
    archive.write(NS, object(101, vec![span(0, 31_500, 32_500)], Vec::new())).await.unwrap();
    assert!(!all_events(&archive).await.concat().contains(&again));
    assert_eq!(archive.merge(NS, NOON_MS, true).await.unwrap(), 2);
    assert!(!all_events(&archive).await.concat().contains(&again));
}

/// The merged object is then the later one, byte for byte: it stays, and the other goes.
#[tokio::test]
async fn n15_an_object_that_replaces_another_entirely_is_the_merged_one() {
    let (folder, archive) = folder().await;
    let (replaced, right) = (event(0, 1, 13, "token", Some(1)), event(0, 1, 12, "token", Some(2)));
    archive.write(NS, object(0, vec![span(0, 13, 14)], vec![replaced.clone()])).await.unwrap();
    archive.write(NS, object(1, vec![span(0, 0, 14)], vec![right.clone()])).await.unwrap();
    assert_eq!(archive.merge(NS, NOON_MS, true).await.unwrap(), 1);
    assert_eq!(archive.merge(NS, NOON_MS, true).await.unwrap(), 0);
    assert_eq!(files(folder.path()).len(), 1);
    assert_eq!((has(&archive, &right).await, has(&archive, &replaced).await), (true, false));
}

#[tokio::test]
async fn n15_nothing_is_merged_with_a_damaged_object() {
    let (folder, archive) = folder().await;
    for number in 0..3 {
        archive.write(NS, minute(number)).await.unwrap();
    }
    let mut objects = files(folder.path());
    objects.sort();
    let right = std::fs::read(&objects[1]).unwrap();
    let mut wrong = right.clone();
    wrong[right.len() / 3] ^= 1;
    std::fs::write(&objects[1], &wrong).unwrap();
    let merged = archive.merge(NS, NOON_MS, true).await;
    assert!(matches!(merged, Err(ArchiveError::Damaged { .. })), "{merged:?}");
    assert_eq!(files(folder.path()).len(), 3);
    std::fs::write(&objects[1], right).unwrap();
    assert_eq!(archive.merge(NS, NOON_MS, true).await.unwrap(), 3);
}

/// A hot counter's events are read in parts that fit in memory, whatever the size of their objects.
#[tokio::test]
async fn n15_a_large_object_is_read_in_parts() {
    let (_folder, archive) = folder().await;
    let events = (0..400_000_u64).map(|n| event(0, 1, n, &format!("{n}"), Some(1))).collect::<Vec<_>>();
    archive.write(NS, object(1, vec![span(0, 0, 400_000)], events.clone())).await.unwrap();
    let (mut next_ms, mut read, mut parts) = (0, Vec::new(), 0);
    while next_ms < 400_000 {
        let part = archive.scan(NS, &scope(1, next_ms, 400_000), 100_000, 100).await.unwrap();
        assert!(part.events.len() <= 300_000, "{} at once", part.events.len());
        read.extend(part.events);
        (next_ms, parts) = (part.next_ms - NOON_MS, parts + 1);
    }
    assert!(read == events && parts == 2, "{} events in {parts} parts", read.len());
    // A page of a list needs few of them.
    let page = archive.scan(NS, &scope(1, 1_000, 400_000), 1_000, 100).await.unwrap().events;
    assert!(page.len() < 40_000 && page[..] == events[1_000..][..page.len()], "{} for 1000", page.len());
}

/// A disk that is not mounted, or the wrong bucket: nothing that was counted may look as if it never was.
#[tokio::test]
async fn n15_an_archive_without_the_mark_of_a_namespace_answers_nothing() {
    let (_folder, archive) = folder().await;
    let one = event(0, 1, 5, "t", Some(1));
    let is_unavailable = |answer: Result<(), ArchiveError>| matches!(answer, Err(ArchiveError::NoMark { .. }));
    assert!(is_unavailable(archive.found("other", &[key(&one)]).await.map(drop)));
    assert!(is_unavailable(archive.scan("other", &scope(1, 0, 5), 1, 1).await.map(drop)));
    assert!(is_unavailable(archive.reached("other", NOON_MS).await.map(drop)));
    assert!(is_unavailable(archive.first_slice_ms("other").await.map(drop)));
    archive.begin("other", None).await.unwrap();
    assert!(!has(&archive, &one).await);
}

#[test]
fn n15_an_address_is_a_folder() {
    for bad in ["", "/tmp", "file://relative", "s4://x", "s3://", "file:///proc/nowhere"] {
        assert!(matches!(Archive::open(bad), Err(ArchiveError::Invalid { .. })), "{bad}");
    }
    for with_password in ["cassandra://me:secret@host/events", "Cassandra://me:secret@host/events"] {
        let error = Archive::open(with_password).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("assandra") && !error.contains("secret"), "{error}");
    }
}
