//! Pulls: the counts of counters that are read (L1).

use super::folder::Folder;
use super::push_file::Push;
use super::service::{CALL_MAX, Service};
use super::slot::{Due, Pulled, Slot};
use super::stats::Tally;
use super::types::Types;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Pulls the counters that were read lately. No add is being sent meanwhile, so each earlier one was acknowledged, or is in `pushes`.
/// `delay`: how long an acknowledged push takes to count, if pushes go to a log.
///
/// # Errors
/// Some counters keep the values of before. The text says what failed first.
pub(super) async fn pull(
    folder: &Folder,
    service: &impl Service,
    delay: Option<Duration>,
    pushes: &BTreeMap<String, Push>,
    types: &mut Types,
) -> Result<(), String> {
    let mut failed = Vec::new();
    for (namespace, slots) in wanted(folder) {
        let in_flight = pushes.get(&namespace).map(|push| in_flight(folder, push)).unwrap_or_default();
        for slots in slots.chunks(CALL_MAX) {
            let (at, at_time) = (Instant::now(), SystemTime::now());
            let counters = slots.iter().map(|slot| slot.counter.clone()).collect();
            let results = match service.get(&namespace, counters).await {
                Ok(results) => results,
                Err(error) => {
                    if let Some(delay) = delay {
                        postpone(folder, &namespace, delay);
                    }
                    failed.push(format!("{namespace}: {error}"));
                    break;
                }
            };
            for (slot, result) in slots.iter().zip(results) {
                match result {
                    Ok(counted) => {
                        types.set(&namespace, counted.counter_type, at.into());
                        let in_flight = in_flight.get(&slot.index).copied().unwrap_or(0);
                        slot.state().pull(Pulled { counted, at, at_time, in_flight });
                    }
                    Err(refused) => failed.push(format!("{namespace}/{}: {refused}", slot.counter)),
                }
            }
        }
    }
    let (tally, result) = (&folder.tally, failed.into_iter().next().map_or(Ok(()), Err));
    Tally::count(if result.is_ok() { &tally.pulls } else { &tally.pull_failures });
    tally.latest(|latest| latest.pull_error = result.clone().err());
    result
}

/// What is in the log counts when the service is there again.
fn postpone(folder: &Folder, namespace: &str, delay: Duration) {
    let to = Due::after(delay, &folder.options);
    for slot in folder.slots().get(namespace).into_iter().flat_map(HashMap::values) {
        let mut state = slot.state();
        if state.postpone(to) {
            let index = slot.index as usize;
            folder.cells.set_pushed_ms(index, to.time_ms.max(folder.cells.pushed_ms(index)));
        }
    }
}

/// The slots that were read within `idle_ms`, by namespace.
fn wanted(folder: &Folder) -> Vec<(String, Vec<Arc<Slot>>)> {
    let now = Instant::now();
    let is_wanted = |slot: &&Arc<Slot>| {
        let mut state = slot.state();
        if slot.is_read.swap(false, Ordering::Relaxed) {
            state.read_at = now;
        }
        now.duration_since(state.read_at) <= folder.options.idle()
    };
    let slots = folder.slots();
    let of_namespace = |(namespace, slots): (&String, &HashMap<String, Arc<Slot>>)| {
        (namespace.clone(), slots.values().filter(is_wanted).cloned().collect())
    };
    slots.iter().map(of_namespace).filter(|(_, slots): &(_, Vec<_>)| !slots.is_empty()).collect()
}

/// By slot, how much of a push may have counted although no answer says so.
fn in_flight(folder: &Folder, push: &Push) -> HashMap<u32, u64> {
    let unanswered = push.items.iter().filter(|item| folder.cells.base(item.slot as usize) != item.base);
    unanswered.map(|item| (item.slot, item.delta.unsigned_abs())).collect()
}
