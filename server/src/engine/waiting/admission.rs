//! Which calls may wait: those that got nothing, and subscriptions, up to the bounds of
//! [`WaiterPlaces`](crate::engine::places::WaiterPlaces).
//!
//! A waiter keeps its place while its requests are in the store, so it never loses it to one that came later. A
//! subscription has its place, and that of its filters, from its start to its end.

use super::Waiting;
use super::group::{Group, group_of};
use crate::engine::command::DequeueCall;
use crate::engine::places::WaiterPlace;
use std::time::Duration;
use tallystone_model::{Filter, Refusal};
use tokio::time::Instant;

/// Callers that have disconnected are removed before another one is refused, but not more often than this: the removal
/// visits every waiter.
const PRUNE_EVERY: Duration = Duration::from_millis(100);

impl Waiting {
    /// Whether a new caller may try its request; its place, if that had to be found out.
    pub(super) fn admit_try(&mut self, call: &DequeueCall, now: Instant) -> Result<Option<WaiterPlace>, Refusal> {
        let filters = &call.request.filters;
        if call.until <= now || !self.is_full_for(self.is_new(filters)) || self.tries.take(now) {
            return Ok(None);
        }
        self.admit(filters, now).map(Some)
    }

    fn is_full_for(&self, is_new: bool) -> bool {
        self.places.are_full() || is_new && self.places.are_filters_full()
    }

    /// A place for one more that waits for these filters.
    pub(super) fn admit(&mut self, filters: &[Filter], now: Instant) -> Result<WaiterPlace, Refusal> {
        let mut is_new = self.is_new(filters);
        if self.is_full_for(is_new) && self.pruned_at.is_none_or(|at| at + PRUNE_EVERY <= now) {
            self.pruned_at = Some(now);
            self.prune();
            is_new = self.is_new(filters);
        }
        let place = self.places.take(is_new)?;
        if is_new {
            group_of(&mut self.groups, filters).is_counted = true;
        }
        Ok(place)
    }

    fn is_new(&self, filters: &[Filter]) -> bool {
        !filters.is_empty() && self.groups.get(filters).is_none_or(|group| !group.is_counted)
    }

    pub(super) fn forget_if_unused(&mut self, filters: &[Filter]) {
        if !filters.is_empty() && self.groups.get(filters).is_some_and(Group::is_unused) {
            let group = self.groups.remove(filters);
            if group.is_some_and(|group| group.is_counted) {
                self.places.forget_filters();
            }
        }
    }

    pub(super) fn forget_unused(&mut self) {
        let places = &mut self.places;
        self.groups.retain(|filters, group| {
            let stays = filters.is_empty() || !group.is_unused();
            if !stays && group.is_counted {
                places.forget_filters();
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tries::{TRIES_EVERY, TRIES_MAX};
    use super::*;
    use crate::engine::granted::Granted;
    use crate::engine::places::{WaitLimits, WaitRefusals, WaiterPlaces};
    use crate::engine::tests::{HOUR, queue, request};
    use metrics::Counter;
    use tokio::sync::oneshot;

    #[tokio::test(start_paused = true)]
    async fn s1_of_many_callers_that_may_not_wait_a_few_reach_the_store() {
        let limits = WaitLimits { subscriptions_max: 0, dequeues_max: 0, waiters_max: 0, filters_max: 0 };
        let refusals = WaitRefusals { waiters: Counter::noop(), filters: Counter::noop() };
        let mut waiting = Waiting::new(0, WaiterPlaces::new(queue("q"), limits, refusals));
        let mut arrive = |wait: Duration| {
            let (reply, answer) = oneshot::channel::<Result<Granted, Refusal>>();
            let until = Instant::now() + wait;
            waiting.arrive(Box::new(DequeueCall { request: request(1), until, reply, room: None }), Instant::now());
            (waiting.fresh(), answer)
        };
        let answers: Vec<_> = (0..TRIES_MAX + 10).map(|_| arrive(HOUR).1).collect();
        let refused = answers.into_iter().filter_map(|mut answer| answer.try_recv().ok()).count();
        assert_eq!(refused, 10);
        assert_eq!(arrive(Duration::ZERO).0, TRIES_MAX as usize + 1, "a caller that does not wait is no part of it");
        tokio::time::advance(TRIES_EVERY).await;
        assert_eq!(arrive(HOUR).0, TRIES_MAX as usize + 2);
    }
}
