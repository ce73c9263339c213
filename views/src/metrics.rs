//! The view counter's metrics, through the recorder that the program has installed.

use crate::Refusal;
use crate::log::Deltas;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::time::Duration;

const LOG_AVAILABLE: &str = "tallystone_views_log_available";
const ACCEPTED: &str = "tallystone_views_accepted_total";
const REFUSED: &str = "tallystone_views_refused_total";
const DEDUPLICATED: &str = "tallystone_views_deduplicated_total";
const ADDED: &str = "tallystone_views_added_total";
const COUNTED: &str = "tallystone_views_counted_total";
const SENT_AGAIN: &str = "tallystone_views_sent_again_total";
const UNRESOLVED: &str = "tallystone_views_unresolved_total";
const PAIRS: &str = "tallystone_views_pairs";
const PAIRS_BYTES: &str = "tallystone_views_pairs_bytes";
const OLDEST_DELTA: &str = "tallystone_views_oldest_delta_seconds";
const LAG: &str = "tallystone_views_lag_records";
const REJOINS: &str = "tallystone_views_rejoins_total";
const OLD_COUNTS: &str = "tallystone_views_old_counts_total";

/// Describes the metrics, and begins the counters at 0, so that the first event is a rise, which alerts see.
pub(crate) fn describe() {
    describe_gauge!(LOG_AVAILABLE, "1 while the log of views answers and has its data; else 0");
    describe_counter!(ACCEPTED, "views that are in the log");
    describe_counter!(REFUSED, "refused calls, and refused items of batches, by reason");
    describe_counter!(DEDUPLICATED, "views of the log that were compared with earlier ones");
    describe_counter!(ADDED, "what these views added to all kinds of counts together");
    describe_counter!(COUNTED, "what the counters have counted");
    describe_counter!(SENT_AGAIN, "what came too late for its first token, and was written again");
    describe_counter!(UNRESOLVED, "what may not have counted: the counters could not say");
    describe_gauge!(PAIRS, "pairs in memory, by partition");
    describe_gauge!(PAIRS_BYTES, Unit::Bytes, "memory of the pairs, by partition");
    describe_gauge!(OLDEST_DELTA, Unit::Seconds, "age of the oldest deltas that wait for the counters, by partition");
    describe_gauge!(LAG, "records of the log in Kafka that are not deduplicated yet, by partition of this process");
    describe_counter!(
        REJOINS,
        "how often this process has joined the consumer group of the log in Kafka again after a failure"
    );
    describe_counter!(OLD_COUNTS, "reads that got an earlier count, because the counters did not answer");
    for counted in [ACCEPTED, DEDUPLICATED, ADDED, COUNTED, SENT_AGAIN, UNRESOLVED, REJOINS, OLD_COUNTS] {
        counter!(counted).absolute(0);
    }
    for reason in ["OVERLOADED", "STORE_UNAVAILABLE"] {
        counter!(REFUSED, "reason" => reason).absolute(0);
    }
}

/// Whether the log answers and has its data.
pub(crate) fn log_available(is_available: bool) {
    gauge!(LOG_AVAILABLE).set(if is_available { 1.0 } else { 0.0 });
}

pub(crate) fn accepted(views: usize) {
    counter!(ACCEPTED).increment(views as u64);
}

pub(crate) fn refused(refusal: &Refusal) {
    counter!(REFUSED, "reason" => refusal.reason()).increment(1);
}

pub(crate) fn deduplicated(views: u64, deltas: &Deltas) {
    counter!(DEDUPLICATED).increment(views);
    counter!(ADDED).increment(sum(deltas));
}

pub(crate) fn counted(delta: u32) {
    counter!(COUNTED).increment(delta.into());
}

pub(crate) fn sent_again(deltas: &Deltas) {
    counter!(SENT_AGAIN).increment(sum(deltas));
}

pub(crate) fn unresolved(delta: u32) {
    counter!(UNRESOLVED).increment(delta.into());
}

/// The number of pairs of a partition, and their memory.
pub(crate) fn pairs(partition: u16, (pairs, bytes): (usize, usize)) {
    let partition = partition.to_string();
    gauge!(PAIRS, "partition" => partition.clone()).set(pairs as f64);
    gauge!(PAIRS_BYTES, "partition" => partition).set(bytes as f64);
}

/// How long the oldest deltas of a partition have waited for the counters; `None`: none wait.
pub(crate) fn oldest_delta(partition: u16, age: Option<Duration>) {
    gauge!(OLDEST_DELTA, "partition" => partition.to_string()).set(age.unwrap_or_default().as_secs_f64());
}

/// Records of a partition that are not deduplicated yet.
pub(crate) fn lag(partition: i32, records: i64) {
    gauge!(LAG, "partition" => partition.to_string()).set(records as f64);
}

pub(crate) fn joined_again() {
    counter!(REJOINS).increment(1);
}

pub(crate) fn old_count() {
    counter!(OLD_COUNTS).increment(1);
}

fn sum(deltas: &Deltas) -> u64 {
    deltas.values().map(|delta| u64::from(*delta)).sum()
}
