//! rpc CheckQueue: one step of the scrubber.

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::Store;
use tallystone_model::names::check_text;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

/// Far above the length of any cursor of the store.
const CURSOR_BYTES_MAX: usize = 4_096;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::CheckQueueRequest,
) -> Result<pb::CheckQueueResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    check_text("cursor", &request.cursor, 0, CURSOR_BYTES_MAX).map_err(status::of_call)?;
    let step = engine.context.store.check(&shard(&queue), &request.cursor).await;
    let (checked, page) = step.map_err(status::of_call)?;
    let to_violation = |violation: tallystone_model::invariants::Violation| pb::Violation {
        invariant: violation.invariant.to_owned(),
        detail: violation.detail,
    };
    Ok(pb::CheckQueueResponse {
        cursor: page.next_cursor,
        checked: wire::to_i64(checked),
        violations: page.items.into_iter().map(to_violation).collect(),
    })
}
