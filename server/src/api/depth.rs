//! rpc Depth (Q9, O1).

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::store::{Ages, Depth};
use tallystone_model::{QueueName, Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::DepthRequest,
) -> Result<pb::DepthResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let filter = wire::filter(request.filter).map_err(status::of_call)?;
    let store = &engine.context.store;
    let depth = store.depth(&shard(&queue), filter.as_ref()).await.map_err(status::of_call)?;
    let ages = match filter {
        Some(_) => None,
        None => Some(wire::to_ages(ages(&**store, &queue, &depth).await.map_err(status::of_call)?)),
    };
    Ok(pb::DepthResponse { counts: Some(wire::to_counts(depth)), ages })
}

/// The ages of a queue of this depth; an empty one costs no call.
pub(super) async fn ages<S: Store>(store: &S, queue: &QueueName, depth: &Depth) -> Result<Ages, Refusal> {
    match depth.pending + depth.running {
        0 => Ok(Ages::default()),
        _ => store.ages(&shard(queue)).await,
    }
}
