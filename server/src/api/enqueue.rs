//! rpc Enqueue (Q1, Q3, Q10, Q12). A caller without the right `create` creates queues of a template only (S4).

use super::batch::Parsed;
use super::{status, wire};
use crate::engine::Engine;
use prost::Message as _;
use tallystone_model::limits::*;
use tallystone_model::message::Enqueued;
use tallystone_model::names::check_range;
use tallystone_model::{MessageId, Metadata, NewMessage, Refusal, Store};
use tallystone_proto::RpcStatus;
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Access, Right};
use tonic::{Request, Status};
use uuid::Uuid;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::EnqueueRequest>,
) -> Result<pb::EnqueueResponse, Status> {
    let may_create = Access::of(request.extensions()).allows(Right::Create, &request.get_ref().queue);
    let request = request.into_inner();
    let bytes = request.encoded_len();
    let queue = wire::queue(&request.queue)?;
    if bytes > BATCH_BYTES_MAX {
        let why = format!("are in a request of {bytes} bytes; the maximum is {BATCH_BYTES_MAX}");
        return Err(status::of_call(Refusal::invalid("messages", why)));
    }
    let messages = Parsed::new("messages", request.messages, parse)?;
    let results = messages.through(|messages| engine.enqueue(&queue, messages, bytes, may_create)).await?;
    Ok(pb::EnqueueResponse { results: results.into_iter().map(to_result).collect() })
}

fn parse(message: pb::NewMessage) -> Result<NewMessage, Refusal> {
    let parsed = NewMessage {
        id: match message.id.is_empty() {
            true => MessageId::parse("id", Uuid::now_v7().to_string())?,
            false => wire::id(message.id)?,
        },
        payload: message.payload,
        priority: message.priority,
        priority_class: priority_class(message.priority, message.priority_class)?,
        metadata: Metadata::parse(message.metadata)?,
        lease_ms: wire::lease_ms(message.lease_ms)?,
        invisibility_ms: message
            .invisibility_ms
            .map(|value| check_range("invisibility_ms", value, 0, DELAY_MS_MAX))
            .transpose()?,
        max_attempts: message
            .max_attempts
            .map(|value| check_range("max_attempts", i64::from(value), 1, u64::from(ATTEMPTS_MAX)))
            .transpose()?
            .map(|value| value as u32),
        coalesce: message.coalesce,
    };
    parsed.check()?;
    Ok(parsed)
}

/// A class sets the priority, so that a message has one or the other.
fn priority_class(priority: i64, class: String) -> Result<Option<String>, Refusal> {
    match (priority, class.is_empty()) {
        (_, true) => Ok(None),
        (0, false) => Ok(Some(class)),
        _ => Err(Refusal::invalid("priority_class", "is set, and priority too; set one of them")),
    }
}

fn to_result(result: Result<Enqueued, RpcStatus>) -> pb::EnqueueResult {
    let enqueued = |enqueued: Enqueued| pb::Enqueued {
        id: enqueued.id.to_string(),
        enqueued_at_ms: wire::to_i64(enqueued.enqueued_at_ms),
        queue_created: enqueued.queue_created,
    };
    pb::EnqueueResult { outcome: Some(result.map(enqueued).into()) }
}
