//! rpc CreateQueue (Q1, Q2).

use super::{queue_config, status, wire};
use crate::engine::Engine;
use tallystone_model::Store;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::CreateQueueRequest,
) -> Result<pb::CreateQueueResponse, Status> {
    let name = wire::name(&request.name)?;
    let template = engine.context.templates.config_of(&name);
    let config = queue_config::parse(request.config.unwrap_or_default(), template)
        .map_err(|refusal| status::within("config", refusal))?;
    let queue = engine.create_queue(&name, config).await.map_err(status::of_call)?;
    Ok(pb::CreateQueueResponse { queue: Some(queue_config::to_info(queue)) })
}
