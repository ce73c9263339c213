//! rpc UpdateQueue (Q2). A field in the mask without a value in the request is reset to its default; only `shards` must have one.

use super::{queue_config, status, wire};
use crate::engine::Engine;
use tallystone_model::{QueueConfig, QueuePatch, Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::UpdateQueueRequest,
) -> Result<pb::UpdateQueueResponse, Status> {
    let name = wire::name(&request.name)?;
    let paths = request.update_mask.unwrap_or_default().paths;
    if paths.is_empty() {
        return Err(status::of_call(Refusal::invalid("update_mask", "is empty; must name the fields to change")));
    }
    let template = engine.context.templates.config_of(&name);
    // Without the immutable fields, and the number of shards only where it is to change, so that a client may send back the result
    // of GetQueue.
    let requested = request.config.unwrap_or_default();
    let changes_shards = paths.iter().any(|path| path == "shards");
    let shards = requested.shards.filter(|_| changes_shards);
    if changes_shards && shards.is_none() {
        // A change moves work between shards: none is made by a default.
        return Err(status::of_call(Refusal::invalid("config.shards", "must be set where update_mask names it")));
    }
    let requested = pb::QueueConfig { r#type: 0, exclusivity_key: String::new(), shards, ..requested };
    let config = queue_config::parse(requested, template).map_err(|refusal| status::within("config", refusal))?;
    let patch = patch(&paths, config).map_err(status::of_call)?;
    let queue = engine.update_queue(&name, patch).await.map_err(status::of_call)?;
    Ok(pb::UpdateQueueResponse { queue: Some(queue_config::to_info(queue)) })
}

fn patch(paths: &[String], config: QueueConfig) -> Result<QueuePatch, Refusal> {
    let mut patch = QueuePatch::default();
    for path in paths {
        match path.as_str() {
            "lease_ms" => patch.lease_ms = Some(config.lease_ms),
            "invisibility_ms" => patch.invisibility_ms = Some(config.invisibility_ms),
            "max_attempts" => patch.max_attempts = Some(config.max_attempts),
            "enqueue_blocked" => patch.enqueue_blocked = Some(config.enqueue_blocked),
            "dequeue_blocked" => patch.dequeue_blocked = Some(config.dequeue_blocked),
            "terminal_retention_ms" => patch.terminal_retention_ms = Some(config.terminal_retention_ms),
            "errored_retention_ms" => patch.errored_retention_ms = Some(config.errored_retention_ms),
            "max_errored" => patch.max_errored = Some(config.max_errored),
            "max_errored_bytes" => patch.max_errored_bytes = Some(config.max_errored_bytes),
            "id_window_ms" => patch.id_window_ms = Some(config.id_window_ms),
            "retry_backoff" => patch.retry_backoff = Some(config.retry_backoff),
            "max_depth" => patch.max_depth = Some(config.max_depth),
            "indexes" => patch.indexes = Some(config.indexes.clone()),
            "priority_classes" => patch.priority_classes = Some(config.priority_classes.clone()),
            "shards" => patch.shards = Some(config.shards),
            "type" | "exclusivity_key" => {
                return Err(Refusal::invalid("update_mask", format!("names {path:?}, which is fixed at creation")));
            }
            _ => return Err(Refusal::invalid("update_mask", format!("names {path:.80?}, which is not a field"))),
        }
    }
    Ok(patch)
}
