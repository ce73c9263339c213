//! One stream of Enqueues.
//!
//! The stream's sender takes all calls that callers have left for it, and sends them in one message. A task reads the
//! answers, and passes each to its caller. What a server has not read waits here, as a unary call waits for its connection. A
//! stream has at most as many calls without an answer as a server reads: further ones are unary, so calls that hang hold up no others.

use crate::credentials::AUTHORIZATION;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tallystone_proto::queue::v1::enqueue_answer::Outcome;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::{
    EnqueueAnswer, EnqueueCall, EnqueueRequest, EnqueueResponse, EnqueueStreamRequest, EnqueueStreamResponse,
};
use tallystone_proto::status::to_call;
use tallystone_proto::{TRACEPARENT, TRACESTATE};
use tokio::sync::oneshot;
use tokio_stream::Stream;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// The most calls of one message: what a server accepts.
const CALLS_MAX: usize = 1_000;
/// A message takes no further call once it has so many bytes.
const MESSAGE_BYTES: usize = 256 * 1024;
/// A stream without calls is closed after this time.
const IDLE: Duration = Duration::from_secs(60);

type EnqueueReply = Result<EnqueueResponse, Status>;

/// An open stream. When it is dropped, it closes: no call can be under way then, because each has a clone of it.
pub(super) struct EnqueueStream {
    shared: Arc<Shared>,
    credential: Option<MetadataValue<Ascii>>,
}

/// What callers, the sender and the reader of a stream share.
struct Shared(Mutex<State>);

struct State {
    /// The number of the latest call.
    last: u64,
    /// Calls to send, with their bytes; their numbers rise.
    outbox: VecDeque<(usize, EnqueueCall)>,
    /// Calls that were sent, and whose callers have gone.
    canceled: Vec<u64>,
    /// Where the answers go, by the numbers of the calls.
    callers: HashMap<u64, oneshot::Sender<EnqueueReply>>,
    /// Wakes the sender, when it has had nothing to send.
    sender: Option<Waker>,
    /// Takes no further calls: it was closed, or has ended.
    is_closed: bool,
}

impl EnqueueStream {
    /// Opens a stream. `stopping` is called when the server announces that it stops.
    ///
    /// # Errors
    /// The status with which the server refused the stream, or the transport's.
    pub(super) async fn open(
        mut queue: QueueClient<Channel>,
        credential: Option<MetadataValue<Ascii>>,
        stopping: impl FnOnce() + Send + 'static,
    ) -> Result<EnqueueStream, Status> {
        let shared = Arc::new(Shared::new());
        let sent = Sent { shared: shared.clone(), has_begun: false, has_yielded: false };
        let mut requests = Request::new(sent);
        if let Some(credential) = &credential {
            requests.metadata_mut().insert(AUTHORIZATION, credential.clone());
        }
        let responses = queue.enqueue_stream(requests).await?.into_inner();
        tokio::spawn(read(shared.clone(), responses, stopping));
        Ok(EnqueueStream { shared, credential })
    }

    /// Whether it was opened with this credential.
    pub(super) fn has(&self, credential: Option<&MetadataValue<Ascii>>) -> bool {
        self.credential.as_ref() == credential
    }

    /// Whether it takes no further calls.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    /// Begins a call of `bytes` bytes that may take `limit`. If the returned future is dropped, the server drops the call.
    ///
    /// # Errors
    /// The request, if the stream takes no further calls, or has as many as a server reads.
    pub(super) fn call(
        self: Arc<Self>,
        request: Request<EnqueueRequest>,
        bytes: usize,
        limit: Duration,
    ) -> Result<impl Future<Output = EnqueueReply> + use<>, Box<Request<EnqueueRequest>>> {
        let (answers, answer) = oneshot::channel();
        let (number, sender) = {
            let mut state = self.shared.lock();
            if state.is_closed || state.callers.len() >= CALLS_MAX {
                return Err(Box::new(request));
            }
            state.last += 1;
            let number = state.last;
            let (metadata, _, request) = request.into_parts();
            let text = |key| text_of(&metadata, key);
            state.outbox.push_back((
                bytes,
                EnqueueCall {
                    number,
                    request: Some(request),
                    timeout_ms: i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(1),
                    traceparent: text(TRACEPARENT),
                    tracestate: text(TRACESTATE),
                },
            ));
            state.callers.insert(number, answers);
            (number, state.sender.take())
        };
        if let Some(sender) = sender {
            sender.wake();
        }
        let leaving = Leaving { stream: self, number, is_answered: false };
        Ok(async move {
            let answer = answer.await;
            leaving.stay();
            answer.unwrap_or_else(|_| Err(ended()))
        })
    }
}

