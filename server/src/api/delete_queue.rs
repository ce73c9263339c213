//! rpc DeleteQueue.

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::DeleteQueueRequest>,
) -> Result<pb::DeleteQueueResponse, Status> {
    let answer_by = tallystone_proto::answer_by(request.metadata());
    let request = request.into_inner();
    let name = wire::name(&request.name)?;
    let deleted = match request.force {
        true => engine.delete_by_force(&name, answer_by).await,
        false => engine.context.store.delete_queue(&name).await,
    };
    deleted.map_err(status::of_call)?;
    engine.note_deletion(&name).await;
    // The waiting callers get a refusal: the queue no longer exists.
    engine.lanes.wake(&shard(&name));
    Ok(pb::DeleteQueueResponse {})
}
