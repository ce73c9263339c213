//! The counters' metrics, through the recorder that the program has installed.

use crate::log::Appended;
use crate::names::NamespaceName;
use crate::refusal::Refusal;
use metrics::{counter, gauge};

/// Counts adds and clears, and duplicates among them. Refused ones are counted where they become a status.
pub(crate) fn added(results: &[Result<Appended, Refusal>]) {
    let appended = results.iter().flatten();
    let duplicates = appended.clone().filter(|appended| appended.duplicate).count();
    counter!("tallystone_counter_adds_total").increment((appended.count() - duplicates) as u64);
    if duplicates > 0 {
        counter!("tallystone_counter_duplicates_total").increment(duplicates as u64);
    }
}

/// Counts a refused call or item of a batch.
pub(crate) fn refused(refusal: &Refusal) {
    counter!("tallystone_counter_refused_total", "reason" => refusal.reason()).increment(1);
}

/// The number of dirty counters of a namespace, summed over its shards: a counter that is dirty in several counts several
/// times.
pub(crate) fn dirty(namespace: &NamespaceName, dirty: u64) {
    gauge!("tallystone_counter_dirty", "namespace" => namespace.to_string()).set(dirty as f64);
}

/// What waits for the store, in all namespaces together.
pub(crate) fn waiting(items: usize, bytes: usize) {
    gauge!("tallystone_counter_waiting_items").set(items as f64);
    gauge!("tallystone_counter_waiting_bytes").set(bytes as f64);
}

/// Counts rollup jobs that were enqueued.
pub(crate) fn jobs(enqueued: usize) {
    counter!("tallystone_counter_jobs_total").increment(enqueued as u64);
}
