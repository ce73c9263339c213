//! rpc Work: one worker's calls in one stream (Q7), for one queue or for many.
//!
//! The response stream is the session. Polled by the connection, it reads requests, sends each to the lane of its
//! subscription as one submission, and combines all results of a lane in one response. While a client does not read its
//! responses, its requests are not read either. When the stream is dropped, [`WorkSession`](crate::engine::WorkSession)
//! releases leases.
//!
//! What lives here: the stream and its requests; `subscription`, one queue of the stream; `pending`, the items without a
//! result. What may not: what the lanes do.

mod pending;
mod subscription;

#[cfg(test)]
mod aged;
#[cfg(test)]
mod closed;

use super::{status, wire};
use crate::engine::{Engine, WorkEvent, WorkEvents};
use futures::{Stream, stream};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use subscription::Subscription;
use tallystone_model::limits::*;
use tallystone_model::store::DequeueRequest;
use tallystone_model::{QueueName, Refusal, Store};
use tallystone_proto::RpcStatus;
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::status::from_call;
use tallystone_serving::{Access, ObservedCall, refused_in_full};
use tokio::task::coop::consume_budget;
use tonic::{Code, Request, Status, Streaming};

/// With this many items without a result, no further request is read.
const PENDING_MAX: usize = 4 * BATCH_ITEMS_MAX;
/// The most subscriptions of a stream.
const SUBSCRIPTIONS_MAX: usize = 10_000;
/// The subscription that ends with its stream, and ends the stream if it fails.
const WHOLE_STREAM: u32 = 0;

pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<pb::WorkResponse, Status>> + Send>>;

/// Returns before the first request has arrived: if that request is invalid, the stream ends with a status.
pub(super) fn handle<S: Store>(
    engine: &Arc<Engine<S>>,
    requests: Request<Streaming<pb::WorkRequest>>,
    observed: ObservedCall,
) -> Responses {
    let access = Access::of(requests.extensions());
    let withdrawn = Box::pin({
        let access = access.clone();
        async move { access.withdrawn().await }
    });
    engine.context.metrics.streams.increment(1);
    let session = Session {
        engine: engine.clone(),
        requests: requests.into_inner(),
        access,
        withdrawn,
        observed,
        phase: Phase::Reading,
        events: WorkEvents::new(),
        subscriptions: HashMap::new(),
        last: None,
        listed: VecDeque::new(),
        ended: VecDeque::new(),
        pending: 0,
    };
    Box::pin(stream::unfold(session, |mut session| async move {
        let response = session.next().await?;
        Some((response, session))
    }))
}

