//! rpc ListMessages.

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::names::check_text;
use tallystone_model::{Refusal, State, Store};
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

/// Far above the length of any cursor of the store, which is the page token.
const PAGE_TOKEN_BYTES_MAX: usize = 4_096;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::ListMessagesRequest,
) -> Result<pb::ListMessagesResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let limit = wire::page_size(request.page_size)?;
    let state = u8::try_from(request.state).ok().and_then(State::from_code).ok_or_else(|| {
        status::of_call(Refusal::invalid(
            "state",
            format!("is {}; must be one of the six states (1 to 6)", request.state),
        ))
    })?;
    let cursor = request.page_token;
    check_text("page_token", &cursor, 0, PAGE_TOKEN_BYTES_MAX).map_err(status::of_call)?;
    let page = engine.context.store.list_messages(&shard(&queue), state, &cursor, limit).await;
    // The refusal of the store names its own parameter: the wire has another name for it.
    let page = page.map_err(|refusal| match refusal {
        refusal @ Refusal::Invalid { .. } => status::at_field("page_token".to_owned(), refusal),
        other => status::of_call(other),
    })?;
    Ok(pb::ListMessagesResponse {
        messages: page.items.into_iter().map(wire::to_message).collect(),
        next_page_token: page.next_cursor,
    })
}
