//! The gRPC service `tallystone.history.v1.History`, over any [`HistoryStore`].
//!
//! What lives here: one file per RPC, each from the wire to a checked query and back, and what they share: `fields`
//! (fields of several requests), `uncertain` (messages that may have changed without a record), `status` (the only place that maps errors to a gRPC status), `token` (page tokens),
//! `watermark`. What may not: knowledge of one particular store.

mod fields;
mod status;
mod token;
mod uncertain;
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
use tallystone_serving::RpcMetrics;
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

    /// Observes one call, and cancels it at its deadline.
    async fn observe<T>(
        &self,
        rpc: &'static str,
        deadline: Option<Instant>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let longest = Instant::now() + WORK_MAX;
        let end = deadline.map_or(longest, |deadline| deadline.min(longest));
        let call = tokio::time::timeout_at(end, call);
        self.rpcs.observe(rpc, async { call.await.unwrap_or_else(|_| Err(status::deadline_passed())) }).await
    }
}

#[tonic::async_trait]
impl<S: HistoryStore> History for HistoryApi<S> {
    async fn trace_message(
        &self,
        request: Request<TraceMessageRequest>,
    ) -> Result<Response<TraceMessageResponse>, Status> {
        let deadline = answer_by(request.metadata());
        self.observe("TraceMessage", deadline, trace_message::handle(&*self.store, request.into_inner())).await
    }

    async fn search_messages(
        &self,
        request: Request<SearchMessagesRequest>,
    ) -> Result<Response<SearchMessagesResponse>, Status> {
        let deadline = answer_by(request.metadata());
        self.observe("SearchMessages", deadline, search_messages::handle(&*self.store, request.into_inner())).await
    }

    async fn queue_stats(&self, request: Request<QueueStatsRequest>) -> Result<Response<QueueStatsResponse>, Status> {
        let deadline = answer_by(request.metadata());
        self.observe("QueueStats", deadline, queue_stats::handle(&*self.store, request.into_inner())).await
    }

    async fn indexed_depth(
        &self,
        request: Request<IndexedDepthRequest>,
    ) -> Result<Response<IndexedDepthResponse>, Status> {
        let deadline = answer_by(request.metadata());
        self.observe("IndexedDepth", deadline, indexed_depth::handle(&*self.store, request.into_inner())).await
    }

    async fn repair_messages(
        &self,
        request: Request<RepairMessagesRequest>,
    ) -> Result<Response<RepairMessagesResponse>, Status> {
        let deadline = answer_by(request.metadata());
        self.observe("RepairMessages", deadline, repair_messages::handle(&*self.store, request.into_inner())).await
    }
}
