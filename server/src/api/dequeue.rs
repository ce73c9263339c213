//! rpc Dequeue (Q8, Q10, Q11, Q18).

use super::{status, wire};
use crate::engine::Engine;
use prost::Message as _;
use std::time::Duration;
use tallystone_model::Store;
use tallystone_model::limits::*;
use tallystone_model::names::check_range;
use tallystone_model::store::DequeueRequest;
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Access, trace_items};
use tokio::time::Instant;
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::DequeueRequest>,
) -> Result<pb::DequeueResponse, Status> {
    let access = Access::of(request.extensions());
    let answer_by = tallystone_proto::answer_by(request.metadata());
    let request = request.into_inner();
    let bytes = request.encoded_len();
    let queue = wire::queue(&request.queue)?;
    let wait_ms = check_range("wait_ms", request.wait_ms, 0, WAIT_MS_MAX).map_err(status::of_call)?;
    let filters = wire::filters("filters", request.filters)?;
    let parsed = || {
        Ok(DequeueRequest {
            worker: wire::text("worker", request.worker, WORKER_BYTES_MAX)?,
            limit: check_range("limit", i64::from(request.limit), 1, BATCH_ITEMS_MAX as u64)? as usize,
            lease_ms: wire::lease_ms(request.lease_ms)?,
            filters,
            request_id: wire::text("request_id", request.request_id, REQUEST_ID_BYTES_MAX)?,
        })
    };
    let parsed = parsed().map_err(status::of_call)?;
    let wait_until = Instant::now() + Duration::from_millis(wait_ms);
    let until = answer_by.map_or(wait_until, |by| by.min(wait_until));
    let leases = tokio::select! {
        leases = engine.dequeue(&queue, parsed, bytes, until) => leases.map_err(status::of_call)?,
        // As if the caller had disconnected: what it has leased is released.
        withdrawn = access.withdrawn() => return Err(withdrawn),
    };
    trace_items(leases.len());
    Ok(pb::DequeueResponse { leases: leases.into_iter().map(wire::to_lease).collect() })
}
