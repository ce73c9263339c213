//! What stops librdkafka's reading for good, and how its statistics show it.

use rdkafka::statistics::{Partition, Statistics};
use std::collections::BTreeMap;

/// Why a reader reads no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// One partition is not read.
    Stuck(StuckPartition),
    /// It knows no broker, and will not connect again (librdkafka #5301): a Kafka that had just started named none.
    NoBrokers,
    /// A partition has had no record for long, though others had, or none had any. A topic of events gets a watermark in
    /// each partition at least every 2.5 s, so this one is not read, or nothing is written.
    Silent {
        /// The partition.
        partition: i32,
        /// What librdkafka says about it, for the log.
        state: String,
    },
}

/// Whether the client knows no broker. It always knows those of its configuration until it has connected once.
pub(crate) fn has_no_brokers(statistics: &Statistics) -> bool {
    let is_broker = |source: &str| matches!(source, "learned" | "configured");
    !statistics.brokers.values().any(|broker| is_broker(&broker.source))
}

/// A partition that librdkafka has stopped reading. It requested a validation of its position, lost the connection, and
/// waits for the response for ever (librdkafka #4492).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckPartition {
    pub(crate) partition: i32,
    /// Its committed offset, if it has one.
    pub(crate) committed: Option<i64>,
}

/// librdkafka's name for the state of such a partition.
const VALIDATING: &str = "validate-epoch-wait";
/// A partition counts as stuck after this many reports in that state: with fewer, Kafka may only be away.
const STUCK_REPORTS: u32 = 3;

/// How many reports in a row showed each partition as validating.
#[derive(Default)]
pub(crate) struct ValidationWaits(BTreeMap<i32, u32>);

impl ValidationWaits {
    /// Takes one report. Returns whether the partition must be restarted.
    pub(crate) fn report(&mut self, partition: i32, state: &str) -> bool {
        if state != VALIDATING {
            self.0.remove(&partition);
            return false;
        }
        let reports = self.0.entry(partition).or_default();
        *reports += 1;
        reports.is_multiple_of(STUCK_REPORTS)
    }
}

/// A partition counts as silent after this number of reports without a record while others have records.
const SILENT_REPORTS: u32 = 4;
/// The same while no partition has any: Kafka may be away, or the relay.
const ALL_SILENT_REPORTS: u32 = 6;

/// For how many reports in a row each partition has had no record.
#[derive(Default)]
pub(crate) struct Silences(BTreeMap<i32, Silence>);

struct Silence {
    records: u64,
    reports: u32,
}

impl Silences {
    /// Takes one report, with the records that each assigned partition has had so far. Returns a partition that is silent.
    pub(crate) fn report(&mut self, records_by_partition: impl Iterator<Item = (i32, u64)>) -> Option<i32> {
        let mut before = std::mem::take(&mut self.0);
        for (partition, records) in records_by_partition {
            let reports = match before.remove(&partition) {
                Some(silence) if silence.records == records => silence.reports + 1,
                _ => 0,
            };
            self.0.insert(partition, Silence { records, reports });
        }
        let bound = if self.0.values().any(|one| one.reports == 0) { SILENT_REPORTS } else { ALL_SILENT_REPORTS };
        self.0.iter().find(|(_, silence)| silence.reports >= bound).map(|(partition, _)| *partition)
    }

    /// Forgets what was reported: the reader is paused.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// What a log says about a partition that is not read.
pub(crate) fn described(partition: &Partition) -> String {
    let Partition { broker, leader, fetch_state, next_offset, stored_offset, hi_offset, rxmsgs, fetchq_cnt, .. } =
        partition;
    format!(
        "fetch_state={fetch_state} broker={broker} leader={leader} next={next_offset} stored={stored_offset} \
         end={hi_offset} received={rxmsgs} queued={fetchq_cnt}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_a_partition_restarts_after_three_validating_reports_in_a_row() {
        let mut waits = ValidationWaits::default();
        let mut report = |partition, state| waits.report(partition, state);
        assert_eq!([report(1, VALIDATING), report(1, VALIDATING), report(1, "active")], [false; 3]);
        assert_eq!([report(1, VALIDATING), report(2, VALIDATING), report(1, VALIDATING)], [false; 3]);
        assert!(report(1, VALIDATING));
        assert!(!report(2, VALIDATING));
        // After a restart it can become stuck again.
        assert_eq!([report(1, VALIDATING), report(1, VALIDATING), report(1, VALIDATING)], [false, false, true]);
    }

    #[test]
    fn q19_a_partition_without_records_is_silent_sooner_if_others_have_some() {
        let mut silences = Silences::default();
        let mut report = |one: u64, two: u64| silences.report([(1, one), (2, two)].into_iter());
        assert_eq!(report(5, 5), None);
        let others_have_some: Vec<_> = (6..10).map(|records| report(5, records)).collect();
        assert_eq!(others_have_some, [None, None, None, Some(1)]);
        assert_eq!(report(6, 10), None, "it is read again");
        let none_has_any: Vec<_> = (0..6).map(|_| report(6, 10)).collect();
        assert_eq!(none_has_any, [None, None, None, None, None, Some(1)]);
        silences.forget();
        assert_eq!(silences.report([(1, 6), (2, 10)].into_iter()), None);
    }
}
