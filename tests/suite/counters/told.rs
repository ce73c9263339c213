//! Events are told in pages, whole and in their order, however many there are and however long ago (N12).

use super::*;
use rand::Rng;
use std::collections::BTreeSet;
use tallystone_counters::log::{GRANULE_MS, Told};

/// Long after the events before.
const LATER_MS: u64 = 5_000_000;

/// Five minutes of events of two counters, and some of an hour later: their times and tokens, of the one counter.
async fn furnished(seconds_per_bucket: u64, per_granule: u64) -> (Place, BTreeSet<(u64, String)>) {
    let config = NamespaceConfig {
        seconds_per_bucket,
        seconds_per_slice: 3_600,
        accept_limit_ms: 600_000,
        buckets_per_id: 2,
        ..NamespaceConfig::default()
    };
    let place = Place::new("told", config).await;
    let (mut adds, mut expected) = (Vec::new(), BTreeSet::new());
    for granule in 0..600 {
        for number in 0..per_granule {
            let time_ms = NOON_MS - 300_000 + granule * GRANULE_MS + rand::rng().random_range(0..GRANULE_MS);
            let token = format!("{granule} {number}");
            adds.push(add(if number % 3 == 0 { "other" } else { "c" }, &token, time_ms, 1));
            if number % 3 != 0 {
                expected.insert((time_ms, token));
            }
        }
    }
    for answer in place.store.append(&adds).await {
        answer.expect("an add");
    }
    place.pass(LATER_MS);
    place.append_one(add("c", "later", place.now_ms(), 1)).await.expect("an add");
    expected.insert((place.now_ms(), "later".to_owned()));
    (place, expected)
}

#[tokio::test]
async fn n12_every_event_is_told_once_and_in_its_order_however_it_is_asked_for() {
    // Buckets with more fields than are asked for at once, and more buckets than that.
    for (seconds_per_bucket, per_granule) in [(60, 30), (1, 5)] {
        let (place, expected) = furnished(seconds_per_bucket, per_granule).await;
        let end = place.now_ms() / GRANULE_MS + 1;
        for enough in [1, 100, usize::MAX] {
            let (mut next, mut found, mut calls) = (0, Vec::new(), 0);
            while next < end {
                let told: Told = place.store.events(&counter("c"), next..end, enough).await.expect("events");
                assert!(told.next > next && told.next <= end, "{} after {next}, to {end}", told.next);
                let is_within = |event: &Event| (next..told.next).contains(&(event.time_ms / GRANULE_MS));
                assert!(told.events.iter().all(is_within), "beside {next} to {}", told.next);
                found.extend(told.events.into_iter().map(|event| (event.time_ms, event.token.to_string())));
                (next, calls) = (told.next, calls + 1);
            }
            assert!(found.iter().eq(&expected), "{enough} of {seconds_per_bucket} s: {} found", found.len());
            let calls_max = if enough == usize::MAX { 10 } else { 700 };
            assert!((2..=calls_max).contains(&calls), "{calls} calls for {enough} of {seconds_per_bucket} s");
        }
        // From the middle of them, and to it.
        let middle = (NOON_MS - 150_250) / GRANULE_MS;
        let told = place.store.events(&counter("c"), middle..middle + 3, usize::MAX).await.expect("events");
        let is_there = |(time_ms, _): &&(u64, String)| (middle..middle + 3).contains(&(time_ms / GRANULE_MS));
        assert_eq!((told.events.len(), told.next), (expected.iter().filter(is_there).count(), middle + 3));
    }
}
