//! rpc GetMessage.

use super::visible::Visible;
use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::{Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::GetMessageRequest>,
) -> Result<pb::GetMessageResponse, Status> {
    let visible = Visible::to(&request, &request.get_ref().queue);
    let request = request.into_inner();
    let queue = wire::queue(&request.queue)?;
    let id = wire::id(request.id).map_err(status::of_call)?;
    let messages = engine.context.store.get_messages(&shard(&queue), vec![id]).await.map_err(status::of_call)?;
    let unanswered = || Err(Refusal::Internal("the store left the message out".to_owned()));
    let message = messages.into_iter().next().unwrap_or_else(unanswered).map_err(status::of_call)?;
    Ok(pb::GetMessageResponse { message: Some(visible.part_of(wire::to_message(message))) })
}
