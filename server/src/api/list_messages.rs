//! rpc ListMessages.

use super::visible::Visible;
use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::ListMessagesRequest>,
) -> Result<pb::ListMessagesResponse, Status> {
    let visible = Visible::to(&request, &request.get_ref().queue);
    let request = request.into_inner();
    let queue = wire::queue(&request.queue)?;
    let limit = wire::page_size(request.page_size)?;
    let state = wire::state("state", request.state).map_err(status::of_call)?;
    let cursor = request.page_token;
    wire::page_token(&cursor)?;
    let page = engine.context.store.list_messages(&shard(&queue), state, &cursor, limit).await;
    let page = page.map_err(wire::of_page)?;
    Ok(pb::ListMessagesResponse {
        messages: page.items.into_iter().map(|message| visible.part_of(wire::to_message(message))).collect(),
        next_page_token: page.next_cursor,
    })
}
