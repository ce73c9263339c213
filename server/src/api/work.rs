//! rpc Work: one worker's calls in one stream (Q7).
//!
//! The response stream is the session. Polled by the connection, it reads requests, sends each to the lane as one
//! submission, and combines all results of the lane in one response. While a client does not read its responses, its
//! requests are not read either. When the stream is dropped, [`WorkSession`] releases leases.

use super::batch::check_count;
use super::{status, wire};
use crate::engine::{Engine, Submission, WorkEvent, WorkSession};
use futures::{Stream, stream};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use tallystone_model::limits::*;
use tallystone_model::store::{DequeueRequest, LeaseRef};
use tallystone_model::{Lease, QueueName, Refusal, Store};
use tallystone_proto::RpcStatus;
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{ObservedCall, refused_in_full};
use tonic::{Code, Status, Streaming};

/// The most leases that a worker may have requested and not received.
const CREDITS_MAX: usize = BATCH_ITEMS_MAX;
/// With this many items without a result, no further request is read.
const PENDING_MAX: usize = 4 * BATCH_ITEMS_MAX;
/// Payload bytes after which the next leases move to the next response: so a client that accepts messages of up to 4 MiB,
/// the common default, can read every response.
const RESPONSE_PAYLOAD_BYTES: usize = 1024 * 1024;

pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<pb::WorkResponse, Status>> + Send>>;

/// Returns before the first request has arrived: if that request is invalid, the stream ends with a status.
pub(super) fn handle<S: Store>(
    engine: &Arc<Engine<S>>,
    requests: Streaming<pb::WorkRequest>,
    observed: ObservedCall,
) -> Responses {
    engine.context.metrics.streams.increment(1);
    let session = Session { engine: engine.clone(), requests, observed, phase: Phase::Reading, open: None };
    Box::pin(stream::unfold(session, |mut session| async move {
        let response = session.next().await?;
        Some((response, session))
    }))
}

struct Session<S: Store> {
    engine: Arc<Engine<S>>,
    requests: Streaming<pb::WorkRequest>,
    observed: ObservedCall,
    phase: Phase,
    /// `Some` after the first request.
    open: Option<Open>,
}

enum Phase {
    /// Reads requests and sends leases.
    Reading,
    /// Reads no requests and sends no leases: sends the outstanding results, then ends the stream with this status.
    Closing(Result<(), Status>),
    Ended,
}

impl<S: Store> Drop for Session<S> {
    fn drop(&mut self) {
        self.engine.context.metrics.streams.decrement(1);
    }
}

impl<S: Store> Session<S> {
    /// The next response, the final status, or the end.
    async fn next(&mut self) -> Option<Result<pb::WorkResponse, Status>> {
        loop {
            match &self.phase {
                Phase::Ended => return None,
                phase => {
                    let reading = matches!(phase, Phase::Reading);
                    if let Some(response) = self.open.as_mut().and_then(|open| open.response(reading)) {
                        return Some(Ok(response));
                    }
                }
            }
            if let Phase::Closing(end) = &mut self.phase
                && self.open.as_ref().is_none_or(|open| open.pending() == 0)
            {
                let end = std::mem::replace(end, Ok(()));
                return self.end(end);
            }
            if let Err(status) = self.step().await {
                return self.end(Err(status));
            }
        }
    }

    fn end(&mut self, end: Result<(), Status>) -> Option<Result<pb::WorkResponse, Status>> {
        self.phase = Phase::Ended;
        self.open = None;
        self.observed.code = end.as_ref().map_or_else(Status::code, |()| Code::Ok);
        end.err().map(Err)
    }

    /// Waits for one event and handles it; an error ends the stream at once.
    async fn step(&mut self) -> Result<(), Status> {
        let reading = matches!(self.phase, Phase::Reading);
        let room = self.open.as_ref().is_none_or(|open| open.pending() < PENDING_MAX);
        let event = async {
            match &mut self.open {
                Some(open) => open.session.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = event => {
                if let Some(open) = &mut self.open {
                    let end = open.take_in(event);
                    if let Some(refusal) = end {
                        self.close(Err(status::of_call(refusal)));
                    }
                }
            }
            request = self.requests.message(), if reading && room => match request.map_err(refused_in_full)? {
                Some(request) => self.accept(request)?,
                None => self.close(Ok(())),
            },
            () = self.engine.context.stopping.cancelled(), if reading => self.close(Err(status::stopping())),
        }
        Ok(())
    }

    fn close(&mut self, end: Result<(), Status>) {
        if let Some(open) = &self.open {
            open.session.stop();
        }
        self.phase = Phase::Closing(end);
    }

    /// Handles one request. A malformed item gets its own result; any other error ends the stream.
    fn accept(&mut self, mut request: pb::WorkRequest) -> Result<(), Status> {
        let invalid = |field, why: &str| Err(status::of_call(Refusal::invalid(field, why)));
        let open = match (&mut self.open, request.start.take()) {
            (Some(open), None) => open,
            (Some(_), Some(_)) => {
                return invalid("start", "is set again; only the first request of a stream may have it");
            }
            (None, None) => return invalid("start", "is absent; the first request of a stream must have it"),
            (None, Some(start)) => {
                let release_on_close = start.release_on_close;
                let (queue, options) = parse_start(start)?;
                let session = self.engine.work(&queue, options, release_on_close);
                self.open.insert(Open::new(session))
            }
        };
        open.submit(request)
    }
}

/// The queue, and the Dequeue request of the stream; the credits will be its limit.
fn parse_start(start: pb::WorkStart) -> Result<(QueueName, DequeueRequest), Status> {
    let filters = wire::filters("start.filters", start.filters)?;
    let parse = || {
        let queue = QueueName::parse("queue", &start.queue)?;
        let worker = wire::text("worker", start.worker, WORKER_BYTES_MAX)?;
        let lease_ms = wire::lease_ms(start.lease_ms)?;
        Ok((queue, DequeueRequest { worker, limit: 0, lease_ms, filters, request_id: String::new() }))
    };
    parse().map_err(|refusal| status::within("start", refusal))
}

/// A stream whose first request has arrived.
struct Open {
    session: WorkSession,
    /// Credits without a lease.
    credits: usize,
    /// Leases that are not in a response yet.
    leases: VecDeque<Lease>,
    completes: Pending,
    releases: Pending,
    extends: Pending,
    /// Leases that a Cancel with force has ended, and that the worker does not know of yet.
    revoked: Vec<LeaseRef>,
    /// The results for the next response.
    ready: pb::WorkResponse,
}

impl Open {
    fn new(session: WorkSession) -> Self {
        Open {
            session,
            credits: 0,
            leases: VecDeque::new(),
            completes: Pending::new("complete"),
            releases: Pending::new("release"),
            extends: Pending::new("extend"),
            revoked: Vec::new(),
            ready: pb::WorkResponse::default(),
        }
    }

