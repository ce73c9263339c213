//! rpc Cancel (Q5, Q10, Q11). To cancel by force or by a lease needs further rights (S4).

use super::batch::Parsed;
use super::wire;
use crate::engine::Engine;
use prost::Message as _;
use tallystone_model::limits::REASON_BYTES_MAX;
use tallystone_model::store::Cancellation;
use tallystone_model::{Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Access, AuditedCall, Guarded as _, Right};
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::CancelRequest>,
) -> Result<pb::CancelResponse, Status> {
    let access = Access::of(request.extensions());
    let request = request.into_inner();
    let mut audited = None;
    if request.cancellations.iter().any(|cancellation| cancellation.force) {
        access.require(pb::CancelRequest::RPC, Right::Operate, &request.queue)?;
        audited = access.audit_as(pb::CancelRequest::RPC, Right::Operate, || vec![request.queue.clone()])?;
    }
    if request.cancellations.iter().any(|cancellation| cancellation.fencing_token != 0) {
        access.require(pb::CancelRequest::RPC, Right::Consume, &request.queue)?;
    }
    AuditedCall::around(audited, cancel(engine, request)).await
}

async fn cancel<S: Store>(engine: &Engine<S>, request: pb::CancelRequest) -> Result<pb::CancelResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let bytes = request.encoded_len();
    let ids: Vec<String> = request.cancellations.iter().map(|cancellation| cancellation.id.clone()).collect();
    let cancellations = Parsed::new("cancellations", request.cancellations, parse)?;
    let results = cancellations.through(|cancellations| engine.cancel(&queue, cancellations, bytes)).await?;
    let results = std::iter::zip(ids, results).map(|(id, result)| wire::to_transition_result(id, result));
    Ok(pb::CancelResponse { results: results.collect() })
}

fn parse(cancellation: pb::Cancellation) -> Result<Cancellation, Refusal> {
    Ok(Cancellation {
        id: wire::id(cancellation.id)?,
        fencing_token: cancellation.fencing_token,
        force: cancellation.force,
        reason: wire::text("reason", cancellation.reason, REASON_BYTES_MAX)?,
    })
}
