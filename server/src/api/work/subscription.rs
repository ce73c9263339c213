//! A subscription of a Work stream: its credits, its leases and results on their way to the worker, and how it ends.

use super::pending::Pending;
use crate::api::{status, wire};
use crate::engine::{Submission, WorkEvent, WorkSession, is_left};
use crate::tenants::Tenant;
use std::collections::VecDeque;
use std::sync::Arc;
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Lease, Refusal};
use tallystone_proto::queue::v1 as pb;
use tokio::time::Instant;
use tonic::Status;

/// The most leases that a worker may have requested and not received.
const CREDITS_MAX: usize = BATCH_ITEMS_MAX;
/// Payload bytes after which the next leases move to the next response: so a client that accepts messages of up to 4 MiB,
/// the common default, can read every response.
const RESPONSE_PAYLOAD_BYTES: usize = 1024 * 1024;

/// A worker's subscription to one queue.
pub(super) struct Subscription {
    session: WorkSession,
    /// Bounds the leases.
    tenant: Option<Arc<Tenant>>,
    /// It is in the stream's list of subscriptions that may have something to send.
    pub(super) is_listed: bool,
    /// It reads no requests and sends no leases: it sends the outstanding results, then ends with this status.
    end: Option<Status>,
    /// Credits without a lease.
    credits: usize,
    /// Leases that are not in a response yet, and when they were requested from the store.
    leases: VecDeque<(Instant, Lease)>,
    completes: Pending,
    releases: Pending,
    extends: Pending,
    /// The results for the next response.
    ready: pb::WorkResponse,
}

impl Subscription {
    pub(super) fn new(session: WorkSession, tenant: Option<Arc<Tenant>>) -> Self {
        Subscription {
            session,
            tenant,
            is_listed: false,
            end: None,
            credits: 0,
            leases: VecDeque::new(),
            completes: Pending::new("complete"),
            releases: Pending::new("release"),
            extends: Pending::new("extend"),
            ready: pb::WorkResponse::default(),
        }
    }

    /// The number of items without a result.
    pub(super) fn pending(&self) -> usize {
        self.completes.len() + self.releases.len() + self.extends.len()
    }

    /// Sends a request to the lane. A malformed item gets its own result; any other error ends the subscription.
    pub(super) fn submit(&mut self, request: pb::WorkRequest) -> Result<(), Status> {
        let credits = self.credits.saturating_add(request.credits as usize);
        if credits > CREDITS_MAX {
            let why = format!("would be {credits} unspent; the maximum is {CREDITS_MAX}");
            return Err(status::of_call(Refusal::invalid("credits", why)));
        }
        self.credits = credits;
        let submission = Submission {
            credits: request.credits as usize,
            complete: self.completes.add(
                request.complete,
                |lease| &lease.id,
                wire::completion,
                |completion| &completion.lease,
            )?,
            release: self.releases.add(
                request.release,
                |release| &release.id,
                wire::lease_release,
                |release| &release.lease,
            )?,
            extend: self.extends.add(
                request.extend,
                |extension| &extension.id,
                |extension| {
                    let extension = wire::lease_extension(extension, "")?;
                    self.tenant.as_ref().map_or(Ok(()), |tenant| tenant.check_lease(extension.lease_ms))?;
                    Ok(extension)
                },
                |extension| &extension.lease,
            )?,
            ..Submission::default()
        };
        // The queue of a lane is not bounded by itself: a request with nothing for the lane is not sent.
        if !submission.is_empty() {
            self.session.submit(submission);
        }
        Ok(())
    }

    /// Adds the results of the lane. Returns why the subscription gets no more leases.
    pub(super) fn take_in(&mut self, event: WorkEvent) -> Option<Refusal> {
        let (session, ready) = (&mut self.session, &mut self.ready);
        self.completes.answer(event.completed, session, true, wire::to_transition_result, &mut ready.completed);
        self.releases.answer(event.released, session, true, wire::to_transition_result, &mut ready.released);
        self.extends.answer(event.extended, session, false, wire::to_extension_result, &mut ready.extended);
        if let Some(granted) = event.leases {
            self.credits = self.credits.saturating_sub(granted.len());
            let requested_at = granted.requested_at;
            self.leases.extend(granted.take().into_iter().map(|lease| (requested_at, lease)));
        }
        self.revoke(event.revoked);
        event.end
    }

    /// Accepts no more leases.
    pub(super) fn stop(&self) {
        self.session.stop();
    }

    /// [Stops](Subscription::stop), and ends with this status after the outstanding results.
    pub(super) fn end_with(&mut self, end: Status) {
        self.stop();
        self.end.get_or_insert(end);
    }

    /// Whether it has stopped reading requests.
    pub(super) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// The final status, once every item has its result.
    pub(super) fn ended(&self) -> Option<Status> {
        self.end.clone().filter(|_| self.pending() == 0)
    }

    /// The next response, if it is not empty. Without `wanted` it contains no leases.
    pub(super) fn response(&mut self, wanted: bool) -> Option<pb::WorkResponse> {
        let mut response = std::mem::take(&mut self.ready);
        self.completes.answer_bad(wire::to_transition_result, &mut response.completed);
        self.releases.answer_bad(wire::to_transition_result, &mut response.released);
        self.extends.answer_bad(wire::to_extension_result, &mut response.extended);
        if wanted && self.end.is_none() && !self.leases.is_empty() {
            self.hand_over(&mut response);
        }
        (response != pb::WorkResponse::default()).then_some(response)
    }

    /// Adds leases to a response. Those that may have ended meanwhile are released instead.
    fn hand_over(&mut self, response: &mut pb::WorkResponse) {
        let (now, mut payload_bytes, mut over) = (Instant::now(), 0, Vec::new());
        while payload_bytes < RESPONSE_PAYLOAD_BYTES
            && let Some((requested_at, mut lease)) = self.leases.pop_front()
        {
            if !is_left(&mut lease, requested_at, now) {
                over.push(lease);
                continue;
            }
            payload_bytes += lease.payload.len();
            self.session.handed_over(&lease);
            response.leases.push(wire::to_lease(lease));
        }
        let credits = over.len();
        self.session.give_back(over, "lease over");
        self.take_back(credits);
    }

    /// Ends leases that are revoked. Those that the worker has are in the next response; those that it does not have yet are
    /// not sent.
    fn revoke(&mut self, revoked: Vec<LeaseRef>) {
        let mut unsent = 0;
        for lease in revoked {
            let is_it = |other: &Lease| other.fencing_token == lease.fencing_token && other.id == lease.id;
            if self.session.holds(&lease) {
                self.session.finished(&lease);
                let (id, fencing_token) = (lease.id.to_string(), lease.fencing_token);
                self.ready.revoked.push(pb::LeaseRef { id, fencing_token, ..Default::default() });
            } else if let Some(at) = self.leases.iter().position(|(_, other)| is_it(other)) {
                self.leases.remove(at);
                unsent += 1;
            }
        }
        self.take_back(unsent);
    }

    /// The credits of leases that ended before they were sent stand for others.
    fn take_back(&mut self, credits: usize) {
        if credits > 0 {
            self.credits += credits;
            self.session.submit(Submission { credits, ..Submission::default() });
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Released whatever `release_on_close` says: the worker has never received these.
        self.session.give_back(self.leases.drain(..).map(|(_, lease)| lease), "stream closed");
    }
}
