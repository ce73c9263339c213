//! Work streams that workers of a client share: each worker has a subscription. A process that works on thousands of queues
//! needs a few streams, not thousands. (proto `WorkRequest.subscription`)
//!
//! A task reads each stream, and routes every response to its worker. A worker bounds its unanswered requests and credits
//! itself, so the routes need no bound.

use crate::error::{Applied, Error, Result};
use crate::work_connections::WorkConnections;
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;
use tallystone_proto::status::to_call;
use tokio::sync::mpsc;
use tokio_stream::Stream;

/// Subscriptions of one stream: a server serves a stream by one task.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Requests that wait to be sent.
const REQUESTS_MAX: usize = 64;

/// The shared streams of a client.
#[derive(Default)]
pub(crate) struct SharedStreams {
    /// Those that have subscriptions. The lock is held while a stream opens, and while a subscription begins: its number
    /// must reach the server before a higher one.
    open: tokio::sync::Mutex<Vec<Weak<SharedStream>>>,
    /// How many streams could not be opened.
    failures: AtomicU64,
}

struct SharedStream {
    requests: mpsc::Sender<wire::WorkRequest>,
    /// Subscriptions to close.
    closes: mpsc::UnboundedSender<u32>,
    routes: Arc<Routes>,
}

/// Where the responses of a stream go.
struct Routes(Mutex<Routed>);

struct Routed {
    /// By the numbers of the subscriptions.
    workers: HashMap<u32, mpsc::UnboundedSender<Result<wire::WorkResponse>>>,
    /// The number of the latest subscription.
    last: u32,
    /// No response will come any more.
    broken: bool,
}

/// The writing side of a subscription. When it is dropped, the subscription closes: the server sends the outstanding results.
pub(crate) struct SharedRequests {
    stream: Arc<SharedStream>,
    pub(crate) number: u32,
}

/// The reading side of a subscription.
pub(crate) struct SharedResponses {
    responses: mpsc::UnboundedReceiver<Result<wire::WorkResponse>>,
    number: u32,
    routes: Arc<Routes>,
}

impl SharedStreams {
    /// Begins a subscription on the first stream that has room.
    pub(crate) async fn subscribe(
        &self,
        connections: &WorkConnections,
        open_timeout: Duration,
        start: wire::WorkStart,
    ) -> Result<(SharedRequests, SharedResponses)> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut open = self.open.lock().await;
        open.retain(|stream| stream.strong_count() > 0);
        let with_room = open.iter().filter_map(Weak::upgrade).find(|stream| stream.routes.have_room());
        let stream = match with_room {
            Some(stream) => stream,
            // The attempt for which this one waited failed: thousands of workers must not wait for a timeout each in turn.
            None if self.failures.load(Ordering::Relaxed) != failures => {
                let message = "no Work stream could be opened".to_owned();
                return Err(Error::Unavailable { applied: Applied::No, message });
            }
            None => {
                let opened = SharedStream::open(connections, open_timeout).await;
                if opened.is_err() {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                }
                let stream = Arc::new(opened?);
                open.push(Arc::downgrade(&stream));
                stream
            }
        };
        let permit = stream.requests.reserve().await.map_err(|_| broken())?;
        let (number, responses) = stream.routes.add().ok_or_else(broken)?;
        let request = wire::WorkRequest { start: Some(start), subscription: number, ..wire::WorkRequest::default() };
        permit.send(request);
        let responses = SharedResponses { responses, number, routes: stream.routes.clone() };
        Ok((SharedRequests { stream, number }, responses))
    }
}

fn broken() -> Error {
    Error::Unavailable { applied: Applied::No, message: "the shared Work stream broke".to_owned() }
}

