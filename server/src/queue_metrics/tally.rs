//! What one server has done for one queue. Adding costs an atomic add, without a lock and without a name.

use metrics::{Counter, CounterFn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::Refusal;
use tallystone_model::refusal::REASONS;

/// What is counted, with the name of its metric. One array of counters follows this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Accepted messages, repeated calls included.
    Enqueued,
    /// Leases given to workers.
    Leased,
    /// Leases that ended with success.
    Completed,
    /// Leases that workers gave up.
    Released,
    /// Leases that ran out.
    Lapsed,
    /// Messages that became errored.
    Errored,
}

impl Counted {
    pub(super) const ALL: [Counted; 6] =
        [Counted::Enqueued, Counted::Leased, Counted::Completed, Counted::Released, Counted::Lapsed, Counted::Errored];
}

/// The counters of one queue.
#[derive(Default)]
pub(crate) struct Tally {
    counts: [AtomicU64; Counted::ALL.len()],
    /// In the order of [`REASONS`].
    refused: [AtomicU64; REASONS.len()],
}

impl Tally {
    pub(crate) fn add(&self, what: Counted, number: u64) {
        if number > 0 {
            self.counts[what as usize].fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Counts one refused call or item.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        let reason = refusal.reason();
        if let Some(at) = REASONS.iter().position(|known| *known == reason) {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A counter of the refusals with this reason, which adds to `whole` as well.
    pub(crate) fn refusals(self: &Arc<Self>, reason: &str, whole: Counter) -> Counter {
        let reason = REASONS.iter().position(|known| *known == reason);
        Counter::from_arc(Arc::new(Refusals { tally: self.clone(), reason, whole }))
    }

    pub(super) fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals { counts: self.counts.each_ref().map(read), refused: self.refused.each_ref().map(read) }
    }
}

struct Refusals {
    tally: Arc<Tally>,
    reason: Option<usize>,
    whole: Counter,
}

impl CounterFn for Refusals {
    fn increment(&self, number: u64) {
        self.whole.increment(number);
        if let Some(at) = self.reason {
            self.tally.refused[at].fetch_add(number, Ordering::Relaxed);
        }
    }

    fn absolute(&self, _number: u64) {}
}

/// The values of a tally at one moment, or a sum or difference of such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) counts: [u64; Counted::ALL.len()],
    pub(super) refused: [u64; REASONS.len()],
}

impl Totals {
    /// Everything counted: how much the queue is used.
    pub(super) fn calls(&self) -> u64 {
        self.counts.iter().chain(&self.refused).sum()
    }

    pub(super) fn add(&mut self, other: &Totals) {
        self.counts.iter_mut().zip(other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.refused.iter_mut().zip(other.refused).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(super) fn since(mut self, earlier: &Totals) -> Totals {
        self.counts.iter_mut().zip(earlier.counts).for_each(|(mine, theirs)| *mine -= theirs);
        self.refused.iter_mut().zip(earlier.refused).for_each(|(mine, theirs)| *mine -= theirs);
        self
    }
}
