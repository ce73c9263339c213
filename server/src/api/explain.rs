//! rpc Explain (Q7).

use super::visible::Visible;
use super::{status, wire};
use crate::engine::{Engine, shard};
use tallystone_model::Store;
use tallystone_model::explain::{Hindrance, hindrances};
use tallystone_proto::queue::v1 as pb;
use tonic::{Request, Status};

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::ExplainRequest>,
) -> Result<pb::ExplainResponse, Status> {
    let visible = Visible::to(&request, &request.get_ref().queue);
    let request = request.into_inner();
    let queue = wire::queue(&request.queue)?;
    let id = wire::id(request.id).map_err(status::of_call)?;
    let facts = engine.context.store.explain(&shard(&queue), &id).await.map_err(status::of_call)?;
    Ok(pb::ExplainResponse {
        hindrances: hindrances(&facts).into_iter().map(to_hindrance).collect(),
        ahead: wire::to_i64(facts.ahead),
        message: Some(visible.part_of(wire::to_message(facts.message))),
    })
}

fn to_hindrance(hindrance: Hindrance) -> pb::Hindrance {
    pb::Hindrance {
        kind: hindrance.kind as i32,
        text: hindrance.text,
        blocking_id: hindrance.blocking_id.map(|id| id.to_string()).unwrap_or_default(),
        worker: hindrance.worker,
        until_ms: wire::to_i64(hindrance.until_ms),
    }
}
