//! The metrics of an indexer.

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_kafka::ReaderObserver;
use tallystone_serving::{Buckets, SECONDS};

const EVENTS: &str = "tallystone_indexer_events_total";
const DEAD_LETTERS: &str = "tallystone_indexer_dead_letters_total";
const BATCH_EVENTS: &str = "tallystone_indexer_batch_events";
const BATCH_SECONDS: &str = "tallystone_indexer_batch_seconds";
const STORE_RETRIES: &str = "tallystone_indexer_store_retries_total";
const PARTITIONS: &str = "tallystone_indexer_partitions";
const REBALANCES: &str = "tallystone_indexer_rebalances_total";
const LAG: &str = "tallystone_indexer_lag_records";

/// The buckets of the indexer's histograms, for the metrics listener.
pub const BUCKETS: &[Buckets] = &[
    Buckets { metric: BATCH_EVENTS, bounds: &[1.0, 4.0, 16.0, 64.0, 256.0, 1_000.0, 4_000.0, 16_000.0] },
    Buckets { metric: BATCH_SECONDS, bounds: SECONDS },
];
/// Why a record can never be indexed.
const DEAD: [&str; 4] = ["malformed", "invalid", "unknown_type", "rejected"];

/// Handles of the metrics, so that counting needs no lookup.
#[derive(Clone)]
pub(super) struct Metrics {
    topic: Arc<str>,
    events: Counter,
    batch_events: Histogram,
    batch_seconds: Histogram,
    pub(super) store_retries: Counter,
    partitions: Gauge,
    rebalances: Counter,
}

impl Metrics {
    pub(super) fn new(topic: &str) -> Metrics {
        describe_counter!(EVENTS, "events that the store has recorded, repeated ones included");
        describe_counter!(DEAD_LETTERS, "records that can never be indexed, by reason");
        describe_histogram!(BATCH_EVENTS, "events in one call of the store");
        describe_histogram!(
            BATCH_SECONDS,
            metrics::Unit::Seconds,
            "time until the store has recorded a batch, retries included"
        );
        describe_counter!(STORE_RETRIES, "calls of the store that failed and are repeated");
        describe_gauge!(PARTITIONS, "partitions that the consumer group has given to this indexer");
        describe_counter!(REBALANCES, "how often the consumer group distributed its partitions");
        describe_gauge!(LAG, "records of an assigned partition that are not indexed yet");
        // So that the first one is a rise, which alerts see.
        for reason in DEAD {
            counter!(DEAD_LETTERS, "reason" => reason).absolute(0);
        }
        Metrics {
            topic: topic.into(),
            events: counter!(EVENTS),
            batch_events: histogram!(BATCH_EVENTS),
            batch_seconds: histogram!(BATCH_SECONDS),
            store_retries: counter!(STORE_RETRIES),
            partitions: gauge!(PARTITIONS),
            rebalances: counter!(REBALANCES),
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
}

impl Metrics {
    fn lag_of(&self, partition: i32) -> Gauge {
        gauge!(LAG, "topic" => self.topic.to_string(), "partition" => partition.to_string())
    }

    /// The reader was closed without a word about its partitions.
    pub(super) fn left(&self) {
        self.partitions.set(0.0);
    }
}

impl ReaderObserver for Metrics {
    fn lag(&self, records_by_partition: &BTreeMap<i32, i64>) {
        for (partition, lag) in records_by_partition {
            self.lag_of(*partition).set(*lag as f64);
        }
    }

    fn assigned(&self, partitions: &[i32]) {
        self.partitions.increment(partitions.len() as f64);
        self.rebalances.increment(1);
    }

    /// The partition's lag is reported by its next owner.
    fn revoked(&self, partitions: &[i32]) {
        self.partitions.decrement(partitions.len() as f64);
        for partition in partitions {
            self.lag_of(*partition).set(0.0);
        }
    }
}
