//! What one server knows of the shards of all queues that it has used, and how it notifies those that wait.

use super::known::{ShardEstimates, lock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tallystone_model::store::LeaseRef;
use tallystone_model::{Layout, QueueName, Shard};

/// Notifies those that wait for messages of a shard.
pub(super) type Notify = Arc<dyn Fn(&Shard) + Send + Sync>;

/// What is known of each queue with several shards that this server has used.
#[derive(Default)]
pub(super) struct AllEstimates {
    queues: Mutex<HashMap<QueueName, Arc<Mutex<ShardEstimates>>>>,
    /// Those that wait on this server.
    notify: OnceLock<Notify>,
    /// Whether there was one: without, calls on queues with one shard take no lock.
    is_used: AtomicBool,
}

impl AllEstimates {
    /// What is known of a queue with these shards.
    pub(super) fn of(&self, queue: &QueueName, layout: &Layout) -> Arc<Mutex<ShardEstimates>> {
        let mut all = self.lock();
        let estimates = match all.get(queue) {
            Some(known) => {
                let earlier = lock(known);
                if earlier.is_of(layout.numbers()) {
                    return known.clone();
                }
                earlier.of_same_queue(layout.numbers())
            }
            None => ShardEstimates::of(layout.numbers()),
        };
        let known = Arc::new(Mutex::new(estimates));
        self.is_used.store(true, Ordering::Relaxed);
        all.insert(queue.clone(), known.clone());
        known
    }

    /// Those that are notified of what becomes runnable, from now on.
    pub(super) fn set_notify(&self, notify: Notify) {
        drop(self.notify.set(notify));
    }

    /// How to notify them.
    pub(super) fn notify(&self) -> Notify {
        self.notify.get().cloned().unwrap_or_else(|| Arc::new(|_| {}))
    }

    /// A message of this shard may have become runnable.
    pub(super) fn changes(&self, shard: &Shard) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let known = self.lock().get(&shard.queue).cloned();
        if let Some(known) = known {
            lock(&known).changes(shard.number);
        }
    }

    /// A call of this server may have made a message of this shard runnable after the Dequeue of its flush. That one has left the mark
    /// of this server, and a script wakes no caller of the server that has sent it.
    pub(super) fn wakes(&self, shard: &Shard) {
        self.changes(shard);
        self.notify()(shard);
    }

    /// This shard, which was silent, answers again.
    pub(super) fn is_back(&self, shard: &Shard) {
        let known = self.lock().get(&shard.queue).cloned();
        if let Some(known) = known {
            lock(&known).is_back(shard.number);
        }
    }

    /// A lease of this shard has been revoked.
    pub(super) fn revokes(&self, shard: &Shard, lease: &LeaseRef) {
        if !self.is_used.load(Ordering::Relaxed) {
            return;
        }
        let known = self.lock().get(&shard.queue).cloned();
        if let Some(known) = known {
            lock(&known).revokes(lease);
        }
    }

    /// Whether the queue has several shards, as far as is known.
    pub(super) fn has(&self, queue: &QueueName) -> bool {
        self.is_used.load(Ordering::Relaxed) && self.lock().contains_key(queue)
    }

    /// The queue is deleted, or has one shard now.
    pub(super) fn forget(&self, queue: &QueueName) {
        if self.is_used.load(Ordering::Relaxed) {
            self.lock().remove(queue);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Arc<Mutex<ShardEstimates>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