impl SharedStream {
    async fn open(connections: &WorkConnections, timeout: Duration) -> Result<SharedStream> {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let (closes, closing) = mpsc::unbounded_channel();
        let (mut responses, place) = connections.open(Sent { requests: receiver, closing }, timeout).await?;
        let routes = Arc::new(Routes::new());
        let own_routes = routes.clone();
        tokio::spawn(async move {
            let end = loop {
                match responses.message().await {
                    Ok(Some(response)) => own_routes.deliver(response),
                    Ok(None) => break None,
                    Err(status) => break Some(status),
                }
            };
            own_routes.break_off(|| match &end {
                None => Error::Protocol("the server ended the stream".to_owned()),
                Some(status) => Error::from_status(status),
            });
            drop(place);
        });
        Ok(SharedStream { requests, closes, routes })
    }
}

/// What is sent on a stream. A subscription closes after its requests, so these have priority.
struct Sent {
    requests: mpsc::Receiver<wire::WorkRequest>,
    closing: mpsc::UnboundedReceiver<u32>,
}

impl Stream for Sent {
    type Item = wire::WorkRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<wire::WorkRequest>> {
        let request = self.requests.poll_recv(context);
        if let Poll::Ready(Some(_)) = request {
            return request;
        }
        match self.closing.poll_recv(context) {
            Poll::Ready(Some(subscription)) => {
                Poll::Ready(Some(wire::WorkRequest { subscription, close: true, ..wire::WorkRequest::default() }))
            }
            Poll::Ready(None) => request,
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Routes {
    fn new() -> Routes {
        Routes(Mutex::new(Routed { workers: HashMap::new(), last: 0, broken: false }))
    }

    fn lock(&self) -> MutexGuard<'_, Routed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn have_room(&self) -> bool {
        let routed = self.lock();
        !routed.broken && routed.workers.len() < SUBSCRIPTIONS_MAX && routed.last < u32::MAX
    }

    /// A new number and its responses; `None`: the stream broke.
    fn add(&self) -> Option<(u32, mpsc::UnboundedReceiver<Result<wire::WorkResponse>>)> {
        let mut routed = self.lock();
        if routed.broken {
            return None;
        }
        let (sender, responses) = mpsc::unbounded_channel();
        routed.last += 1;
        let number = routed.last;
        routed.workers.insert(number, sender);
        Some((number, responses))
    }

    fn remove(&self, number: u32) {
        self.lock().workers.remove(&number);
    }

    /// A worker that has left does not need its responses: its leases are given back or expire.
    fn deliver(&self, response: wire::WorkResponse) {
        if let Some(worker) = self.lock().workers.get(&response.subscription) {
            drop(worker.send(Ok(response)));
        }
    }

    fn break_off(&self, error: impl Fn() -> Error) {
        let mut routed = self.lock();
        routed.broken = true;
        for (_, worker) in routed.workers.drain() {
            drop(worker.send(Err(error())));
        }
    }
}

impl SharedRequests {
    /// Where the requests of the stream are sent; each must have this subscription's number.
    pub(crate) fn sender(&self) -> &mpsc::Sender<wire::WorkRequest> {
        &self.stream.requests
    }
}

impl Drop for SharedRequests {
    fn drop(&mut self) {
        // Without a stream nothing has to be closed.
        let _ = self.stream.closes.send(self.number);
    }
}

impl SharedResponses {
    /// Of no stream: none comes.
    #[cfg(test)]
    pub(crate) fn without_stream() -> SharedResponses {
        let (_, responses) = mpsc::unbounded_channel();
        SharedResponses { responses, number: 0, routes: Arc::new(Routes::new()) }
    }

    /// The next response; `None`: the subscription was closed, and all of its results have come. Cancel safe.
    pub(crate) async fn message(&mut self) -> Result<Option<wire::WorkResponse>> {
        let Some(response) = self.responses.recv().await else { return Err(broken()) };
        let mut response = response?;
        match response.ended.take() {
            None => Ok(Some(response)),
            Some(status) if status.code == tonic::Code::Ok as i32 => Ok(None),
            Some(status) => Err(Error::from_status(&to_call(status))),
        }
    }
}

impl Drop for SharedResponses {
    fn drop(&mut self) {
        self.routes.remove(self.number);
    }
}

impl fmt::Debug for SharedStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStreams").finish_non_exhaustive()
    }
}
