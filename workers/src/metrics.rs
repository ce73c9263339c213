//! The workers' metrics, through the recorder that the program has installed.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::time::Duration;
use tallystone_counters::redis::ArchivePass;
use tallystone_counters::{Checkpoint, Refusal, RolledUp};

const ROLLUPS: &str = "tallystone_rollups_total";
const LAG: &str = "tallystone_rollup_lag_seconds";
const BATCH_COUNTERS: &str = "tallystone_rollup_batch_counters";
const BATCH_SECONDS: &str = "tallystone_rollup_batch_seconds";
const PAUSE: &str = "tallystone_rollup_pause_seconds";
const ARCHIVED_EVENTS: &str = "tallystone_archived_events_total";
const ARCHIVED_BYTES: &str = "tallystone_archived_bytes_total";
const ARCHIVE_PASSES: &str = "tallystone_archive_passes_total";
const MERGED_OBJECTS: &str = "tallystone_archive_merged_objects_total";
const ARCHIVE_SECONDS: &str = "tallystone_archive_pass_seconds";
const PUBLISHED: &str = "tallystone_rollup_published_total";

/// The upper bounds of the buckets of each histogram, rising, in the metric's unit.
pub const BUCKETS: &[(&str, &[f64])] = &[
    (LAG, &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 1_800.0]),
    (BATCH_COUNTERS, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0]),
    (BATCH_SECONDS, &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]),
    (ARCHIVE_SECONDS, &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0]),
];

/// Describes the metrics, and begins the counters at 0, so that the first event is a rise, which alerts see.
pub(crate) fn describe() {
    describe_counter!(ROLLUPS, "rollups, by outcome");
    describe_histogram!(LAG, Unit::Seconds, "from the last add in a rollup until its checkpoint was committed");
    describe_histogram!(BATCH_COUNTERS, "counters in one batch");
    describe_histogram!(BATCH_SECONDS, Unit::Seconds, "how long a batch took");
    describe_gauge!(PAUSE, Unit::Seconds, "the pause between batches; above 0 the store is slow");
    describe_counter!(ARCHIVED_EVENTS, "events that were moved to the archive");
    describe_counter!(ARCHIVED_BYTES, Unit::Bytes, "the size of the objects in which they are");
    describe_counter!(ARCHIVE_PASSES, "passes of the archiver, by outcome");
    describe_counter!(MERGED_OBJECTS, "objects of the archive that were replaced by a merged one");
    describe_histogram!(ARCHIVE_SECONDS, Unit::Seconds, "how long a pass of the archiver took");
    describe_counter!(PUBLISHED, "counts for counter sets, by outcome");
    for outcome in Outcome::ALL {
        counter!(PUBLISHED, "outcome" => outcome.name()).absolute(0);
    }
    for outcome in ["done", "failed"] {
        counter!(ARCHIVE_PASSES, "outcome" => outcome).absolute(0);
    }
    counter!(ARCHIVED_EVENTS).absolute(0);
    counter!(ARCHIVED_BYTES).absolute(0);
    counter!(MERGED_OBJECTS).absolute(0);
    for outcome in ["committed", "nothing", "lost", "failed"] {
        counter!(ROLLUPS, "outcome" => outcome).absolute(0);
    }
    gauge!(PAUSE).set(0.0);
}

/// Counts a pass of the archiver.
pub(crate) fn archived(pass: &Result<ArchivePass, Refusal>, took: Duration) {
    let outcome = if pass.is_ok() { "done" } else { "failed" };
    counter!(ARCHIVE_PASSES, "outcome" => outcome).increment(1);
    histogram!(ARCHIVE_SECONDS).record(took);
    if let Ok(pass) = pass {
        counter!(ARCHIVED_EVENTS).increment(pass.events);
        counter!(ARCHIVED_BYTES).increment(pass.bytes);
    }
}

/// Counts objects that were replaced by merged ones.
pub(crate) fn merged(objects: u64) {
    counter!(MERGED_OBJECTS).increment(objects);
}

/// Counts a rollup by its outcome, and its lag.
pub(crate) fn rolled_up(result: &Result<RolledUp, Refusal>, now_ms: u64) {
    let outcome = match result {
        Ok(RolledUp::Committed { from_ms, checkpoint }) => {
            if let Some(counted_to_ms) = counted_to_ms(*from_ms, checkpoint) {
                let lag_ms = now_ms.saturating_sub(counted_to_ms);
                histogram!(LAG).record(Duration::from_millis(lag_ms));
            }
            "committed"
        }
        Ok(RolledUp::Nothing { .. }) => "nothing",
        Ok(RolledUp::Lost) => "lost",
        Err(_) => "failed",
    };
    counter!(ROLLUPS, "outcome" => outcome).increment(1);
}

/// The time of the latest event that a rollup has counted, as far as it is known (Unix ms); `None`: it had none to count,
/// and only brought the counter's `exact_to_ms` forward.
fn counted_to_ms(from_ms: u64, checkpoint: &Checkpoint) -> Option<u64> {
    let last_write_ms = checkpoint.last_write_ms;
    (last_write_ms > 0 && last_write_ms >= from_ms).then(|| last_write_ms.min(checkpoint.exact_to_ms))
}

/// What happened to a count for a counter set (W6).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// The set has it now.
    Published,
    /// The set had the same or a later one.
    Older,
    /// It is below 0, and the field is unsigned.
    Negative,
    /// The counter's name is no number.
    NotDecimal,
    /// The Redis has refused it.
    Refused,
    /// The Redis did not answer, and too many counts waited.
    Dropped,
}

impl Outcome {
    const ALL: [Outcome; 6] = [
        Outcome::Published,
        Outcome::Older,
        Outcome::Negative,
        Outcome::NotDecimal,
        Outcome::Refused,
        Outcome::Dropped,
    ];

    fn name(self) -> &'static str {
        match self {
            Outcome::Published => "published",
            Outcome::Older => "older",
            Outcome::Negative => "negative",
            Outcome::NotDecimal => "not_decimal",
            Outcome::Refused => "refused",
            Outcome::Dropped => "dropped",
        }
    }
}

/// Counts for counter sets.
pub(crate) fn published(outcome: Outcome, counts: usize) {
    if counts > 0 {
        counter!(PUBLISHED, "outcome" => outcome.name()).increment(counts as u64);
    }
}

/// A batch: its counters, how long it took, and the pause before the next one.
pub(crate) fn batch(counters: usize, took: Duration, pause: Duration) {
    histogram!(BATCH_COUNTERS).record(counters as f64);
    histogram!(BATCH_SECONDS).record(took);
    gauge!(PAUSE).set(pause);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_that_had_nothing_to_count_is_not_late() {
        let checkpoint = |last_write_ms| Checkpoint { exact_to_ms: 5_000, last_write_ms, ..Checkpoint::default() };
        for (last_write_ms, counted_to) in
            [(0, None), (3_999, None), (4_000, Some(4_000)), (4_999, Some(4_999)), (9_000, Some(5_000))]
        {
            assert_eq!(counted_to_ms(4_000, &checkpoint(last_write_ms)), counted_to, "{last_write_ms}");
        }
    }
}
