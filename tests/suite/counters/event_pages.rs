//! Events are scan in pages, whole and in their order, however many there are and however long ago (N12).

use super::*;
use rand::Rng;
use std::collections::BTreeSet;
use tallystone_counters::log::{EventScan, WINDOW_MS};

/// Long after the events before.
const LATER_MS: u64 = 5_000_000;

/// Five minutes of events of two counters, and some of an hour later: their times and tokens, of the one counter.
async fn furnished(seconds_per_bucket: u64, per_window: u64) -> (TestNamespace, BTreeSet<(u64, String)>) {
    let config = NamespaceConfig {
        seconds_per_bucket,
        seconds_per_slice: 3_600,
        accept_limit_ms: 600_000,
        buckets_per_id: 2,
        ..NamespaceConfig::default()
    };
    let ns = TestNamespace::new("scan", config).await;
    let (mut adds, mut expected) = (Vec::new(), BTreeSet::new());
    for window in 0..600 {
        for number in 0..per_window {
            let time_ms = NOON_MS - 300_000 + window * WINDOW_MS + rand::rng().random_range(0..WINDOW_MS);
            let token = format!("{window} {number}");
            adds.push(add(if number % 3 == 0 { "other" } else { "c" }, &token, time_ms, 1));
            if number % 3 != 0 {
                expected.insert((time_ms, token));
            }
        }
    }
    for answer in ns.store.append(&adds).await {
        answer.expect("an add");
    }
    ns.pass(LATER_MS);
    ns.append_one(add("c", "later", ns.now_ms(), 1)).await.expect("an add");
    expected.insert((ns.now_ms(), "later".to_owned()));
    (ns, expected)
}

#[tokio::test]
async fn n12_every_event_is_read_once_and_in_order_whatever_the_page_size() {
    // Buckets with more fields than one command reads, and more buckets than that.
    for (seconds_per_bucket, per_window) in [(60, 30), (1, 5)] {
        let (ns, expected) = furnished(seconds_per_bucket, per_window).await;
        let end = ns.now_ms() / WINDOW_MS + 1;
        for enough in [1, 100, usize::MAX] {
            let (mut next, mut found, mut calls) = (0, Vec::new(), 0);
            while next < end {
                let scan: EventScan = ns.store.scan(&counter("c"), next..end, enough).await.expect("events");
                assert!(
                    scan.next_window > next && scan.next_window <= end,
                    "{} after {next}, to {end}",
                    scan.next_window
                );
                let is_within = |event: &Event| (next..scan.next_window).contains(&(event.time_ms / WINDOW_MS));
                assert!(scan.events.iter().all(is_within), "outside {next} to {}", scan.next_window);
                found.extend(scan.events.into_iter().map(|event| (event.time_ms, event.token.to_string())));
                (next, calls) = (scan.next_window, calls + 1);
            }
            assert!(found.iter().eq(&expected), "{enough} of {seconds_per_bucket} s: {} found", found.len());
            let calls_max = if enough == usize::MAX { 10 } else { 700 };
            assert!((2..=calls_max).contains(&calls), "{calls} calls for {enough} of {seconds_per_bucket} s");
        }
        // From the middle of them, and to it.
        let middle = (NOON_MS - 150_250) / WINDOW_MS;
        let scan = ns.store.scan(&counter("c"), middle..middle + 3, usize::MAX).await.expect("events");
        let is_there = |(time_ms, _): &&(u64, String)| (middle..middle + 3).contains(&(time_ms / WINDOW_MS));
        assert_eq!((scan.events.len(), scan.next_window), (expected.iter().filter(is_there).count(), middle + 3));
    }
}
