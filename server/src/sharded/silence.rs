//! Shards that do not answer: calls on the others of their queue go on without them, and a background task finds out when they answer
//! again (docs/decisions/0215).
//!
//! A Dequeue may have got leases there that its callers do not wait for any more. The task repeats the call under the same
//! ticket, for the silent shard alone, before any other Dequeue goes there. What it finds (`found`), callers of equal requests get; no caller
//! waits for the rest, so it is released.

use super::all_known::AllEstimates;
use super::known::{ShardEstimates, lock};
use crate::health::StoreHealth;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::Release;
use tallystone_model::{Refusal, Shard, Store};
use tokio::time::{Instant, sleep};

/// Between two calls of a shard that does not answer.
const RETRY: Duration = Duration::from_millis(250);
/// How long leases that no caller waits for are kept for the next equal request: those that got nothing without them are requested again
/// within this time.
const FOUND_KEPT: Duration = Duration::from_secs(1);

/// One silent shard.
pub(super) struct Silent<S> {
    /// The task ends with the store.
    pub(super) store: Weak<S>,
    pub(super) shard: Shard,
    /// What is known of the shards of the layout in which it fell silent.
    pub(super) known: Arc<Mutex<ShardEstimates>>,
    pub(super) health: Option<StoreHealth>,
    pub(super) all_estimates: Arc<AllEstimates>,
}

impl<S: Store> Silent<S> {
    /// Returns when the shard answers again, and nothing that was lost there is without a worker.
    pub(super) async fn until_it_answers(self) {
        let number = self.shard.number;
        while let Some(store) = self.store.upgrade() {
            let (next, called_at) = (lock(&self.known).lost(number), Instant::now());
            let answer = match &next {
                Some(lost) => store.dequeue(&self.shard, &lost.requests, false, Some(lost.ticket)).await.map(Some),
                None => store.ages(&self.shard).await.map(|_| None),
            };
            if let Some(health) = &self.health {
                health.saw(&self.shard, &answer);
            }
            // A later try of its slot has taken over what there was.
            let is_over = |refusal: &Refusal| !refusal.is_unavailable() || *refusal == Refusal::overtaken();
            if answer.as_ref().is_err_and(|refusal| !is_over(refusal)) {
                drop(store);
                sleep(RETRY).await;
                continue;
            }
            if next.is_some() {
                lock(&self.known).finds(number, answer.ok().flatten(), called_at);
            }
            if lock(&self.known).ends_silence(number) {
                break;
            }
        }
        // The queue may have another layout since.
        self.all_estimates.is_back(&self.shard);
        self.all_estimates.notify()(&self.shard);
        sleep(FOUND_KEPT).await;
        let rest = lock(&self.known).rest_of_found(&self.shard);
        if let Some(store) = self.store.upgrade().filter(|_| !rest.is_empty()) {
            for leases in rest.chunks(BATCH_ITEMS_MAX) {
                let releases = leases.iter().map(|lease| Release::undelivered(lease.clone(), "caller gone"));
                // If the store does not answer, they expire.
                drop(store.release(&self.shard, releases.collect()).await);
            }
            self.all_estimates.changes(&self.shard);
            self.all_estimates.notify()(&self.shard);
        }
    }
}
