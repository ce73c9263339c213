//! The store of whole queues.

use super::all_known::AllEstimates;
use super::one_queue::{Observers, OneQueue};
use crate::health::StoreHealth;
use crate::schedule::Schedule;
use std::sync::Arc;
use tallystone_model::{Layout, Shard, Store};

/// A store of whole queues over a store of shards.
pub struct Sharded<S> {
    pub(super) inner: Arc<S>,
    observers: Observers,
    pub(super) known: Arc<AllEstimates>,
}

impl<S: Store> Sharded<S> {
    /// The queues of this store.
    pub fn new(inner: Arc<S>) -> Self {
        Sharded { inner, observers: Observers::default(), known: Arc::default() }
    }

    /// The same. When something falls due in a shard, and whether its calls reach the store, is noted there.
    pub(crate) fn observed(inner: Arc<S>, schedule: Arc<Schedule>, health: StoreHealth) -> Self {
        let observers = Observers { schedule: Some(schedule), health: Some(health) };
        Sharded { inner, observers, known: Arc::default() }
    }

    /// The store of its shards.
    pub fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    /// The queue of this first shard for one call, in this layout.
    pub(super) fn queue<'a>(&'a self, first: &'a Shard, layout: &Layout) -> OneQueue<'a, S> {
        let (known, observers) = (self.known.of(&first.queue, layout), &self.observers);
        OneQueue { store: &self.inner, first, layout: layout.clone(), known, all_estimates: &self.known, observers }
    }
}
