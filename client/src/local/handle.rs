//! A handle of one counter: adds and reads.

use super::cell::{add_as_owner, add_shared};
use super::cells::SHARED_STRIPE;
use super::folder::Folder;
use super::slot::{Reading, Slot};
use super::stripes::ThreadStripe;
use std::fmt;
use std::sync::Arc;

/// A counter of a folder. Clones are cheap; any thread may use any of them. While a handle lives, its counter stays in the folder, and
/// the folder stays locked.
#[derive(Clone)]
pub struct Handle {
    folder: Arc<Folder>,
    slot: Arc<Slot>,
    /// That of the slot, here: an add to one of many counters then needs no line of the slot.
    index: usize,
}

impl Handle {
    pub(super) fn new(folder: Arc<Folder>, slot: Arc<Slot>) -> Handle {
        let index = slot.index as usize;
        Handle { folder, slot, index }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.slot.namespace
    }

    /// The counter.
    pub fn counter(&self) -> &str {
        &self.slot.counter
    }

    /// Adds `delta`, which may be negative (L1). When this returns, the add survives the death of the process (L2). It is a load and a store
    /// in memory, without a system call, a lock or a wait; only the first add of a thread reserves cells for the thread.
    ///
    /// The service refuses a sum of adds between two pushes of 2^62 / `buckets_per_id` or more
    /// ([`LocalCounters::unresolved`](super::LocalCounters::unresolved)).
    #[inline]
    pub fn add(&self, delta: i64) {
        let (folder, slot) = (&*self.folder, self.index);
        match folder.stripes.of_thread(&folder.cells) {
            ThreadStripe::Own(first) => add_as_owner(folder.cells.cell(first, slot), delta),
            ThreadStripe::Shared => add_shared(folder.cells.cell(folder.cells.first_of(SHARED_STRIPE), slot), delta),
        }
    }

    /// The value in this process: the last pulled count, and what this folder has added since (L1). It makes no call. The next pull
    /// includes the counter.
    pub fn get(&self) -> Reading {
        self.slot.mark_read();
        // The lock keeps base and pushes together: a push that ends moves its delta from one to the other.
        let state = self.slot.state();
        let unpushed = self.folder.cells.unpushed(self.index);
        state.reading(unpushed, &self.folder.options)
    }

    /// What this folder has added and not pushed yet.
    pub fn unpushed(&self) -> i64 {
        let _base_stays = self.slot.state();
        self.folder.cells.unpushed(self.index)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}/{})", self.slot.namespace, self.slot.counter)
    }
}
