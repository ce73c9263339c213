//! The gRPC service `tallystone.history.v1.History`, over any [`HistoryStore`].
//!
//! What lives here: one file per RPC, each from the wire to a checked query and back, and what they share: `fields`
//! (fields of several requests), `uncertain` (messages that may have changed without a record), `status` (the only place that maps errors to a gRPC status), `token` (page tokens), `visible` (what a caller may see),
//! `watermark`. What may not: knowledge of one particular store.

mod fields;
mod status;
mod token;
mod uncertain;
mod visible;
mod watermark;

mod indexed_depth;
mod queue_stats;
mod repair_messages;
mod search_messages;
mod trace_message;

use crate::store::HistoryStore;
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::answer_by;
use tallystone_proto::history::v1::history_server::{History, HistoryServer};
use tallystone_proto::history::v1::*;
use tallystone_serving::{Guarded, RpcMetrics};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The longest work for one call, even if the caller would wait longer.
const WORK_MAX: Duration = Duration::from_secs(60);

/// Every RPC, as metrics and spans name it.
const RPCS: &[&str] = &["TraceMessage", "SearchMessages", "QueueStats", "IndexedDepth", "RepairMessages"];

/// The service.
pub struct HistoryApi<S> {
    store: Arc<S>,
    rpcs: Arc<RpcMetrics>,
}

impl<S> Clone for HistoryApi<S> {
    fn clone(&self) -> Self {
        HistoryApi { store: self.store.clone(), rpcs: self.rpcs.clone() }
    }
}

impl<S: HistoryStore> HistoryApi<S> {
    /// The service over this store. Its metrics go to the recorder that is installed now.
    pub fn new(store: Arc<S>) -> Self {
        HistoryApi { store, rpcs: RpcMetrics::new(RPCS) }
    }

    /// The service for a tonic server.
    pub fn service(&self) -> HistoryServer<Self> {
        HistoryServer::new(self.clone())
    }

    /// Runs one call if its caller has the right to make it, observes it, and cancels it at its deadline.
    async fn call<R, T, F>(
        &self,
        request: Request<R>,
        call: impl FnOnce(Request<R>) -> F,
    ) -> Result<Response<T>, Status>
    where
        R: Guarded,
        F: Future<Output = Result<T, Status>>,
    {
        let longest = Instant::now() + WORK_MAX;
        let end = answer_by(request.metadata()).map_or(longest, |deadline| deadline.min(longest));
        let within = async |request| {
            let called = tokio::time::timeout_at(end, call(request)).await;
            called.unwrap_or_else(|_| Err(status::deadline_passed()))
        };
        self.rpcs.call(request, within).await
    }
}

#[tonic::async_trait]
impl<S: HistoryStore> History for HistoryApi<S> {
    async fn trace_message(
        &self,
        request: Request<TraceMessageRequest>,
    ) -> Result<Response<TraceMessageResponse>, Status> {
        self.call(request, |request| trace_message::handle(&*self.store, request)).await
    }

    async fn search_messages(
        &self,
        request: Request<SearchMessagesRequest>,
    ) -> Result<Response<SearchMessagesResponse>, Status> {
        self.call(request, |request| search_messages::handle(&*self.store, request)).await
    }

    async fn queue_stats(&self, request: Request<QueueStatsRequest>) -> Result<Response<QueueStatsResponse>, Status> {
        self.call(request, |request| queue_stats::handle(&*self.store, request.into_inner())).await
    }

    async fn indexed_depth(
        &self,
        request: Request<IndexedDepthRequest>,
    ) -> Result<Response<IndexedDepthResponse>, Status> {
        self.call(request, |request| indexed_depth::handle(&*self.store, request)).await
    }

    async fn repair_messages(
        &self,
        request: Request<RepairMessagesRequest>,
    ) -> Result<Response<RepairMessagesResponse>, Status> {
        self.call(request, |request| repair_messages::handle(&*self.store, request)).await
    }
}