struct Session<S: Store> {
    engine: Arc<Engine<S>>,
    requests: Streaming<pb::WorkRequest>,
    access: Access,
    /// Ends when the stream must end, because its caller has lost its access.
    withdrawn: Pin<Box<dyn Future<Output = Status> + Send>>,
    observed: ObservedCall,
    phase: Phase,
    events: WorkEvents,
    /// By their numbers.
    subscriptions: HashMap<u32, Subscription>,
    /// The number of the latest one; `None` before the first request.
    last: Option<u32>,
    /// Those that may have something to send.
    listed: VecDeque<u32>,
    /// Those that have ended, and the client does not know it yet.
    ended: VecDeque<(u32, RpcStatus)>,
    /// Items of all subscriptions without a result.
    pending: usize,
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
            if matches!(self.phase, Phase::Ended) {
                return None;
            }
            if let Some(response) = self.response() {
                return Some(Ok(response));
            }
            if let Phase::Closing(end) = &mut self.phase
                && self.pending == 0
            {
                let end = std::mem::replace(end, Ok(()));
                return self.end(end);
            }
            if let Err(status) = self.step().await {
                return self.end(Err(status));
            }
        }
    }

    /// What a subscription has to send, or that it has ended.
    fn response(&mut self) -> Option<pb::WorkResponse> {
        let reading = matches!(self.phase, Phase::Reading);
        while let Some(number) = self.listed.pop_front() {
            let next = self.with(number, |subscription| {
                subscription.is_listed = false;
                (subscription.response(reading), subscription.ended())
            });
            match next {
                Some((Some(response), _)) => {
                    // It may have more leases.
                    self.list(number);
                    return Some(pb::WorkResponse { subscription: number, ..response });
                }
                Some((None, Some(status))) => self.remove(number, &status),
                Some((None, None)) | None => {}
            }
        }
        let (subscription, ended) = self.ended.pop_front()?;
        Some(pb::WorkResponse { subscription, ended: Some(ended), ..Default::default() })
    }

    /// Lets a subscription act, and counts its items without a result again.
    fn with<R>(&mut self, number: u32, act: impl FnOnce(&mut Subscription) -> R) -> Option<R> {
        let subscription = self.subscriptions.get_mut(&number)?;
        let before = subscription.pending();
        let result = act(subscription);
        self.pending = self.pending + subscription.pending() - before;
        Some(result)
    }

    fn list(&mut self, number: u32) {
        if let Some(subscription) = self.subscriptions.get_mut(&number)
            && !subscription.is_listed
        {
            subscription.is_listed = true;
            self.listed.push_back(number);
        }
    }

    /// Ends a subscription at once.
    fn remove(&mut self, number: u32, status: &Status) {
        if let Some(subscription) = self.subscriptions.remove(&number) {
            self.pending -= subscription.pending();
        }
        self.ended.push_back((number, from_call(status)));
    }

    fn end(&mut self, end: Result<(), Status>) -> Option<Result<pb::WorkResponse, Status>> {
        self.phase = Phase::Ended;
        self.subscriptions.clear();
        self.observed.code = end.as_ref().map_or_else(Status::code, |()| Code::Ok);
        end.err().map(Err)
    }

    /// Waits for one event and handles it; an error ends the stream at once.
    async fn step(&mut self) -> Result<(), Status> {
        let reading = matches!(self.phase, Phase::Reading);
        let room = self.pending < PENDING_MAX;
        tokio::select! {
            // First what ends the stream: a client that sends without a pause does not keep it open.
            biased;
            status = &mut self.withdrawn, if reading => self.close(Err(status)),
            () = self.engine.context.stopping.cancelled(), if reading => self.close(Err(status::stopping())),
            (number, event) = self.events.next() => {
                self.take_in(number, event);
                // All that has arrived travels together.
                while let Some((number, event)) = self.events.try_next() {
                    self.take_in(number, event);
                }
            }
            request = self.requests.message(), if reading && room => match request.map_err(refused_in_full)? {
                Some(request) => {
                    self.accept(request)?;
                    // Hundreds of thousands of small requests may have arrived at once.
                    consume_budget().await;
                }
                None => self.close(Ok(())),
            },
        }
        Ok(())
    }

    fn take_in(&mut self, number: u32, event: WorkEvent) {
        let Some(refusal) = self.with(number, |subscription| subscription.take_in(event)) else { return };
        self.list(number);
        if let Some(refusal) = refusal {
            self.fail(number, status::of_call(refusal));
        }
    }

    fn close(&mut self, end: Result<(), Status>) {
        self.subscriptions.values().for_each(Subscription::stop);
        self.phase = Phase::Closing(end);
    }

    /// Ends a subscription after its outstanding results.
    fn fail(&mut self, number: u32, status: Status) {
        if number == WHOLE_STREAM {
            self.close(Err(status));
        } else if let Some(subscription) = self.subscriptions.get_mut(&number) {
            subscription.end_with(status);
            self.list(number);
        }
    }

    /// Handles one request; an error ends the stream. Any other fault of a request ends its subscription.
    fn accept(&mut self, mut request: pb::WorkRequest) -> Result<(), Status> {
        let number = request.subscription;
        let start = request.start.take();
        self.check_number(number, start.is_some())?;
        let accepted = match start {
            Some(start) => self.subscribe(number, start),
            None => Ok(()),
        };
        match accepted.and_then(|()| self.submit(number, request)) {
            Err(status) if number != WHOLE_STREAM => self.remove(number, &status),
            accepted => accepted?,
        }
        Ok(())
    }

    /// Numbers rise, so that a request for a subscription that has just ended is not taken for a new one's.
    fn check_number(&self, number: u32, starts: bool) -> Result<(), Status> {
        let (field, why) = match (self.last, starts) {
            (None, false) => ("start", "is absent; the first request of a stream must have it"),
            (Some(last), true) if number <= last => {
                ("start", "is set again; only the first request of a subscription may have it")
            }
            (Some(last), false) if number > last => {
                ("subscription", "has not begun; its first request must have a start")
            }
            (Some(_), true) if self.subscriptions.len() >= SUBSCRIPTIONS_MAX => {
                ("subscription", "would be the 10,001st; a stream has 10,000 at most")
            }
            _ => return Ok(()),
        };
        Err(status::of_call(Refusal::invalid(field, why)))
    }

    fn subscribe(&mut self, number: u32, start: pb::WorkStart) -> Result<(), Status> {
        self.last = Some(number);
        self.access.check(&start)?;
        if let Some(audited) = self.access.audit(&start)? {
            audited.end(Ok(&()));
        }
        let release_on_close = start.release_on_close;
        let (queue, options) = parse_start(start)?;
        let tenants = &self.engine.context.tenants;
        tenants.take_call(queue.as_str()).map_err(status::of_call)?;
        let lease_bound = tenants.of(&queue).cloned();
        let session = self.engine.work(&queue, options, release_on_close, self.events.sender(number));
        let session = session.map_err(status::of_call)?;
        self.subscriptions.insert(number, Subscription::new(session, lease_bound));
        Ok(())
    }

    fn submit(&mut self, number: u32, request: pb::WorkRequest) -> Result<(), Status> {
        let close = request.close;
        let submitted = self.with(number, |subscription| match subscription.is_ending() {
            true => Ok(()),
            false => subscription.submit(request),
        });
        // The client learns of the end by the next response, and then that this request has no result.
        let Some(submitted) = submitted else {
            if number == WHOLE_STREAM && close {
                self.close(Ok(()));
            }
            return Ok(());
        };
        submitted?;
        self.list(number);
        match number {
            _ if !close => {}
            WHOLE_STREAM => self.close(Ok(())),
            _ => self.fail(number, Status::ok("")),
        }
        Ok(())
    }
}

/// The queue, and the Dequeue request of the subscription; the credits will be its limit.
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
