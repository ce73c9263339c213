//! The gRPC service `tallystone.history.v1.History`, over any [`HistoryStore`].
//!
//! What lives here: one file per RPC, each from the wire to a checked query and back, and what they share: `fields`
//! (fields of several requests), `status` (the only place that maps errors to a gRPC status), `token` (page tokens),
//! `watermark`. What may not: knowledge of one particular store.

mod fields;
mod status;
mod token;
mod watermark;

mod indexed_depth;
mod queue_stats;
mod search_messages;
mod trace_message;

use crate::store::HistoryStore;
use metrics::{counter, histogram};
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::history::v1::history_server::{History, HistoryServer};
use tallystone_proto::history::v1::*;
use tallystone_proto::{answer_by, code_name};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

/// The metrics of all services of the program, with the RPC as a label.
const RPC_CALLS: &str = "tallystone_rpc_calls_total";
const RPC_SECONDS: &str = "tallystone_rpc_seconds";
/// The longest work for one call, even if the caller would wait longer.
const WORK_MAX: Duration = Duration::from_secs(60);

/// Every RPC, as metrics and spans name it.
pub const RPCS: &[&str] = &["TraceMessage", "SearchMessages", "QueueStats", "IndexedDepth"];

/// The service.
#[derive(Debug)]
pub struct HistoryApi<S> {
    store: Arc<S>,
}

impl<S> Clone for HistoryApi<S> {
    fn clone(&self) -> Self {
        HistoryApi { store: self.store.clone() }
    }
}

impl<S: HistoryStore> HistoryApi<S> {
    /// Answers from this store.
    pub fn new(store: Arc<S>) -> Self {
        HistoryApi { store }
    }

    /// As a tonic server takes it.
    pub fn service(&self) -> HistoryServer<Self> {
        HistoryServer::new(self.clone())
    }
}

/// Counts, times and traces one call, and cancels it at its deadline.
async fn observe<T>(
    rpc: &'static str,
    deadline: Option<Instant>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<Response<T>, Status> {
    let mut observed = ObservedCall { rpc, begun: Instant::now(), code: Code::Cancelled };
    let longest = observed.begun + WORK_MAX;
    let end = deadline.map_or(longest, |deadline| deadline.min(longest));
    let work = tokio::time::timeout_at(end, call.instrument(tracing::debug_span!("rpc", method = rpc)));
    let answer = work.await.unwrap_or_else(|_| Err(status::deadline_passed()));
    observed.code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
    answer.map(Response::new)
}

/// A call in progress. If it is dropped before its code is set, the caller has gone.
struct ObservedCall {
    rpc: &'static str,
    begun: Instant,
    code: Code,
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        counter!(RPC_CALLS, "rpc" => self.rpc, "code" => code_name(self.code)).increment(1);
        histogram!(RPC_SECONDS, "rpc" => self.rpc).record(took);
        tracing::debug!(rpc = self.rpc, code = ?self.code, took_us = took.as_micros() as u64, "answered");
    }
}

#[tonic::async_trait]
impl<S: HistoryStore> History for HistoryApi<S> {
    async fn trace_message(
        &self,
        request: Request<TraceMessageRequest>,
    ) -> Result<Response<TraceMessageResponse>, Status> {
        let deadline = answer_by(request.metadata());
        observe("TraceMessage", deadline, trace_message::handle(&*self.store, request.into_inner())).await
    }

    async fn search_messages(
        &self,
        request: Request<SearchMessagesRequest>,
    ) -> Result<Response<SearchMessagesResponse>, Status> {
        let deadline = answer_by(request.metadata());
        observe("SearchMessages", deadline, search_messages::handle(&*self.store, request.into_inner())).await
    }

    async fn queue_stats(&self, request: Request<QueueStatsRequest>) -> Result<Response<QueueStatsResponse>, Status> {
        let deadline = answer_by(request.metadata());
        observe("QueueStats", deadline, queue_stats::handle(&*self.store, request.into_inner())).await
    }

    async fn indexed_depth(
        &self,
        request: Request<IndexedDepthRequest>,
    ) -> Result<Response<IndexedDepthResponse>, Status> {
        let deadline = answer_by(request.metadata());
        observe("IndexedDepth", deadline, indexed_depth::handle(&*self.store, request.into_inner())).await
    }
}
