//! rpc GetQueue (Q2).

use super::{queue_config, status, wire};
use crate::engine::Engine;
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::GetQueueRequest,
) -> Result<pb::GetQueueResponse, Status> {
    let name = wire::name(&request.name)?;
    let queue = engine.context.store.get_queue(&name).await.map_err(status::of_call)?;
    Ok(pb::GetQueueResponse { queue: Some(queue_config::to_info(queue)) })
}
