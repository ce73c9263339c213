//! What the counters tell Prometheus, through whatever recorder the program has installed.

use crate::log::Appended;
use crate::names::NamespaceName;
use crate::refusal::Refusal;
use metrics::{counter, gauge};

/// What became of adds and clears. Those that were refused count where they are answered.
pub(crate) fn added(results: &[Result<Appended, Refusal>]) {
    let appended = results.iter().flatten();
    let duplicates = appended.clone().filter(|appended| appended.duplicate).count();
    counter!("tallystone_counter_adds_total").increment((appended.count() - duplicates) as u64);
    if duplicates > 0 {
        counter!("tallystone_counter_duplicates_total").increment(duplicates as u64);
    }
}

/// A call or an item of a batch was refused.
pub(crate) fn refused(refusal: &Refusal) {
    counter!("tallystone_counter_refused_total", "reason" => refusal.reason()).increment(1);
}

/// Counters that wait for a rollup, in all shards of a namespace; one in several shards is there several times.
pub(crate) fn dirty(namespace: &NamespaceName, dirty: u64) {
    gauge!("tallystone_counter_dirty", "namespace" => namespace.to_string()).set(dirty as f64);
}

/// Rollups have been asked for.
pub(crate) fn jobs(told: usize) {
    counter!("tallystone_counter_jobs_total").increment(told as u64);
}
