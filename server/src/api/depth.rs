//! rpc Depth (Q9).

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::DepthRequest,
) -> Result<pb::DepthResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let filter = wire::filter(request.filter).map_err(status::of_call)?;
    let depth = engine.context.store.depth(&shard(&queue), filter.as_ref()).await.map_err(status::of_call)?;
    Ok(pb::DepthResponse { counts: Some(wire::to_counts(depth)) })
}
