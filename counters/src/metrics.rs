//! What the counters tell Prometheus, through whatever recorder the program has installed.

use crate::log::Appended;
use crate::names::NamespaceName;
use crate::refusal::Refusal;
use metrics::{counter, gauge};

/// What became of adds and clears.
pub(crate) fn added(results: &[Result<Appended, Refusal>]) {
    let duplicates = results.iter().flatten().filter(|appended| appended.duplicate).count();
    let refused_in_all =
        results.iter().filter_map(|result| result.as_ref().err()).inspect(|refusal| refused(refusal)).count();
    counter!("tallystone_counter_adds_total").increment((results.len() - duplicates - refused_in_all) as u64);
    if duplicates > 0 {
        counter!("tallystone_counter_duplicates_total").increment(duplicates as u64);
    }
}

/// Something was refused.
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
