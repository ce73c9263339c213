//! Counts the results of a flush for the metrics of its queue (O1).

use super::flush::Outcome;
use crate::queue_metrics::{Counted, Tally};
use tallystone_model::State;
use tallystone_model::store::{Items, Transition};

/// Adds what the store has answered.
pub(super) fn count(outcome: &Outcome, tally: &Tally) {
    if let Some((_, answer)) = &outcome.enqueue {
        tally.add(Counted::Enqueued, succeeded(answer, tally));
    }
    if let Some((_, answer)) = &outcome.complete {
        tally.add(Counted::Completed, succeeded(answer, tally));
    }
    if let Some((_, answer)) = &outcome.release {
        tally.add(Counted::Released, succeeded(answer, tally));
        let is_errored = |transition: &&Transition| transition.state == State::Errored;
        let errored = answer.iter().flatten().flatten().filter(is_errored).count();
        tally.add(Counted::Errored, errored as u64);
    }
    if let Some((_, answer)) = &outcome.extend {
        succeeded(answer, tally);
    }
    if let Some((_, answer)) = &outcome.cancel {
        succeeded(answer, tally);
    }
    match &outcome.dequeue {
        Some((_, Ok(dequeued))) => {
            let refused = dequeued.leases.iter().filter_map(|leases| leases.as_ref().err());
            refused.for_each(|refusal| tally.refused(refusal));
            tally.add(Counted::Leased, outcome.leased.items as u64);
            tally.add(Counted::Lapsed, dequeued.expired);
            tally.add(Counted::Errored, dequeued.errored);
        }
        Some((_, Err(refusal))) => tally.refused(refusal),
        None => {}
    }
}

/// The number of items that succeeded; counts those that were refused.
fn succeeded<T>(answer: &Items<T>, tally: &Tally) -> u64 {
    match answer {
        Ok(items) => {
            let refused = items.iter().filter_map(|item| item.as_ref().err());
            let refused = refused.map(|refusal| tally.refused(refusal)).count();
            (items.len() - refused) as u64
        }
        Err(refusal) => {
            tally.refused(refusal);
            0
        }
    }
}
