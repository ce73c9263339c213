//! The items of a Work stream that have no result yet.

use crate::api::batch::check_count;
use crate::api::status;
use crate::engine::WorkSession;
use std::collections::VecDeque;
use tallystone_model::Refusal;
use tallystone_model::store::{Extended, LeaseRef, Transition};
use tallystone_proto::RpcStatus;
use tonic::Status;

/// The items of one verb without a result, in order.
pub(super) struct Pending {
    list: &'static str,
    slots: VecDeque<Slot>,
}

enum Slot {
    /// Sent to the lane.
    Sent { lease: LeaseRef, index: usize },
    /// Malformed: its result is known, and is sent in the order of the items.
    Bad { id: String, status: RpcStatus },
}

/// A result of the lane, as far as it concerns the lease.
pub(super) trait OfLease {
    /// When the lease ends now, if that has changed.
    fn expires_at_ms(&self) -> Option<u64>;
}

impl OfLease for Transition {
    fn expires_at_ms(&self) -> Option<u64> {
        None
    }
}

impl OfLease for Extended {
    fn expires_at_ms(&self) -> Option<u64> {
        Some(self.expires_at_ms)
    }
}

impl Pending {
    pub(super) fn new(list: &'static str) -> Self {
        Pending { list, slots: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Parses the items of one request. Returns those for the lane.
    pub(super) fn add<W, I>(
        &mut self,
        items: Vec<W>,
        id_of: impl Fn(&W) -> &str,
        parse: impl Fn(W) -> Result<I, Refusal>,
        lease_of: impl Fn(&I) -> &LeaseRef,
    ) -> Result<Vec<I>, Status> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        check_count(self.list, items.len())?;
        let mut good = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let id = id_of(&item).to_owned();
            self.slots.push_back(match parse(item) {
                Ok(item) => {
                    let lease = lease_of(&item).clone();
                    good.push(item);
                    Slot::Sent { lease, index }
                }
                Err(refusal) => Slot::Bad { id, status: status::of_item(self.list, index, &refusal) },
            });
        }
        Ok(good)
    }

    /// Assigns results to their items. A lease that has ended, by this verb (`ends`) or earlier, need not be released; one that
    /// may not have ended is the worker's as before.
    pub(super) fn answer<O: OfLease, R>(
        &mut self,
        results: Vec<Result<O, Refusal>>,
        session: &mut WorkSession,
        ends: bool,
        to_wire: fn(String, Result<O, RpcStatus>) -> R,
        out: &mut Vec<R>,
    ) {
        for result in results {
            self.answer_bad(to_wire, out);
            let Some(Slot::Sent { lease, index }) = self.slots.pop_front() else { return };
            let ended = match &result {
                Ok(_) => ends,
                Err(refusal) => !refusal.is_unavailable() && !matches!(refusal, Refusal::Internal(_)),
            };
            if ended {
                session.finished(&lease);
            } else if ends {
                session.stays(&lease);
            } else if let Some(expires_at_ms) = result.as_ref().ok().and_then(OfLease::expires_at_ms) {
                session.extended(&lease, expires_at_ms);
            }
            let result = result.map_err(|refusal| status::of_item(self.list, index, &refusal));
            out.push(to_wire(lease.id.to_string(), result));
        }
    }

    /// Adds the results of the malformed items that are first in the order.
    pub(super) fn answer_bad<O, R>(&mut self, to_wire: fn(String, Result<O, RpcStatus>) -> R, out: &mut Vec<R>) {
        while matches!(self.slots.front(), Some(Slot::Bad { .. }))
            && let Some(Slot::Bad { id, status }) = self.slots.pop_front()
        {
            out.push(to_wire(id, Err(status)));
        }
    }
}
