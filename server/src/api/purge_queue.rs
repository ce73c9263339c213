//! rpc PurgeQueue.

use super::{status, wire};
use crate::engine::Engine;
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::PurgeQueueRequest>,
) -> Result<pb::PurgeQueueResponse, Status> {
    let answer_by = tallystone_proto::answer_by(request.metadata());
    let request = request.into_inner();
    let name = wire::name(&request.name)?;
    let (purged, more) = engine.purge(&name, request.include_running, answer_by).await.map_err(status::of_call)?;
    Ok(pb::PurgeQueueResponse { purged: wire::to_i64(purged), more })
}
