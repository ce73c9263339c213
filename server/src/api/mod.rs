//! The wire: one file for each RPC, which converts between the wire and the domain. Every decision is made in the engine or
//! in the store; [`status`] converts every refusal to a gRPC status.

mod batch;
mod queue_config;
mod status;
mod visible;
mod wire;

mod cancel;
mod complete;
mod dequeue;
mod enqueue;
mod enqueue_stream;
mod extend_lease;
mod release;
mod work;

mod change_messages;
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
use std::sync::Arc;
use tallystone_model::Store;
use tallystone_model::limits::BATCH_BYTES_MAX;
use tallystone_proto::queue::v1::queue_admin_server::{QueueAdmin, QueueAdminServer};
use tallystone_proto::queue::v1::queue_server::{Queue, QueueServer};
use tallystone_proto::queue::v1::*;
use tallystone_serving::{Guarded, Resource, RpcMetrics};
use tonic::{Request, Response, Status};

/// The largest request that is read. A larger batch than 4 MiB, up to this, gets a status that names the field.
const REQUEST_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

/// The names of all RPCs in metrics and spans.
pub(crate) const RPCS: &[&str] = &[
    "Enqueue",
    "EnqueueStream",
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
    "ChangeMessages",
    "Explain",
    "CheckQueue",
];

/// A refusal of these would cost more than the call: the lease would expire, and the message would run again.
const UNCOUNTED: [&str; 3] = ["Complete", "ExtendLease", "Release"];

/// Both services of `tallystone.queue.v1`.
pub(crate) struct Api<S> {
    engine: Arc<Engine<S>>,
    rpcs: Arc<RpcMetrics>,
}

impl<S> Clone for Api<S> {
    fn clone(&self) -> Self {
        Api { engine: self.engine.clone(), rpcs: self.rpcs.clone() }
    }
}

impl<S: Store> Api<S> {
    pub(crate) fn new(engine: Arc<Engine<S>>, rpcs: Arc<RpcMetrics>) -> Self {
        Api { engine, rpcs }
    }

