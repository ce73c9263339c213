//! A scripted queue server: it accepts every message, and counts unary calls and calls on streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::Client;
use tallystone_proto::queue::v1 as wire;
use tallystone_proto::queue::v1::queue_server::{Queue, QueueServer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// A message whose unary call can be held up.
pub(crate) const HOLD: &str = "hold";

/// How it serves streams of Enqueues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// It is older.
    Absent,
    Served,
    /// Ended with an error when the first call arrives, once.
    BreakOnce,
    /// Calls get no answer.
    Silent,
    /// Announced as closing when the first call arrives, once; then served.
    CloseOnce,
}

/// What it has received.
pub(crate) struct QueueScript {
    streams: Streams,
    pub(crate) unary: AtomicUsize,
    /// Streams that were opened, or refused.
    pub(crate) opened: AtomicUsize,
    /// Streams whose client has closed its side.
    pub(crate) closed: watch::Sender<usize>,
    /// Calls on streams.
    pub(crate) streamed: AtomicUsize,
    /// Canceled calls.
    pub(crate) canceled: watch::Sender<usize>,
    /// How often each message was received.
    pub(crate) messages: std::sync::Mutex<BTreeMap<String, usize>>,
    /// The latest call on a stream.
    pub(crate) latest: std::sync::Mutex<Option<wire::EnqueueCall>>,
    /// Unary calls with the message [`HOLD`] wait while it is closed (false).
    pub(crate) gate: watch::Sender<bool>,
}

impl QueueScript {
    /// Starts one, with a client that repeats no call.
    pub(crate) async fn serve(streams: Streams) -> (Arc<QueueScript>, Client, JoinSet<()>) {
        let script = Arc::new(QueueScript {
            streams,
            unary: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            closed: watch::Sender::new(0),
            streamed: AtomicUsize::new(0),
            canceled: watch::Sender::new(0),
            messages: std::sync::Mutex::default(),
            latest: std::sync::Mutex::default(),
            gate: watch::Sender::new(true),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(QueueServer::new(Served(script.clone())))
            .serve_with_incoming(TcpIncoming::from(listener));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.await.unwrap() });
        let client = Client::builder(url).retry_for(Duration::ZERO).connect().await.unwrap();
        (script, client, tasks)
    }

    fn accept(&self, request: &wire::EnqueueRequest) -> wire::EnqueueResponse {
        let result = |message: &wire::NewMessage| {
            *self.messages.lock().unwrap().entry(message.id.clone()).or_default() += 1;
            let ok = wire::Enqueued { id: message.id.clone(), ..wire::Enqueued::default() };
            wire::EnqueueResult { outcome: Some(wire::enqueue_result::Outcome::Ok(ok)) }
        };
        wire::EnqueueResponse { results: request.messages.iter().map(result).collect() }
    }

    async fn serve_stream(
        self: Arc<Self>,
        mut requests: Streaming<wire::EnqueueStreamRequest>,
        responses: mpsc::Sender<Result<wire::EnqueueStreamResponse, Status>>,
        is_first: bool,
    ) {
        while let Ok(Some(request)) = requests.message().await {
            self.canceled.send_modify(|canceled| *canceled += request.canceled.len());
            let mut answers = Vec::new();
            for call in request.calls {
                self.streamed.fetch_add(1, Ordering::SeqCst);
                let response = self.accept(call.request.as_ref().unwrap());
                let number = call.number;
                *self.latest.lock().unwrap() = Some(call);
                match self.streams {
                    Streams::Silent => continue,
                    Streams::BreakOnce if is_first => {
                        let _ = responses.send(Err(Status::unavailable("broken"))).await;
                        return;
                    }
                    _ => {}
                }
                let outcome = Some(wire::enqueue_answer::Outcome::Ok(response));
                answers.push(wire::EnqueueAnswer { number, outcome });
            }
            let closing = is_first && self.streams == Streams::CloseOnce && !answers.is_empty();
            if responses.send(Ok(wire::EnqueueStreamResponse { answers, closing })).await.is_err() {
                return;
            }
        }
        self.closed.send_modify(|closed| *closed += 1);
    }
}

struct Served(Arc<QueueScript>);

const NOT_IN_THE_SCRIPT: &str = "not in the script";

#[tonic::async_trait]
impl Queue for Served {
    type EnqueueStreamStream = ReceiverStream<Result<wire::EnqueueStreamResponse, Status>>;
    type WorkStream = ReceiverStream<Result<wire::WorkResponse, Status>>;

    async fn enqueue(&self, request: Request<wire::EnqueueRequest>) -> Result<Response<wire::EnqueueResponse>, Status> {
        self.0.unary.fetch_add(1, Ordering::SeqCst);
        let response = self.0.accept(request.get_ref());
        if request.get_ref().messages[0].id == HOLD {
            let _ = self.0.gate.subscribe().wait_for(|open| *open).await;
        }
        Ok(Response::new(response))
    }

    async fn enqueue_stream(
        &self,
        request: Request<Streaming<wire::EnqueueStreamRequest>>,
    ) -> Result<Response<Self::EnqueueStreamStream>, Status> {
        let is_first = self.0.opened.fetch_add(1, Ordering::SeqCst) == 0;
        if self.0.streams == Streams::Absent {
            return Err(Status::unimplemented(""));
        }
        let (responses, receiver) = mpsc::channel(16);
        tokio::spawn(self.0.clone().serve_stream(request.into_inner(), responses, is_first));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn dequeue(&self, _: Request<wire::DequeueRequest>) -> Result<Response<wire::DequeueResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn complete(&self, _: Request<wire::CompleteRequest>) -> Result<Response<wire::CompleteResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn extend_lease(
        &self,
        _: Request<wire::ExtendLeaseRequest>,
    ) -> Result<Response<wire::ExtendLeaseResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn release(&self, _: Request<wire::ReleaseRequest>) -> Result<Response<wire::ReleaseResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn cancel(&self, _: Request<wire::CancelRequest>) -> Result<Response<wire::CancelResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn work(&self, _: Request<Streaming<wire::WorkRequest>>) -> Result<Response<Self::WorkStream>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }
}
