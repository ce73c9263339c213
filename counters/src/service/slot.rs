//! Where the items of a call wait. The caller and the flush share a slot, and the first of them takes the items out: a
//! caller that goes, or whose deadline passes, takes back what was not sent, and frees its [place](RoomPlace) at once. What was
//! sent stays sent.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use tallystone_serving::RoomPlace;

/// The items of a call until they are sent or its caller goes, and their place.
pub(super) struct Slot<I>(Mutex<Option<(Vec<I>, Arc<RoomPlace>)>>);

impl<I> Slot<I> {
    pub(super) fn take(&self) -> Option<(Vec<I>, Arc<RoomPlace>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the caller has gone: then only the call holds its slot.
    pub(super) fn is_left(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

/// The caller's hold on its slot.
pub(super) struct Waiting<I>(Arc<Slot<I>>);

impl<I> Waiting<I> {
    pub(super) fn new(items: Vec<I>, place: Arc<RoomPlace>) -> Waiting<I> {
        Waiting(Arc::new(Slot(Mutex::new(Some((items, place))))))
    }

    pub(super) fn slot(&self) -> Arc<Slot<I>> {
        self.0.clone()
    }
}

impl<I> Drop for Waiting<I> {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// A call of a flush: the number of its last item + 1, and whether its caller still waits.
struct Caller<I> {
    end: usize,
    slot: Weak<Slot<I>>,
}

/// The callers that wait for the items of a flush.
pub(super) struct Wanted<I>(Vec<Caller<I>>);

impl<I> Wanted<I> {
    pub(super) fn none() -> Wanted<I> {
        Wanted(Vec::new())
    }

    /// Adds the caller of the items up to this number.
    pub(super) fn add(&mut self, end: usize, slot: &Arc<Slot<I>>) {
        self.0.push(Caller { end, slot: Arc::downgrade(slot) });
    }

    /// Whether the caller of this item still waits.
    pub(super) fn is_wanted(&self, number: usize) -> bool {
        let caller = self.0.get(self.0.partition_point(|caller| caller.end <= number));
        caller.is_some_and(|caller| caller.slot.strong_count() > 0)
    }
}
