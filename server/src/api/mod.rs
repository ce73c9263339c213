//! The edge: one file per RPC, each wire ↔ domain and nothing else. What is decided is decided in the engine or in
//! the store; every refusal becomes a status in [`status`].

mod batch;
mod queue_config;
mod status;
mod wire;

mod cancel;
mod complete;
mod dequeue;
mod enqueue;
mod extend_lease;
mod release;
mod work;

mod check_queue;
mod create_queue;
mod delete_queue;
mod depth;
mod explain;
mod get_message;
mod get_queue;
mod list_messages;
mod list_queues;
mod purge_queue;
mod redrive;
mod update_message;
mod update_queue;

#[cfg(test)]
mod tests;

use crate::engine::Engine;
use crate::metrics::Metrics;
use std::sync::Arc;
use std::time::Instant;
use tallystone_model::Store;
use tallystone_model::limits::BATCH_BYTES_MAX;
use tallystone_proto::queue::v1::queue_admin_server::{QueueAdmin, QueueAdminServer};
use tallystone_proto::queue::v1::queue_server::{Queue, QueueServer};
use tallystone_proto::queue::v1::*;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

/// The largest request that is read at all; a batch above 4 MiB but below this gets a status that says which field.
const REQUEST_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

/// Every RPC, as metrics and spans name it.
pub(crate) const RPCS: &[&str] = &[
    "Enqueue",
    "Dequeue",
    "Complete",
    "ExtendLease",
    "Release",
    "Cancel",
    "Work",
    "CreateQueue",
    "UpdateQueue",
    "GetQueue",
    "ListQueues",
    "DeleteQueue",
    "PurgeQueue",
    "Depth",
    "GetMessage",
    "ListMessages",
    "UpdateMessage",
    "Redrive",
    "Explain",
    "CheckQueue",
];

/// Both services of `tallystone.queue.v1`.
pub(crate) struct Api<S> {
    engine: Arc<Engine<S>>,
}

impl<S> Clone for Api<S> {
    fn clone(&self) -> Self {
        Api { engine: self.engine.clone() }
    }
}

impl<S: Store> Api<S> {
    pub(crate) fn new(engine: Arc<Engine<S>>) -> Self {
        Api { engine }
    }

    /// The hot path.
    pub(crate) fn queue(&self) -> QueueServer<Self> {
        QueueServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX)
    }

    /// The operator's verbs.
    pub(crate) fn admin(&self) -> QueueAdminServer<Self> {
        QueueAdminServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX)
    }

    fn seen(&self, rpc: &'static str) -> Seen {
        Seen { metrics: self.engine.context.metrics.clone(), rpc, begun: Instant::now(), code: Code::Cancelled }
    }

    /// Counts, times and traces one call.
    async fn observe<T>(
        &self,
        rpc: &'static str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let mut seen = self.seen(rpc);
        let answer = call.instrument(tracing::debug_span!("rpc", method = rpc)).await;
        seen.code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        answer.map(Response::new)
    }
}

/// A call under way. Dropped before its code is known, its caller has gone.
struct Seen {
    metrics: Arc<Metrics>,
    rpc: &'static str,
    begun: Instant,
    code: Code,
}

impl Drop for Seen {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        self.metrics.called(self.rpc, self.code, took);
        tracing::debug!(rpc = self.rpc, code = ?self.code, took_us = took.as_micros() as u64, "answered");
    }
}

#[tonic::async_trait]
impl<S: Store> Queue for Api<S> {
    type WorkStream = work::Responses;

    async fn enqueue(&self, request: Request<EnqueueRequest>) -> Result<Response<EnqueueResponse>, Status> {
        self.observe("Enqueue", enqueue::handle(&self.engine, request.into_inner())).await
    }

    async fn dequeue(&self, request: Request<DequeueRequest>) -> Result<Response<DequeueResponse>, Status> {
        self.observe("Dequeue", dequeue::handle(&self.engine, request)).await
    }

    async fn complete(&self, request: Request<CompleteRequest>) -> Result<Response<CompleteResponse>, Status> {
        self.observe("Complete", complete::handle(&self.engine, request.into_inner())).await
    }

    async fn extend_lease(
        &self,
        request: Request<ExtendLeaseRequest>,
    ) -> Result<Response<ExtendLeaseResponse>, Status> {
        self.observe("ExtendLease", extend_lease::handle(&self.engine, request.into_inner())).await
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.observe("Release", release::handle(&self.engine, request.into_inner())).await
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        self.observe("Cancel", cancel::handle(&self.engine, request.into_inner())).await
    }

    async fn work(
        &self,
        request: Request<tonic::Streaming<WorkRequest>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        Ok(Response::new(work::handle(&self.engine, request.into_inner(), self.seen("Work"))))
    }
}

#[tonic::async_trait]
impl<S: Store> QueueAdmin for Api<S> {
    async fn create_queue(
        &self,
        request: Request<CreateQueueRequest>,
    ) -> Result<Response<CreateQueueResponse>, Status> {
        self.observe("CreateQueue", create_queue::handle(&self.engine, request.into_inner())).await
    }

    async fn update_queue(
        &self,
        request: Request<UpdateQueueRequest>,
    ) -> Result<Response<UpdateQueueResponse>, Status> {
        self.observe("UpdateQueue", update_queue::handle(&self.engine, request.into_inner())).await
    }

    async fn get_queue(&self, request: Request<GetQueueRequest>) -> Result<Response<GetQueueResponse>, Status> {
        self.observe("GetQueue", get_queue::handle(&self.engine, request.into_inner())).await
    }

    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Result<Response<ListQueuesResponse>, Status> {
        self.observe("ListQueues", list_queues::handle(&self.engine, request.into_inner())).await
    }

    async fn delete_queue(
        &self,
        request: Request<DeleteQueueRequest>,
    ) -> Result<Response<DeleteQueueResponse>, Status> {
        self.observe("DeleteQueue", delete_queue::handle(&self.engine, request)).await
    }

    async fn purge_queue(&self, request: Request<PurgeQueueRequest>) -> Result<Response<PurgeQueueResponse>, Status> {
        self.observe("PurgeQueue", purge_queue::handle(&self.engine, request)).await
    }

    async fn depth(&self, request: Request<DepthRequest>) -> Result<Response<DepthResponse>, Status> {
        self.observe("Depth", depth::handle(&self.engine, request.into_inner())).await
    }

    async fn get_message(&self, request: Request<GetMessageRequest>) -> Result<Response<GetMessageResponse>, Status> {
        self.observe("GetMessage", get_message::handle(&self.engine, request.into_inner())).await
    }

    async fn list_messages(
        &self,
        request: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        self.observe("ListMessages", list_messages::handle(&self.engine, request.into_inner())).await
    }

    async fn update_message(
        &self,
        request: Request<UpdateMessageRequest>,
    ) -> Result<Response<UpdateMessageResponse>, Status> {
        self.observe("UpdateMessage", update_message::handle(&self.engine, request.into_inner())).await
    }

    async fn redrive(&self, request: Request<RedriveRequest>) -> Result<Response<RedriveResponse>, Status> {
        self.observe("Redrive", redrive::handle(&self.engine, request.into_inner())).await
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        self.observe("Explain", explain::handle(&self.engine, request.into_inner())).await
    }

    async fn check_queue(&self, request: Request<CheckQueueRequest>) -> Result<Response<CheckQueueResponse>, Status> {
        self.observe("CheckQueue", check_queue::handle(&self.engine, request.into_inner())).await
    }
}
