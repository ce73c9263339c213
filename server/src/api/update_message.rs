//! rpc UpdateMessage.

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::names::check_range;
use tallystone_model::store::MessagePatch;
use tallystone_model::{Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

/// The end of the year 9999. Packed records have six bytes for a due time.
const VISIBLE_AT_MS_MAX: u64 = 253_402_300_799_999;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::UpdateMessageRequest,
) -> Result<pb::UpdateMessageResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let id = wire::id(request.id).map_err(status::of_call)?;
    if request.priority.is_none() && request.visible_at_ms.is_none() {
        let why = "is absent, and so is visible_at_ms: nothing would change";
        return Err(status::of_call(Refusal::invalid("priority", why)));
    }
    let visible_at_ms = request
        .visible_at_ms
        .map(|value| check_range("visible_at_ms", value, 0, VISIBLE_AT_MS_MAX))
        .transpose()
        .map_err(status::of_call)?;
    let patch = MessagePatch { priority: request.priority, visible_at_ms };
    let shard = shard(&queue);
    let transition = engine.context.store.update_message(&shard, &id, patch).await.map_err(status::of_call)?;
    engine.changed(&shard);
    Ok(pb::UpdateMessageResponse { transition: Some(wire::to_transition(transition)) })
}
