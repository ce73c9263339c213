//! What the indexer counts.

use metrics::{Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::collections::BTreeMap;
use std::time::Duration;

const EVENTS: &str = "tallystone_indexer_events_total";
const DEAD_LETTERS: &str = "tallystone_indexer_dead_letters_total";
const BATCH_EVENTS: &str = "tallystone_indexer_batch_events";
const BATCH_SECONDS: &str = "tallystone_indexer_batch_seconds";
const STORE_RETRIES: &str = "tallystone_indexer_store_retries_total";
const LAG: &str = "tallystone_indexer_lag_records";

/// Handles, so that counting costs nothing.
#[derive(Clone)]
pub(super) struct Metrics {
    events: Counter,
    batch_events: Histogram,
    batch_seconds: Histogram,
    pub(super) store_retries: Counter,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        describe_counter!(EVENTS, "events that the store has taken, repeated ones included");
        describe_counter!(DEAD_LETTERS, "records that can never be indexed, by reason");
        describe_histogram!(BATCH_EVENTS, "events handed to the store at a time");
        describe_histogram!(
            BATCH_SECONDS,
            metrics::Unit::Seconds,
            "until the store has taken a batch, retries included"
        );
        describe_counter!(STORE_RETRIES, "batches that the store did not take at that moment");
        describe_gauge!(LAG, "records of a partition of ours that are not indexed yet");
        Metrics {
            events: counter!(EVENTS),
            batch_events: histogram!(BATCH_EVENTS),
            batch_seconds: histogram!(BATCH_SECONDS),
            store_retries: counter!(STORE_RETRIES),
        }
    }

    pub(super) fn indexed(&self, events: usize, rejected: usize, took: Duration) {
        self.events.increment(events.saturating_sub(rejected) as u64);
        self.batch_events.record(events as f64);
        self.batch_seconds.record(took);
    }

    pub(super) fn dead_letter(&self, reason: &'static str) {
        counter!(DEAD_LETTERS, "reason" => reason).increment(1);
    }

    pub(super) fn lag(&self, lags: &BTreeMap<i32, i64>) {
        for (partition, lag) in lags {
            gauge!(LAG, "partition" => partition.to_string()).set(*lag as f64);
        }
    }

    /// Somebody else's from now on.
    pub(super) fn forget(&self, partitions: impl Iterator<Item = i32>) {
        for partition in partitions {
            gauge!(LAG, "partition" => partition.to_string()).set(0.0);
        }
    }
}
