//! rpc Complete (Q10, Q11, Q12, Q23).

use super::batch::Parsed;
use super::wire;
use crate::engine::Engine;
use prost::Message as _;
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::CompleteRequest,
) -> Result<pb::CompleteResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let bytes = request.encoded_len();
    let ids: Vec<String> = request.leases.iter().map(|lease| lease.id.clone()).collect();
    let leases = Parsed::new("leases", request.leases, wire::completion)?;
    let results = leases.through(|leases| engine.complete(&queue, leases, bytes)).await?;
    let results = std::iter::zip(ids, results).map(|(id, result)| wire::to_transition_result(id, result));
    Ok(pb::CompleteResponse { results: results.collect() })
}
