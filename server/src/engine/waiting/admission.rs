//! Who may wait: callers that got nothing, and subscriptions, up to the bounds of [`Places`](crate::engine::places::Places).
//!
//! A waiter keeps its place while its requests are in the store, so it never loses it to one that came later. A
//! subscription has its place, and that of its filters, from its begin to its end.

use super::Waiting;
use super::group::{Group, group_of};
use crate::engine::places::Place;
use std::time::Duration;
use tallystone_model::{Filter, Refusal};
use tokio::time::Instant;

/// Callers that have disconnected are removed before another one is refused, but not more often than this: the removal
/// visits every waiter.
const PRUNE_EVERY: Duration = Duration::from_millis(100);

impl Waiting {
    /// A place for one more that waits for these filters.
    pub(super) fn admit(&mut self, filters: &[Filter], now: Instant) -> Result<Place, Refusal> {
        let mut is_new = self.is_new(filters);
        let is_full = self.places.are_full() || is_new && self.places.are_filters_full();
        if is_full && self.pruned_at.is_none_or(|at| at + PRUNE_EVERY <= now) {
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
