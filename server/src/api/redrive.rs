//! rpc Redrive (Q5).

use super::batch::Parsed;
use super::wire;
use crate::engine::Engine;
use prost::Message as _;
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::RedriveRequest,
) -> Result<pb::RedriveResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let bytes = request.encoded_len();
    let names = request.ids.clone();
    let ids = Parsed::new("ids", request.ids, wire::id)?;
    let results = ids.through(|ids| engine.redrive(&queue, ids, bytes)).await?;
    let results = std::iter::zip(names, results).map(|(id, result)| wire::to_transition_result(id, result));
    Ok(pb::RedriveResponse { results: results.collect() })
}
