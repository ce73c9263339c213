//! A handle of one counter: adds and reads.

use super::cell::{add_as_owner, add_shared};
use super::cells::SHARED_STRIPE;
use super::folder::Folder;
use super::map::OwnWord;
use super::slot::{Reading, Slot};
use super::stripes::Place;
use std::fmt;
use std::sync::Arc;

/// A counter of a folder. Clones are cheap; any thread may use any of them. While a handle lives, its counter stays in the folder, and
/// the folder stays locked.
#[derive(Clone)]
pub struct Handle {
    cell: OwnWord<Of>,
}

/// What a handle is of. An add to one of many counters reads nothing of it.
struct Of {
    folder: Arc<Folder>,
    slot: Arc<Slot>,
}

const _: () = assert!(size_of::<Handle>() <= 16, "four handles in a line of the cache");

impl Handle {
    pub(super) fn new(folder: Arc<Folder>, slot: Arc<Slot>) -> Handle {
        let index = slot.index;
        Handle { cell: folder.clone().cells.own_cell(index, Of { folder, slot }) }
    }

    fn folder(&self) -> &Folder {
        &self.cell.more().folder
    }

    fn slot(&self) -> &Slot {
        &self.cell.more().slot
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.slot().namespace
    }

    /// The counter.
    pub fn counter(&self) -> &str {
        &self.slot().counter
    }

    /// Adds `delta`, which may be negative (L1). When this returns, the add survives the death of the process (L2). It is a load and a store
    /// in memory, without a system call, a lock or a wait; only the first add of a thread reserves cells for the thread.
    ///
    /// The service refuses a sum of adds between two pushes of 2^62 / `buckets_per_id` or more
    /// ([`LocalCounters::unresolved`](super::LocalCounters::unresolved)).
    #[inline]
    pub fn add(&self, delta: i64) {
        match self.cell.get() {
            Some(cell) => add_as_owner(cell, delta),
            None => self.add_elsewhere(delta),
        }
    }

    /// Adds by a thread that has no cells in this folder yet, used another folder last, or shares its cells.
    #[inline(never)]
    fn add_elsewhere(&self, delta: i64) {
        let (folder, slot) = (self.folder(), self.cell.index());
        match folder.stripes.place(&folder.cells) {
            Place::Own(first) => add_as_owner(folder.cells.cell(first, slot), delta),
            Place::Shared => add_shared(folder.cells.cell(folder.cells.first_of(SHARED_STRIPE), slot), delta),
        }
    }

    /// The value in this process: the last pulled count, and what this folder has added since (L1). It makes no call. The next pull
    /// includes the counter.
    pub fn get(&self) -> Reading {
        self.slot().mark_read();
        // The lock keeps base and pushes together: a push that ends moves its delta from one to the other.
        let state = self.slot().state();
        let unpushed = self.folder().cells.unpushed(self.cell.index());
        state.reading(unpushed, &self.folder().options)
    }

    /// What this folder has added and not pushed yet.
    pub fn unpushed(&self) -> i64 {
        let _base_stays = self.slot().state();
        self.folder().cells.unpushed(self.cell.index())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}/{})", self.slot().namespace, self.slot().counter)
    }
}
