//! rpc Depth (Q9).

use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::{Filter, Store};
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::DepthRequest,
) -> Result<pb::DepthResponse, Status> {
    let queue = wire::queue(&request.queue)?;
    let filter = request
        .filter
        .filter(|filter| !filter.equals.is_empty())
        .map(|filter| Filter::parse(filter.equals))
        .transpose()
        .map_err(|refusal| status::at_field("filter".to_owned(), refusal))?;
    let depth = engine.context.store.depth(&shard(&queue), filter.as_ref()).await.map_err(status::of_call)?;
    Ok(pb::DepthResponse { counts: Some(wire::to_counts(depth)) })
}
