//! What stops librdkafka's reading for good, and how its statistics show it.

use rdkafka::statistics::Statistics;
use std::collections::BTreeMap;

/// Why a reader reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// One partition is not read.
    Stuck(StuckPartition),
    /// It knows no broker, and will not connect again (librdkafka #5301): a Kafka that had just started named none.
    NoBrokers,
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
}
