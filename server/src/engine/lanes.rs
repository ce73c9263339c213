//! The lanes of this server by shard: made when first needed, ended when idle.

use super::Command;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tallystone_model::Shard;
use tokio::sync::mpsc;

/// Starts the task of a lane.
type Start = dyn Fn(Arc<Lanes>, Shard, mpsc::UnboundedReceiver<Command>) + Send + Sync;

/// All lanes. Every command goes through this map, under its lock: so a lane that finds its channel empty under the
/// same lock can end, and no command is lost and no shard ever has two lanes.
///
/// The channels have no bound of their own: every command has a caller who waits for it, or a Work stream whose
/// outstanding items are bounded.
pub(crate) struct Lanes {
    open: Mutex<HashMap<Shard, mpsc::UnboundedSender<Command>>>,
    start: Box<Start>,
    this: Weak<Lanes>,
}

impl Lanes {
    pub(super) fn new(
        start: impl Fn(Arc<Lanes>, Shard, mpsc::UnboundedReceiver<Command>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Lanes { open: Mutex::default(), start: Box::new(start), this: this.clone() })
    }

    /// Hands a command to the lane of the shard.
    pub(crate) fn send(&self, shard: &Shard, mut command: Command) {
        let mut open = self.lock();
        if let Some(lane) = open.get(shard) {
            match lane.send(command) {
                Ok(()) => return,
                // Its task ended without leaving the map: a panic. A new one takes over.
                Err(mpsc::error::SendError(back)) => command = back,
            }
        }
        let Some(this) = self.this.upgrade() else { return };
        let (sender, receiver) = mpsc::unbounded_channel();
        if sender.send(command).is_err() {
            return; // The receiver is right here.
        }
        open.insert(shard.clone(), sender);
        (self.start)(this, shard.clone(), receiver);
    }

    /// Something may have become runnable in the shard. Without a lane nobody waits here.
    pub(crate) fn wake(&self, shard: &Shard) {
        if let Some(lane) = self.lock().get(shard) {
            drop(lane.send(Command::Wake));
        }
    }

    /// Takes an idle lane out of the map; `false`: a command has come in the meantime.
    pub(super) fn close(&self, shard: &Shard, commands: &mpsc::UnboundedReceiver<Command>) -> bool {
        let mut open = self.lock();
        let idle = commands.is_empty();
        if idle {
            open.remove(shard);
        }
        idle
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shard, mpsc::UnboundedSender<Command>>> {
        // Nothing in here leaves the map half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