    /// The hot path.
    pub(crate) fn queue(&self) -> QueueServer<Self> {
        QueueServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX)
    }

    /// A unary call: counted against the quota of its queue's tenant (S5), and observed.
    async fn call<R, T, F>(
        &self,
        request: Request<R>,
        handle: impl FnOnce(Request<R>) -> F,
    ) -> Result<Response<T>, Status>
    where
        R: Guarded,
        F: Future<Output = Result<T, Status>>,
    {
        let counted = async |request: Request<R>| {
            if let Resource::One(queue) = request.get_ref().resource()
                && !UNCOUNTED.contains(&R::RPC)
            {
                self.engine.context.tenants.take_call(queue).map_err(status::of_call)?;
            }
            handle(request).await
        };
        self.rpcs.call(request, counted).await
    }

    /// The operator's verbs.
    pub(crate) fn admin(&self) -> QueueAdminServer<Self> {
        QueueAdminServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl<S: Store> Queue for Api<S> {
    type EnqueueStreamStream = enqueue_stream::Responses;
    type WorkStream = work::Responses;

    async fn enqueue(&self, request: Request<EnqueueRequest>) -> Result<Response<EnqueueResponse>, Status> {
        self.call(request, |request| enqueue::handle(&self.engine, request)).await
    }

    async fn enqueue_stream(
        &self,
        request: Request<tonic::Streaming<EnqueueStreamRequest>>,
    ) -> Result<Response<Self::EnqueueStreamStream>, Status> {
        let api = self.clone();
        let enqueue = move |request| {
            let api = api.clone();
            async move { Queue::enqueue(&api, request).await }
        };
        Ok(Response::new(enqueue_stream::handle(&self.engine, request, self.rpcs.begin("EnqueueStream"), enqueue)))
    }

    async fn dequeue(&self, request: Request<DequeueRequest>) -> Result<Response<DequeueResponse>, Status> {
        self.call(request, |request| dequeue::handle(&self.engine, request)).await
    }

    async fn complete(&self, request: Request<CompleteRequest>) -> Result<Response<CompleteResponse>, Status> {
        self.call(request, |request| complete::handle(&self.engine, request.into_inner())).await
    }

    async fn extend_lease(
        &self,
        request: Request<ExtendLeaseRequest>,
    ) -> Result<Response<ExtendLeaseResponse>, Status> {
        self.call(request, |request| extend_lease::handle(&self.engine, request.into_inner())).await
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.call(request, |request| release::handle(&self.engine, request.into_inner())).await
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        self.call(request, |request| cancel::handle(&self.engine, request)).await
    }

    async fn work(
        &self,
        request: Request<tonic::Streaming<WorkRequest>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        Ok(Response::new(work::handle(&self.engine, request, self.rpcs.begin("Work"))))
    }
}

#[tonic::async_trait]
impl<S: Store> QueueAdmin for Api<S> {
    async fn create_queue(
        &self,
        request: Request<CreateQueueRequest>,
    ) -> Result<Response<CreateQueueResponse>, Status> {
        self.call(request, |request| create_queue::handle(&self.engine, request.into_inner())).await
    }

    async fn update_queue(
        &self,
        request: Request<UpdateQueueRequest>,
    ) -> Result<Response<UpdateQueueResponse>, Status> {
        self.call(request, |request| update_queue::handle(&self.engine, request.into_inner())).await
    }

    async fn get_queue(&self, request: Request<GetQueueRequest>) -> Result<Response<GetQueueResponse>, Status> {
        self.call(request, |request| get_queue::handle(&self.engine, request.into_inner())).await
    }

    async fn list_queues(&self, request: Request<ListQueuesRequest>) -> Result<Response<ListQueuesResponse>, Status> {
        self.call(request, |request| list_queues::handle(&self.engine, request)).await
    }

    async fn delete_queue(
        &self,
        request: Request<DeleteQueueRequest>,
    ) -> Result<Response<DeleteQueueResponse>, Status> {
        self.call(request, |request| delete_queue::handle(&self.engine, request)).await
    }

    async fn purge_queue(&self, request: Request<PurgeQueueRequest>) -> Result<Response<PurgeQueueResponse>, Status> {
        self.call(request, |request| purge_queue::handle(&self.engine, request)).await
    }

    async fn depth(&self, request: Request<DepthRequest>) -> Result<Response<DepthResponse>, Status> {
        self.call(request, |request| depth::handle(&self.engine, request.into_inner())).await
    }

    async fn get_message(&self, request: Request<GetMessageRequest>) -> Result<Response<GetMessageResponse>, Status> {
        self.call(request, |request| get_message::handle(&self.engine, request)).await
    }

    async fn list_messages(
        &self,
        request: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        self.call(request, |request| list_messages::handle(&self.engine, request)).await
    }

    async fn update_message(
        &self,
        request: Request<UpdateMessageRequest>,
    ) -> Result<Response<UpdateMessageResponse>, Status> {
        self.call(request, |request| update_message::handle(&self.engine, request.into_inner())).await
    }

    async fn redrive(&self, request: Request<RedriveRequest>) -> Result<Response<RedriveResponse>, Status> {
        self.call(request, |request| redrive::handle(&self.engine, request.into_inner())).await
    }

    async fn change_messages(
        &self,
        request: Request<ChangeMessagesRequest>,
    ) -> Result<Response<ChangeMessagesResponse>, Status> {
        self.call(request, |request| change_messages::handle(&self.engine, request.into_inner())).await
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        self.call(request, |request| explain::handle(&self.engine, request)).await
    }

    async fn check_queue(&self, request: Request<CheckQueueRequest>) -> Result<Response<CheckQueueResponse>, Status> {
        self.call(request, |request| check_queue::handle(&self.engine, request.into_inner())).await
    }
}
