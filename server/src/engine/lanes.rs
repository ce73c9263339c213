//! The lanes of this server, one for each queue shard in use: started when first needed, ended when idle.

use super::call::{Call, Recipient};
use super::command::{Command, Verb};
use super::granted::LeaseReturn;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tallystone_model::Shard;
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::{LeaseRef, Release};
use tokio::sync::mpsc;

/// Starts the task of a lane.
type Start = dyn Fn(Arc<Lanes>, Shard, mpsc::UnboundedReceiver<Command>) + Send + Sync;

/// All lanes. Every command is sent under the lock of this map. So a lane that finds its channel empty under the same
/// lock can end: no command is lost, and no shard ever has two lanes.
///
/// The channels are unbounded. What bounds them: every command has a caller that waits for its result and a place in a
/// room, or a subscription with a bounded number of outstanding items.
pub(crate) struct Lanes {
    open: Mutex<HashMap<Shard, mpsc::UnboundedSender<Command>>>,
    start: Box<Start>,
    this: Weak<Lanes>,
    /// Names this server in the tickets of its Dequeues.
    pub(super) server: u64,
}

impl Lanes {
    pub(super) fn new(
        start: impl Fn(Arc<Lanes>, Shard, mpsc::UnboundedReceiver<Command>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let server = rand::random();
        Arc::new_cyclic(|this| Lanes { open: Mutex::default(), start: Box::new(start), this: this.clone(), server })
    }

    /// Sends a command to the lane of the shard, which it starts if necessary.
    pub(crate) fn send(&self, shard: &Shard, mut command: Command) {
        let mut open = self.lock();
        if let Some(lane) = open.get(shard) {
            match lane.send(command) {
                Ok(()) => return,
                // The task ended without leaving the map: it panicked. A new lane replaces it.
                Err(mpsc::error::SendError(back)) => command = back,
            }
        }
        let Some(this) = self.this.upgrade() else { return };
        let (sender, receiver) = mpsc::unbounded_channel();
        if sender.send(command).is_err() {
            return; // Impossible: the receiver is still in this function.
        }
        open.insert(shard.clone(), sender);
        (self.start)(this, shard.clone(), receiver);
    }

    /// Wakes the lane of a shard in which messages may have become runnable. A shard without lane has no waiting callers.
    pub(crate) fn wake(&self, shard: &Shard) {
        if let Some(lane) = self.lock().get(shard) {
            drop(lane.send(Command::Wake));
        }
    }

    /// The same for the lane of the queue with this shard.
    pub(crate) fn wake_queue(&self, shard: &Shard) {
        match shard.number {
            0 => self.wake(shard),
            _ => self.wake(&Shard::first(&shard.queue)),
        }
    }

    /// A caller has disconnected: its call need not wait.
    pub(super) fn caller_left(&self, shard: &Shard, verb: Verb) {
        if let Some(lane) = self.lock().get(shard) {
            drop(lane.send(Command::CallerLeft(verb)));
        }
    }

    /// Notifies the subscription that has this lease, if one does, that a Cancel with force or a purge has ended it.
    pub(crate) fn revoke(&self, shard: &Shard, lease: &LeaseRef) {
        if let Some(lane) = self.lock().get(&Shard::first(&shard.queue)) {
            drop(lane.send(Command::Revoke(lease.clone())));
        }
    }

    /// Releases leases at once, without waiting for the results.
    pub(super) fn release(&self, shard: &Shard, releases: Vec<Release>) {
        for releases in releases.chunks(BATCH_ITEMS_MAX) {
            self.send(shard, Command::Release(Call::of(releases.to_vec(), Recipient::Discard)));
        }
    }

    /// Removes an idle lane from the map; `false`: a command has arrived meanwhile.
    pub(super) fn close(&self, shard: &Shard, commands: &mpsc::UnboundedReceiver<Command>) -> bool {
        let mut open = self.lock();
        let idle = commands.is_empty();
        if idle {
            open.remove(shard);
        }
        idle
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shard, mpsc::UnboundedSender<Command>>> {
        // No holder of the lock panics with the map half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseReturn for Lanes {
    fn give_back(&self, shard: &Shard, leases: Vec<LeaseRef>, reason: &'static str) {
        self.release(shard, leases.into_iter().map(|lease| Release::undelivered(lease, reason)).collect());
    }
}
