//! Random objects, compared with a list of them.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The numbers that make an event: shard, counter, time, token.
type Numbers = (u16, u8, u64, u8);

/// The numbers that make an object: its spans (shard, begin, length), and events.
type Drawn = (Vec<(u16, u64, u64)>, Vec<Numbers>);

/// Objects as they may follow each other, in the order in which they are written.
fn objects() -> impl Strategy<Value = Vec<Drawn>> {
    let span = (0..3_u16, 0..40_u64, 1..20_u64);
    let event = (0..3_u16, 0..4_u8, 0..60_u64, 0..3_u8);
    prop::collection::vec((prop::collection::vec(span, 1..4), prop::collection::vec(event, 0..60)), 1..9)
}

/// The event that these numbers make; its delta says which object has it. Adds of every other object may have labels.
fn drawn((shard, counter, at_ms, token): Numbers, written: usize) -> ArchivedEvent {
    let delta = (!written.is_multiple_of(5)).then_some(written as i64);
    let event = event(shard, counter, at_ms, &format!("t{token}"), delta);
    let has_labels = delta.is_some() && !written.is_multiple_of(2);
    let source = (has_labels && token > 0).then(|| format!("s{shard}").into());
    ArchivedEvent { source, event_item_key: (has_labels && token == 1).then(|| "é".into()), ..event }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn n15_random_objects_are_what_a_list_of_them_says(
        drawn_objects in objects(),
        merges in 0..512_u32,
        enough in 1..9_usize,
        most in 1..4_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(compare(drawn_objects, merges, enough, most));
    }
}

async fn compare(drawn_objects: Vec<Drawn>, merges: u32, enough: usize, most: usize) {
    let (folder, archive) = folder().await;
    let mut written: Vec<(Vec<ShardSpan>, Vec<ArchivedEvent>)> = Vec::new();
    for (number, (spans, events)) in drawn_objects.into_iter().enumerate() {
        let spans: Vec<ShardSpan> =
            spans.into_iter().map(|(shard, from, length)| span(shard, from, from + length)).collect();
        let all: BTreeSet<Numbers> = events.into_iter().collect();
        let events = all.into_iter().map(|numbers| drawn(numbers, number));
        let events = events.filter(|event| spans.iter().any(|span| span.has(event.shard, event.time_ms)));
        let events: Vec<ArchivedEvent> = events.collect();
        archive.write(NS, object(number as u64, spans.clone(), events.clone())).await.unwrap();
        written.push((spans, events));
        // It changes nothing of what follows.
        if merges >> number & 1 == 1 {
            let deleted = archive.merge(NS, NOON_MS, true).await.unwrap();
            assert_eq!(deleted > 0, number > 0, "one object is left");
            let rest = archive.merge(NS, NOON_MS, true).await.unwrap();
            assert_eq!((rest, files(folder.path()).len()), (0, 1));
        }
    }
    // The last object with a span says what is in it.
    let right = |shard: u16, time_ms: u64| {
        let mut latest_first = written.iter().rev();
        latest_first.find(|(spans, _)| spans.iter().any(|span| span.has(shard, time_ms))).map(|(_, events)| events)
    };
    let mut wanted = Vec::new();
    for (shard, counter, at_ms, token) in
        (0..3).flat_map(|s| (0..4).flat_map(move |c| (0..60).flat_map(move |a| (0..3).map(move |t| (s, c, a, t)))))
    {
        wanted.push(key(&drawn((shard, counter, at_ms, token), 0)));
    }
    let found = archive.found(NS, &wanted).await.unwrap();
    for (wanted, found) in wanted.iter().zip(found) {
        let events = right(wanted.shard, wanted.time_ms).map(Vec::as_slice).unwrap_or_default();
        let is = events.iter().find(|event| key(event) == *wanted);
        let is = is.cloned().map(|ArchivedEvent { delta, source, event_item_key, .. }| Found {
            delta,
            source,
            event_item_key,
        });
        assert_eq!(found, is, "{wanted:?}");
    }
    for counter in 0..4 {
        let all = written.iter().flat_map(|(_, events)| events).filter(|event| event.counter_id == id(counter));
        let is_right = |event: &&ArchivedEvent| {
            right(event.shard, event.time_ms).is_some_and(|events| events.iter().any(|other| other == *event))
        };
        let mut expected: Vec<ArchivedEvent> = Vec::new();
        for event in all.filter(is_right) {
            // Two objects may have the same event; the one that is right has it once.
            if !expected.contains(event) {
                expected.push(event.clone());
            }
        }
        let order = |event: &ArchivedEvent| (event.time_ms, event.token.clone(), event.shard);
        expected.sort_by_key(order);
        let (mut next_ms, mut scanned) = (NOON_MS, Vec::new());
        while next_ms < NOON_MS + 70 {
            let part = Scope { times_ms: next_ms..NOON_MS + 70, ..scope(counter, 0, 0) };
            let scan = archive.scan(NS, &part, enough, most).await.unwrap();
            assert!(scan.next_ms > next_ms, "it goes on");
            assert!(scan.events.iter().all(|event| (next_ms..scan.next_ms).contains(&event.time_ms)));
            scanned.extend(scan.events);
            next_ms = scan.next_ms;
        }
        scanned.sort_by_key(order);
        assert_eq!(scanned, expected, "counter {counter}");
    }
}
