//! One dequeue of the store, combined from the requests of many waiters.

use super::group::{Streams, Waiter, WaiterKind};
use tallystone_model::Filter;
use tallystone_model::store::DequeueRequest;
use tokio::time::Instant;

/// The requests of one store call, and the waiters they belong to.
#[derive(Default)]
pub(in crate::engine) struct DequeueBatch {
    /// For the store.
    pub(in crate::engine) requests: Vec<DequeueRequest>,
    /// Whether any waiter will wait on if it gets nothing.
    pub(in crate::engine) wait: bool,
    /// One for each request, in the same order.
    pub(super) entries: Vec<BatchEntry>,
}

/// The waiter of one request.
pub(super) struct BatchEntry {
    pub(super) waiter: Waiter,
    pub(super) limit: usize,
    /// The filters that name its group.
    pub(super) filters: Vec<Filter>,
    pub(super) has_request_id: bool,
}

impl DequeueBatch {
    /// Adds a waiter. The credits of a stream move into the request; those that are not used return with its result.
    pub(super) fn add(&mut self, waiter: Waiter, limit: usize, streams: &mut Streams, now: Instant) {
        let request = match &waiter.kind {
            WaiterKind::Caller(call) => {
                self.wait |= call.until > now;
                call.request.clone()
            }
            WaiterKind::Stream(id) => {
                let Some(stream) = streams.get_mut(id) else { return };
                self.wait = true;
                stream.queued = false;
                stream.credits = 0;
                DequeueRequest { limit, ..stream.request.clone() }
            }
        };
        let (filters, has_request_id) = (request.filters.clone(), !request.request_id.is_empty());
        self.requests.push(request);
        self.entries.push(BatchEntry { waiter, limit, filters, has_request_id });
    }
}