impl Drop for EnqueueStream {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Takes a call back if its caller leaves before the answer is there.
struct Leaving {
    stream: Arc<EnqueueStream>,
    number: u64,
    is_answered: bool,
}

impl Leaving {
    /// The answer is there.
    fn stay(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.is_answered {
            self.stream.shared.leave(self.number);
        }
    }
}

/// A header that is text, or "".
fn text_of(metadata: &MetadataMap, key: &str) -> String {
    metadata.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// The answer of calls that a stream leaves without one.
fn ended() -> Status {
    Status::unavailable("the server ended the stream of Enqueues")
}

impl Shared {
    fn new() -> Shared {
        Shared(Mutex::new(State {
            last: 0,
            outbox: VecDeque::new(),
            canceled: Vec::new(),
            callers: HashMap::new(),
            sender: None,
            is_closed: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes no further calls; the sender closes the stream when it has sent the others.
    fn close(&self) {
        let sender = {
            let mut state = self.lock();
            state.is_closed = true;
            state.sender.take()
        };
        if let Some(sender) = sender {
            sender.wake();
        }
    }

    fn close_if_idle(&self) {
        if self.lock().callers.is_empty() {
            // A call that begins meanwhile is sent before the end, and answered.
            self.close();
        }
    }

    /// The caller of this call has gone.
    fn leave(&self, number: u64) {
        let sender = {
            let mut state = self.lock();
            if state.callers.remove(&number).is_none() {
                return;
            }
            match state.outbox.binary_search_by_key(&number, |(_, call)| call.number) {
                Ok(at) => {
                    state.outbox.remove(at);
                    return;
                }
                Err(_) => state.canceled.push(number),
            }
            state.sender.take()
        };
        if let Some(sender) = sender {
            sender.wake();
        }
    }

    /// Passes answers to their callers.
    fn deliver(&self, answers: Vec<EnqueueAnswer>) {
        let mut delivered = Vec::with_capacity(answers.len());
        {
            let mut state = self.lock();
            for EnqueueAnswer { number, outcome } in answers {
                // Absent: the caller has gone.
                if let Some(caller) = state.callers.remove(&number) {
                    delivered.push((caller, outcome));
                }
            }
        }
        for (caller, outcome) in delivered {
            let answer = match outcome {
                Some(Outcome::Ok(response)) => Ok(response),
                Some(Outcome::Error(status)) => Err(to_call(status)),
                None => Err(Status::internal("an answer without an outcome")),
            };
            // A caller that has gone needs no answer.
            let _ = caller.send(answer);
        }
    }

    /// The stream has ended with this status: so do all calls that have no answer.
    fn break_off(&self, end: &Status) {
        self.close();
        let callers = {
            let mut state = self.lock();
            state.outbox.clear();
            std::mem::take(&mut state.callers)
        };
        for (_, caller) in callers {
            let _ = caller.send(Err(end.clone()));
        }
    }
}

/// Reads the answers until the stream ends.
async fn read(
    shared: Arc<Shared>,
    mut responses: Streaming<EnqueueStreamResponse>,
    stopping: impl FnOnce() + Send + 'static,
) {
    let mut stopping = Some(stopping);
    // Also if its runtime ends this task, no caller waits for an answer that no task reads.
    let mut reading = Reading { shared, end: ended() };
    let shared = reading.shared.clone();
    reading.end = loop {
        match tokio::time::timeout(IDLE, responses.message()).await {
            Err(_) => shared.close_if_idle(),
            Ok(Ok(Some(response))) => {
                if response.closing {
                    shared.close();
                    if let Some(stopping) = stopping.take() {
                        stopping();
                    }
                }
                shared.deliver(response.answers);
            }
            Ok(Ok(None)) => break ended(),
            Ok(Err(status)) => break status,
        }
    };
}

/// A stream whose answers are read; when this is dropped, it has ended.
struct Reading {
    shared: Arc<Shared>,
    end: Status,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.shared.break_off(&self.end);
    }
}

/// What is sent on a stream.
struct Sent {
    shared: Arc<Shared>,
    /// The first message, which is empty, was sent: the server waits for one from the begin of the stream on.
    has_begun: bool,
    /// Other tasks have had the time to leave their calls.
    has_yielded: bool,
}

impl Stream for Sent {
    type Item = EnqueueStreamRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EnqueueStreamRequest>> {
        if !self.has_begun {
            self.has_begun = true;
            return Poll::Ready(Some(EnqueueStreamRequest::default()));
        }
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if state.outbox.is_empty() && state.canceled.is_empty() {
            if state.is_closed {
                return Poll::Ready(None);
            }
            state.sender = Some(context.waker().clone());
            return Poll::Pending;
        }
        if !self.has_yielded {
            // The scheduler runs this task right after the first caller that wakes it. A task that wakes itself goes to
            // the end of the queue, behind the other callers that can run: their calls travel together, without delay.
            self.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_yielded = false;
        Poll::Ready(Some(state.next_request()))
    }
}

impl State {
    fn next_request(&mut self) -> EnqueueStreamRequest {
        let (mut calls, mut total) = (Vec::with_capacity(self.outbox.len().min(CALLS_MAX)), 0);
        while calls.len() < CALLS_MAX
            && total < MESSAGE_BYTES
            && let Some((bytes, call)) = self.outbox.pop_front()
        {
            total += bytes;
            calls.push(call);
        }
        let left = self.canceled.len().saturating_sub(CALLS_MAX);
        EnqueueStreamRequest { calls, canceled: self.canceled.split_off(left) }
    }
}
