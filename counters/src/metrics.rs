//! The counters' metrics, through the recorder that the program has installed.

use crate::log::Appended;
use crate::names::NamespaceName;
use crate::refusal::REASONS;
use crate::refusal::Refusal;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::time::Duration;

const ADDS: &str = "tallystone_counter_adds_total";
const DUPLICATES: &str = "tallystone_counter_duplicates_total";
const REFUSED: &str = "tallystone_counter_refused_total";
const DIRTY: &str = "tallystone_counter_dirty";
const WAITING_ITEMS: &str = "tallystone_counter_waiting_items";
const WAITING_BYTES: &str = "tallystone_counter_waiting_bytes";
const ARCHIVE_READS: &str = "tallystone_archive_reads";
const ARCHIVE_BEHIND: &str = "tallystone_archive_behind_seconds";
const JOBS: &str = "tallystone_counter_jobs_total";

/// Describes the metrics, and begins the counters at 0, so that the first event is a rise, which alerts see.
pub(crate) fn describe() {
    describe_counter!(ADDS, "adds and clears that counted");
    describe_counter!(DUPLICATES, "adds and clears whose token had counted before");
    describe_counter!(REFUSED, "refused calls, and refused items of batches, by reason");
    describe_gauge!(DIRTY, "counters that wait for a rollup, by namespace; once for each shard in which they wait");
    describe_gauge!(WAITING_ITEMS, "adds and clears that wait for Redis");
    describe_gauge!(WAITING_BYTES, Unit::Bytes, "memory of the adds and clears that wait for Redis");
    describe_gauge!(
        ARCHIVE_READS,
        "reads of the archive that are under way, by kind: late retries, or events for lists, sums and audits"
    );
    describe_gauge!(
        ARCHIVE_BEHIND,
        Unit::Seconds,
        "how long the oldest event that is not archived has been in Redis, at most, by namespace; 0: all are archived"
    );
    describe_counter!(JOBS, "rollup jobs that were enqueued");
    for counted in [ADDS, DUPLICATES, JOBS] {
        counter!(counted).absolute(0);
    }
    for reason in REASONS {
        counter!(REFUSED, "reason" => reason).absolute(0);
    }
    waiting(0, 0);
    for kind in ["late", "events"] {
        archive_reads(kind, 0.0);
    }
}

/// How far the archive of a namespace is behind.
pub(crate) fn archive_behind(namespace: &NamespaceName, behind: Duration) {
    gauge!(ARCHIVE_BEHIND, "namespace" => namespace.to_string()).set(behind.as_secs_f64());
}

/// Changes the number of reads of the archive that are under way.
pub(crate) fn archive_reads(kind: &'static str, more: f64) {
    gauge!(ARCHIVE_READS, "kind" => kind).increment(more);
}

/// Counts adds and clears, and duplicates among them. Refused ones are counted where they become a status.
pub(crate) fn added(results: &[Result<Appended, Refusal>]) {
    let appended = results.iter().flatten();
    let duplicates = appended.clone().filter(|appended| appended.duplicate).count();
    counter!(ADDS).increment((appended.count() - duplicates) as u64);
    if duplicates > 0 {
        counter!(DUPLICATES).increment(duplicates as u64);
    }
}

/// Counts a refused call or item of a batch.
pub(crate) fn refused(refusal: &Refusal) {
    counter!(REFUSED, "reason" => refusal.reason()).increment(1);
}

/// The number of dirty counters of a namespace, summed over its shards: a counter that is dirty in several counts several
/// times.
pub(crate) fn dirty(namespace: &NamespaceName, dirty: u64) {
    gauge!(DIRTY, "namespace" => namespace.to_string()).set(dirty as f64);
}

/// What waits for the store, in all namespaces together.
pub(crate) fn waiting(items: usize, bytes: usize) {
    gauge!(WAITING_ITEMS).set(items as f64);
    gauge!(WAITING_BYTES).set(bytes as f64);
}

/// Counts rollup jobs that were enqueued.
pub(crate) fn jobs(enqueued: usize) {
    counter!(JOBS).increment(enqueued as u64);
}
