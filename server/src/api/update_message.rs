//! rpc UpdateMessage.

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::UpdateMessageRequest,
) -> Result<pb::UpdateMessageResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let id = wire::id(request.id).map_err(status::of_call)?;
    let patch = wire::message_patch(request.priority, request.visible_at_ms).map_err(status::of_call)?;
    let shard = shard(&queue);
    let transition = engine.context.store.update_message(&shard, &id, patch).await.map_err(status::of_call)?;
    engine.changed(&shard);
    Ok(pb::UpdateMessageResponse { transition: Some(wire::to_transition(transition)) })
}
