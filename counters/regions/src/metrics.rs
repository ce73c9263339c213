//! The metrics of regions.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_counters::regions::Followed;
use tallystone_counters::{NamespaceName, Refusal, RegionName};

const PUBLISHED: &str = "tallystone_region_published_total";
const MERGED: &str = "tallystone_region_merged_total";
const UNREADABLE: &str = "tallystone_region_unreadable_total";
const UNREADABLE_CHECKPOINTS: &str = "tallystone_region_unreadable_checkpoints_total";
const AHEAD: &str = "tallystone_region_ahead_total";
const NAMESPACE_FAILING: &str = "tallystone_region_namespace_failing";
const CLEARS: &str = "tallystone_region_clears_total";
const BEHIND: &str = "tallystone_region_behind";
const FAILING: &str = "tallystone_region_failing_seconds";
const SILENT: &str = "tallystone_region_silent_seconds";

/// Describes the metrics, and begins them at 0, so that the first event is a rise, which alerts see.
pub(crate) fn describe(own: &RegionName) {
    describe_counter!(PUBLISHED, "records that were published to other regions");
    describe_counter!(MERGED, "records of other regions that were later than those that stood");
    describe_counter!(UNREADABLE, "records in the topics of other regions that cannot be read");
    describe_counter!(UNREADABLE_CHECKPOINTS, "attempts to publish a counter whose checkpoint cannot be read");
    describe_counter!(AHEAD, "records that were left out because they are ahead of this region's clock, by region");
    describe_counter!(CLEARS, "attempts of a counter to follow a clear of another region, by outcome");
    describe_gauge!(
        BEHIND,
        "counters that are not published yet or have not caught up with other regions, by namespace"
    );
    describe_gauge!(FAILING, Unit::Seconds, "for how long publishing to other regions has been failing; 0: it is not");
    describe_gauge!(SILENT, Unit::Seconds, "for how long nothing new has come from a region, by region");
    describe_gauge!(
        NAMESPACE_FAILING,
        "1 if a namespace cannot be opened, published or merged, by namespace and work: open, publish, merge"
    );
    for total in [PUBLISHED, MERGED, UNREADABLE, UNREADABLE_CHECKPOINTS] {
        counter!(total).absolute(0);
    }
    counter!(AHEAD, "region" => own.to_string()).absolute(0);
    for work in ["open", "publish", "merge"] {
        gauge!(NAMESPACE_FAILING, "namespace" => "", "work" => work).set(0.0);
    }
    for outcome in ["done", "waits", "dropped", "failed"] {
        counter!(CLEARS, "outcome" => outcome).absolute(0);
    }
    failing(Duration::ZERO);
    silent(own, Duration::ZERO);
}

/// Counts records that were published.
pub(crate) fn published(records: u64) {
    counter!(PUBLISHED).increment(records);
}

/// Counts records that were merged.
pub(crate) fn merged(records: u64) {
    counter!(MERGED).increment(records);
}

/// Counts a record that cannot be read.
pub(crate) fn unreadable() {
    counter!(UNREADABLE).increment(1);
}

/// Counts an attempt to read a checkpoint that cannot be read.
pub(crate) fn unreadable_checkpoint() {
    counter!(UNREADABLE_CHECKPOINTS).increment(1);
}

/// Counts a record of a region that is ahead of the clock.
pub(crate) fn ahead(region: &RegionName) {
    counter!(AHEAD, "region" => region.to_string()).increment(1);
}

/// The namespaces for which one kind of work fails.
pub(crate) struct Failing {
    work: &'static str,
    shown: BTreeSet<NamespaceName>,
}

impl Failing {
    /// No namespace, at first.
    pub(crate) fn to(work: &'static str) -> Failing {
        Failing { work, shown: BTreeSet::new() }
    }

    /// These, and no others.
    pub(crate) fn show(&mut self, failing: BTreeSet<NamespaceName>) {
        for (names, value) in [(&self.shown, 0.0), (&failing, 1.0)] {
            for name in names {
                gauge!(NAMESPACE_FAILING, "namespace" => name.to_string(), "work" => self.work).set(value);
            }
        }
        self.shown = failing;
    }
}

/// Counts an attempt to follow a clear.
pub(crate) fn followed(followed: &Result<Followed, Refusal>) {
    let outcome = match followed {
        Ok(Followed::Done) => "done",
        Ok(Followed::NotYet) => "waits",
        Err(Refusal::EventsDropped { .. }) => "dropped",
        Err(_) => "failed",
    };
    counter!(CLEARS, "outcome" => outcome).increment(1);
}

/// The number of counters of a namespace that need attention.
pub(crate) fn behind(namespace: &NamespaceName, counters: u64) {
    gauge!(BEHIND, "namespace" => namespace.to_string()).set(counters as f64);
}

/// For how long publishing has been failing.
pub(crate) fn failing(failing: Duration) {
    gauge!(FAILING).set(failing.as_secs_f64());
}

/// For how long nothing new has come from a region.
pub(crate) fn silent(region: &RegionName, silent: Duration) {
    gauge!(SILENT, "region" => region.to_string()).set(silent.as_secs_f64());
}