    /// The number of items without a result.
    fn pending(&self) -> usize {
        self.completes.len() + self.releases.len() + self.extends.len()
    }

    fn submit(&mut self, request: pb::WorkRequest) -> Result<(), Status> {
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
                |extension| wire::lease_extension(extension, ""),
                |extension| &extension.lease,
            )?,
        };
        self.session.submit(submission);
        Ok(())
    }

    /// Adds the results of the lane, and all further ones that have arrived. Returns why the stream gets no more leases.
    fn take_in(&mut self, event: WorkEvent) -> Option<Refusal> {
        let mut end = None;
        let mut next = Some(event);
        while let Some(event) = next {
            let (session, ready) = (&mut self.session, &mut self.ready);
            self.completes.answer(event.completed, session, true, wire::to_transition_result, &mut ready.completed);
            self.releases.answer(event.released, session, true, wire::to_transition_result, &mut ready.released);
            self.extends.answer(event.extended, session, false, wire::to_extension_result, &mut ready.extended);
            if let Some(granted) = event.leases {
                self.credits = self.credits.saturating_sub(granted.len());
                self.leases.extend(granted.take());
            }
            self.revoked.extend(event.revoked);
            end = end.or(event.end);
            next = self.session.try_next();
        }
        end
    }

    /// The next response, if it is not empty. Without `wanted` it contains no leases.
    fn response(&mut self, wanted: bool) -> Option<pb::WorkResponse> {
        let mut response = std::mem::take(&mut self.ready);
        self.completes.answer_bad(wire::to_transition_result, &mut response.completed);
        self.releases.answer_bad(wire::to_transition_result, &mut response.released);
        self.extends.answer_bad(wire::to_extension_result, &mut response.extended);
        let mut payload_bytes = 0;
        while wanted
            && payload_bytes < RESPONSE_PAYLOAD_BYTES
            && let Some(lease) = self.leases.pop_front()
        {
            payload_bytes += lease.payload.len();
            self.session.handed_over(&lease);
            response.leases.push(wire::to_lease(lease));
        }
        self.revoke(&mut response);
        (response != pb::WorkResponse::default()).then_some(response)
    }

    /// Notifies the worker of its leases that are revoked; a lease that it does not have yet must come first.
    fn revoke(&mut self, response: &mut pb::WorkResponse) {
        for lease in std::mem::take(&mut self.revoked) {
            if self.session.holds(&lease) {
                self.session.finished(&lease);
                let id = lease.id.to_string();
                response.revoked.push(pb::LeaseRef { id, fencing_token: lease.fencing_token, ..Default::default() });
            } else if self.leases.iter().any(|other| other.id == lease.id) {
                self.revoked.push(lease);
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Released whatever `release_on_close` says: the worker has never received these.
        self.session.give_back(self.leases.drain(..));
    }
}

/// The items of one verb without a result, in order.
struct Pending {
    list: &'static str,
    slots: VecDeque<Slot>,
}

enum Slot {
    /// Sent to the lane.
    Sent { lease: LeaseRef, index: usize },
    /// Malformed: its result is known, and is sent in the order of the items.
    Bad { id: String, status: RpcStatus },
}

impl Pending {
    fn new(list: &'static str) -> Self {
        Pending { list, slots: VecDeque::new() }
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    /// Parses the items of one request. Returns those for the lane.
    fn add<W, I>(
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

    /// Assigns results to their items. A lease that has ended, by this verb (`ends`) or earlier, need not be released.
    fn answer<O, R>(
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
            }
            let result = result.map_err(|refusal| status::of_item(self.list, index, &refusal));
            out.push(to_wire(lease.id.to_string(), result));
        }
    }

    /// Adds the results of the malformed items that are first in the order.
    fn answer_bad<O, R>(&mut self, to_wire: fn(String, Result<O, RpcStatus>) -> R, out: &mut Vec<R>) {
        while matches!(self.slots.front(), Some(Slot::Bad { .. }))
            && let Some(Slot::Bad { id, status }) = self.slots.pop_front()
        {
            out.push(to_wire(id, Err(status)));
        }
    }
}
