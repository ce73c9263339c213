//! How many may wait for messages of one queue (S1). Each group of waiters with the same filters costs a part of a script
//! call whenever a message may have become runnable, and each waiter costs memory.

use metrics::Counter;
use std::sync::Arc;
use tallystone_model::{QueueName, Refusal};

/// The bounds of each queue, and of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// Subscriptions of Work streams, in all queues together.
    pub(crate) subscriptions_max: u32,
    /// Waiting Dequeues, in all queues together.
    pub(crate) dequeues_max: u32,
    /// Waiting Dequeues and subscriptions.
    pub(crate) waiters_max: u32,
    /// The distinct filters for which they wait; to wait without a filter is always possible.
    pub(crate) filters_max: u32,
}

/// The place of one waiter. It is free again when it is dropped.
pub(super) struct WaiterPlace {
    _taken: Arc<()>,
}

/// The counters of the refusals of one queue, by the bound that was reached.
pub(super) struct WaitRefusals {
    pub(super) waiters: Counter,
    pub(super) filters: Counter,
}

/// The places of one queue.
pub(super) struct WaiterPlaces {
    queue: QueueName,
    limits: WaitLimits,
    taken: Arc<()>,
    /// The distinct filters for which there are waiters.
    filters: usize,
    refusals: WaitRefusals,
}

impl WaiterPlaces {
    pub(super) fn new(queue: QueueName, limits: WaitLimits, refusals: WaitRefusals) -> Self {
        WaiterPlaces { queue, limits, taken: Arc::new(()), filters: 0, refusals }
    }

    pub(super) fn are_full(&self) -> bool {
        Arc::strong_count(&self.taken) > self.limits.waiters_max as usize
    }

    pub(super) fn are_filters_full(&self) -> bool {
        self.filters >= self.limits.filters_max as usize
    }

    /// A place for a waiter whose filters are `new` if no other waits for them.
    pub(super) fn take(&mut self, new: bool) -> Result<WaiterPlace, Refusal> {
        let WaitRefusals { waiters, filters } = &self.refusals;
        let (what, max, refusals) = match (self.are_full(), new && self.are_filters_full()) {
            (true, _) => ("waiting calls", self.limits.waiters_max, waiters),
            (false, true) => ("distinct filters of waiting calls", self.limits.filters_max, filters),
            (false, false) => {
                self.filters += usize::from(new);
                return Ok(WaiterPlace { _taken: self.taken.clone() });
            }
        };
        refusals.increment(1);
        Err(Refusal::TooManyWaiters { queue: self.queue.to_string(), what, max })
    }

    /// No waiter has these filters any more.
    pub(super) fn forget_filters(&mut self) {
        self.filters -= 1;
    }
}
