//! rpc Release (Q10, Q11, Q23, Q29).

use super::batch::Parsed;
use super::wire;
use crate::engine::Engine;
use prost::Message as _;
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::ReleaseRequest,
) -> Result<pb::ReleaseResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let bytes = request.encoded_len();
    let ids: Vec<String> = request.releases.iter().map(|release| release.id.clone()).collect();
    let releases = Parsed::new("releases", request.releases, wire::lease_release)?;
    let results = releases.through(|releases| engine.release(&queue, releases, bytes)).await?;
    let results = std::iter::zip(ids, results).map(|(id, result)| wire::to_transition_result(id, result));
    Ok(pb::ReleaseResponse { results: results.collect() })
}
