//! How an Enqueue goes to a server: alone, or on a stream that it shares with others (Q27).
//!
//! A unary call costs HTTP/2, client and server more than its message does. So while a client has several Enqueues under
//! way at one server, they share one stream (proto `EnqueueStream`): a message of the stream carries all calls that are
//! ready. A call that is alone stays unary. So does each call while no stream is open: it waits for no opening, and where a
//! stream cannot be opened, because the server is older or refuses the caller, it gets the answer that it always got.
//!
//! Retries, deadlines and hedges are those of [`Calls`](crate::calls::Calls), which makes each attempt through here.

mod stream;

use crate::connection::RESPONSE_BYTES_MAX;
use crate::credentials::AUTHORIZATION;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stream::EnqueueStream;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::{EnqueueRequest, EnqueueResponse, NewMessage};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// A larger request goes alone: it gains little, and would hold up the others.
const SHARED_BYTES_MAX: usize = 256 * 1024;
/// What a message takes in a request in addition to its payload and its texts, at most about.
const MESSAGE_OVERHEAD: usize = 64;
/// The time between two attempts to open a stream.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The same after a server that does not have streams; behind a balancer, or after an upgrade, the next one may.
const NOT_THERE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The way of Enqueues to one server.
pub(crate) struct Enqueues {
    queue: QueueClient<Channel>,
    /// The calls without an answer, on the stream or not.
    under_way: AtomicUsize,
    current: Arc<Mutex<Current>>,
}

/// The stream of new calls.
enum Current {
    /// There is none, and none is opened before this time.
    None(Option<Instant>),
    Opening,
    Open(Arc<EnqueueStream>),
}

/// Counts a call as long as it is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Enqueues {
    pub(crate) fn new(connection: Channel) -> Arc<Enqueues> {
        let queue = QueueClient::new(connection).max_decoding_message_size(RESPONSE_BYTES_MAX);
        let (under_way, current) = (AtomicUsize::new(0), Arc::new(Mutex::new(Current::None(None))));
        Arc::new(Enqueues { queue, under_way, current })
    }

    /// Makes one attempt of a call, which may take `limit`. `stopping` is called when the server announces that it stops.
    pub(crate) async fn call(
        &self,
        request: Request<EnqueueRequest>,
        limit: Duration,
        stopping: impl FnOnce() + Send + 'static,
    ) -> Result<Response<EnqueueResponse>, Status> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        let _under_way = UnderWay(&self.under_way);
        let bytes = size_of(request.get_ref());
        let stream = match others > 0 && bytes <= SHARED_BYTES_MAX {
            true => self.stream(request.metadata().get(AUTHORIZATION), limit, stopping),
            false => None,
        };
        let request = match stream {
            Some(stream) => match stream.call(request, bytes, limit) {
                Ok(answer) => return answer.await.map(Response::new),
                Err(request) => *request,
            },
            None => request,
        };
        self.queue.clone().enqueue(request).await
    }

    /// The stream for a call with this credential. Without one, opens one for later calls.
    fn stream(
        &self,
        credential: Option<&MetadataValue<Ascii>>,
        limit: Duration,
        stopping: impl FnOnce() + Send + 'static,
    ) -> Option<Arc<EnqueueStream>> {
        let mut current = locked(&self.current);
        match &*current {
            Current::Opening => None,
            // A stream has the credential with which it was opened; a token that was replaced needs another one.
            Current::Open(stream) if stream.has(credential) && !stream.is_closed() => Some(stream.clone()),
            Current::None(Some(not_before)) if Instant::now() < *not_before => None,
            Current::Open(_) | Current::None(_) => {
                *current = Current::Opening;
                self.open(credential.cloned(), limit, stopping);
                None
            }
        }
    }

    /// Opens a stream in the background.
    fn open(
        &self,
        credential: Option<MetadataValue<Ascii>>,
        limit: Duration,
        stopping: impl FnOnce() + Send + 'static,
    ) {
        let (queue, current) = (self.queue.clone(), self.current.clone());
        tokio::spawn(async move {
            let opened = tokio::time::timeout(limit, EnqueueStream::open(queue, credential, stopping)).await;
            let after = |time| Current::None(Some(Instant::now() + time));
            let next = match opened {
                Ok(Ok(stream)) => Current::Open(Arc::new(stream)),
                Ok(Err(status)) if status.code() == Code::Unimplemented => after(NOT_THERE_AGAIN_AFTER),
                Ok(Err(status)) => {
                    tracing::debug!(%status, "no stream of Enqueues could be opened");
                    after(OPEN_AGAIN_AFTER)
                }
                Err(_) => after(OPEN_AGAIN_AFTER),
            };
            *locked(&current) = next;
        });
    }
}

/// About how many bytes a request takes.
fn size_of(request: &EnqueueRequest) -> usize {
    let of_message = |message: &NewMessage| {
        let pairs = message.metadata.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        MESSAGE_OVERHEAD + message.id.len() + message.payload.len() + pairs
    };
    request.queue.len() + request.messages.iter().map(of_message).sum::<usize>()
}

fn locked(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Enqueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueues").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}
