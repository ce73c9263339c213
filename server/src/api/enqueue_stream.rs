//! rpc EnqueueStream: many Enqueues in one stream (Q27).
//!
//! The response stream is the session, as that of Work is. Polled by the connection, it reads requests, begins each call by
//! the path of the unary Enqueue, and sends all answers that are ready in one response. Calls that end together, which
//! those of one flush do, so cost one frame. While a client does not read its answers, the session is not polled, and its
//! requests are not read either.

use super::status;
use crate::engine::Engine;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt, poll, stream};
use prost::Message as _;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::{Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::enqueue_answer::Outcome;
use tallystone_proto::status::from_call;
use tallystone_proto::{TRACEPARENT, TRACESTATE};
use tallystone_serving::{Access, ObservedCall, refused_in_full};
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status, Streaming};

/// While the requests of calls without an answer have so many bytes, no further request is read.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// A response takes no further answer once it has so many bytes: a thousand answers may have a thousand refusals each.
const ANSWERS_BYTES: usize = 1024 * 1024;
/// How long a client may take to close its side after the server has announced that it stops.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<pb::EnqueueStreamResponse, Status>> + Send>>;

/// Returns before the first request has arrived: if that request is invalid, the stream ends with a status. `enqueue` makes
/// a unary call.
pub(super) fn handle<S, E, F>(
    engine: &Arc<Engine<S>>,
    requests: Request<Streaming<pb::EnqueueStreamRequest>>,
    observed: ObservedCall,
    enqueue: E,
) -> Responses
where
    S: Store,
    E: Fn(Request<pb::EnqueueRequest>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<pb::EnqueueResponse>, Status>> + Send + 'static,
{
    let access = requests.extensions().get::<Access>().cloned();
    let calls_max = engine.context.enqueue_stream_calls_max as usize;
    let withdrawn = {
        let access = access.clone().unwrap_or_default();
        Box::pin(async move { access.withdrawn().await })
    };
    engine.context.metrics.enqueue_streams.increment(1);
    let caller = Arc::new(Caller { enqueue, access });
    let session = Session {
        begin: move |call, bytes| caller.clone().call(call, bytes),
        engine: engine.clone(),
        requests: requests.into_inner(),
        calls_max,
        withdrawn,
        observed,
        phase: Phase::Reading,
        read: VecDeque::new(),
        last: 0,
        running: FuturesUnordered::new(),
        aborts: HashMap::new(),
        bytes: 0,
        is_paused: false,
    };
    Box::pin(stream::unfold(session, |mut session| async move {
        let response = session.next().await?;
        Some((response, session))
    }))
}

/// The caller of all calls on a stream.
struct Caller<E> {
    enqueue: E,
    /// `None`: the host has neither identities nor an audit log.
    access: Option<Access>,
}

/// A call that has ended: its number, the bytes of its request, and its answer.
type Ended = (u64, usize, Result<pb::EnqueueResponse, Status>);

impl<E, F> Caller<E>
where
    E: Fn(Request<pb::EnqueueRequest>) -> F,
    F: Future<Output = Result<Response<pb::EnqueueResponse>, Status>>,
{
    /// Makes a call as if it had come alone, with its headers.
    async fn call(self: Arc<Self>, call: pb::EnqueueCall, bytes: usize) -> Ended {
        let number = call.number;
        let limit = u64::try_from(call.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        let enqueue = (self.enqueue)(self.request(call));
        let answer = match limit {
            // As the transport answers a unary call whose deadline has passed.
            Some(limit) => timeout(limit, enqueue).await.unwrap_or_else(|_| Err(Status::cancelled("Timeout expired"))),
            None => enqueue.await,
        };
        (number, bytes, answer.map(Response::into_inner))
    }

    fn request(&self, call: pb::EnqueueCall) -> Request<pb::EnqueueRequest> {
        let mut request = Request::new(call.request.unwrap_or_default());
        for (key, value) in [(TRACEPARENT, call.traceparent), (TRACESTATE, call.tracestate)] {
            // A header that cannot be sent is none.
            if !value.is_empty()
                && let Ok(value) = value.parse()
            {
                request.metadata_mut().insert(key, value);
            }
        }
        if let Some(access) = &self.access {
            request.extensions_mut().insert(access.clone());
        }
        request
    }
}

struct Session<S: Store, B, F> {
    engine: Arc<Engine<S>>,
    requests: Streaming<pb::EnqueueStreamRequest>,
    calls_max: usize,
    /// Ends when the stream must end, because its caller has lost its access.
    withdrawn: Pin<Box<dyn Future<Output = Status> + Send>>,
    observed: ObservedCall,
    phase: Phase,
    /// Begins a call.
    begin: B,
    /// Calls of the latest request that have not begun.
    read: VecDeque<pb::EnqueueCall>,
    /// The number of the latest call.
    last: u64,
    running: FuturesUnordered<Abortable<F>>,
    /// Of the calls that run, by their numbers.
    aborts: HashMap<u64, (AbortHandle, usize)>,
    /// The bytes of their requests.
    bytes: usize,
    /// Its requests are not read, because so many calls run.
    is_paused: bool,
}

enum Phase {
    Reading,
    /// The server stops, and has announced it: reads until the client has closed its side.
    Stopping(Pin<Box<tokio::time::Sleep>>),
    /// Reads no requests: sends the answers of all calls that have begun, then ends the stream with this status.
    Closing(Result<(), Status>),
    Ended,
}

impl<S: Store, B, F> Drop for Session<S, B, F> {
    fn drop(&mut self) {
        self.engine.context.metrics.enqueue_streams.decrement(1);
    }
}

/// What has happened.
enum Event {
    Ended(Option<Ended>),
    Request(Result<Option<pb::EnqueueStreamRequest>, Status>),
    Stopping,
    Close(Status),
}

impl<S, B, F> Session<S, B, F>
where
    S: Store,
    B: Fn(pb::EnqueueCall, usize) -> F,
    F: Future<Output = Ended>,
{
    /// The next response, the final status, or the end.
    async fn next(&mut self) -> Option<Result<pb::EnqueueStreamResponse, Status>> {
        loop {
            if matches!(self.phase, Phase::Ended) {
                return None;
            }
            self.begin_calls();
            if let Phase::Closing(end) = &mut self.phase
                && self.running.is_empty()
                && self.read.is_empty()
            {
                let end = std::mem::replace(end, Ok(()));
                return self.end(end);
            }
            match self.event().await {
                Event::Ended(first) => {
                    let answers = self.answers(first).await;
                    if !answers.is_empty() {
                        return Some(Ok(pb::EnqueueStreamResponse { answers, closing: false }));
                    }
                }
                Event::Request(Ok(Some(request))) => {
                    if let Err(status) = self.accept(request) {
                        self.close(status);
                    }
                }
                Event::Request(Ok(None)) => self.phase = Phase::Closing(Ok(())),
                Event::Request(Err(status)) => self.close(refused_in_full(status)),
                Event::Stopping => {
                    self.phase = Phase::Stopping(Box::pin(tokio::time::sleep(CLOSE_WITHIN)));
                    return Some(Ok(pb::EnqueueStreamResponse { answers: Vec::new(), closing: true }));
                }
                Event::Close(status) => self.close(status),
            }
        }
    }

    async fn event(&mut self) -> Event {
        let has_room = self.read.is_empty() && self.has_room();
        let (reads, announces) = match &self.phase {
            Phase::Reading => (true, true),
            Phase::Stopping(_) => (true, false),
            Phase::Closing(_) | Phase::Ended => (false, false),
        };
        let is_paused = reads && !self.has_room();
        if is_paused && !self.is_paused {
            self.engine.context.metrics.enqueue_stream_pauses.increment(1);
        }
        self.is_paused = is_paused;
        let too_late = async {
            match &mut self.phase {
                Phase::Stopping(too_late) => too_late.await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(ended) = self.running.next() => Event::Ended(ended.ok()),
            // Before the next request: otherwise a client that goes on sending would not lose its access.
            status = &mut self.withdrawn, if reads => Event::Close(status),
            () = self.engine.context.stopping.cancelled(), if announces => Event::Stopping,
            () = too_late => Event::Close(status::stopping()),
            request = self.requests.message(), if reads && has_room => Event::Request(request),
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.calls_max && self.bytes < BYTES_MAX
    }

    fn begin_calls(&mut self) {
        while self.has_room()
            && let Some(call) = self.read.pop_front()
        {
            let bytes = call.encoded_len();
            let (abort, registration) = AbortHandle::new_pair();
            self.aborts.insert(call.number, (abort, bytes));
            self.bytes += bytes;
            self.running.push(Abortable::new((self.begin)(call, bytes), registration));
        }
    }

    /// Gathers all answers that are ready: those of one flush become ready together.
    async fn answers(&mut self, first: Option<Ended>) -> Vec<pb::EnqueueAnswer> {
        let (mut answers, mut total) = (Vec::with_capacity(self.running.len() + 1), 0);
        let mut next = first;
        loop {
            if let Some((number, bytes, answer)) = next {
                // Absent: its caller has gone.
                if self.aborts.remove(&number).is_some() {
                    self.bytes -= bytes;
                    let outcome = answer.map_or_else(|status| Outcome::Error(from_call(&status)), Outcome::Ok);
                    let answer = pb::EnqueueAnswer { number, outcome: Some(outcome) };
                    total += answer.encoded_len();
                    answers.push(answer);
                }
            }
            if answers.len() >= BATCH_ITEMS_MAX || total >= ANSWERS_BYTES {
                return answers;
            }
            match poll!(self.running.next()) {
                Poll::Ready(Some(ended)) => next = ended.ok(),
                Poll::Ready(None) | Poll::Pending => return answers,
            }
        }
    }

    /// Takes a request in; an error ends the stream.
    fn accept(&mut self, request: pb::EnqueueStreamRequest) -> Result<(), Status> {
        let invalid = |field, why: String| Err(status::of_call(Refusal::invalid(field, why)));
        for (field, count) in [("calls", request.calls.len()), ("canceled", request.canceled.len())] {
            if count > BATCH_ITEMS_MAX {
                return invalid(field, format!("has {count} items; the maximum is {BATCH_ITEMS_MAX}"));
            }
        }
        for call in &request.calls {
            if call.number <= self.last {
                return invalid("number", format!("is {}, but {} was there before", call.number, self.last));
            }
            self.last = call.number;
        }
        self.read.extend(request.calls);
        for number in request.canceled {
            if let Some((abort, bytes)) = self.aborts.remove(&number) {
                abort.abort();
                self.bytes -= bytes;
            }
            self.read.retain(|call| call.number != number);
        }
        Ok(())
    }

    /// Ends the stream when the calls that have begun are answered. The others of the latest request do not begin.
    fn close(&mut self, status: Status) {
        self.read.clear();
        self.phase = Phase::Closing(Err(status));
    }

    fn end(&mut self, end: Result<(), Status>) -> Option<Result<pb::EnqueueStreamResponse, Status>> {
        self.phase = Phase::Ended;
        self.running.clear();
        self.observed.code = end.as_ref().map_or_else(Status::code, |()| Code::Ok);
        end.err().map(Err)
    }
}
