//! rpc Enqueue (Q1, Q3, Q10, Q12). A caller without the right `create` creates queues of a template only (S4).

use super::batch::Parsed;
use super::{status, wire};
use crate::engine::Engine;
use prost::Message as _;
use std::collections::BTreeMap;
use tallystone_model::limits::*;
use tallystone_model::message::Enqueued;
use tallystone_model::names::{TRACE_KEYS, check_range};
use tallystone_model::{MessageId, Metadata, NewMessage, Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::{RpcStatus, TraceContext};
use tallystone_serving::{Access, Right, trace_context};
use tonic::{Request, Status};
use uuid::Uuid;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::EnqueueRequest>,
) -> Result<pb::EnqueueResponse, Status> {
    let may_create = Access::of(request.extensions()).allows(Right::Create, &request.get_ref().queue);
    let trace = trace_context(request.metadata());
    let request = request.into_inner();
    let bytes = request.encoded_len();
    let queue = wire::queue(&request.queue)?;
    if bytes > BATCH_BYTES_MAX {
        let why = format!("are in a request of {bytes} bytes; the maximum is {BATCH_BYTES_MAX}");
        return Err(status::of_call(Refusal::invalid("messages", why)));
    }
    let messages = Parsed::new("messages", request.messages, |message| parse(message, trace.as_ref()))?;
    let results = messages.through(|messages| engine.enqueue(&queue, messages, bytes, may_create)).await?;
    Ok(pb::EnqueueResponse { results: results.into_iter().map(to_result).collect() })
}

fn parse(message: pb::NewMessage, trace: Option<&TraceContext>) -> Result<NewMessage, Refusal> {
    let parsed = NewMessage {
        id: match message.id.is_empty() {
            true => MessageId::parse("id", Uuid::now_v7().to_string())?,
            false => wire::id(message.id)?,
        },
        payload: message.payload,
        priority: message.priority,
        priority_class: priority_class(message.priority, message.priority_class)?,
        metadata: Metadata::parse(with_trace(message.metadata, trace))?,
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

/// Adds the trace context of the call to the metadata of a message that brings none (O2). What does not fit is left out.
fn with_trace(mut pairs: BTreeMap<String, String>, trace: Option<&TraceContext>) -> BTreeMap<String, String> {
    let Some(trace) = trace else { return pairs };
    if TRACE_KEYS.iter().any(|key| pairs.contains_key(*key)) {
        return pairs;
    }
    for (key, value) in TRACE_KEYS.into_iter().zip([Some(&trace.traceparent), trace.tracestate.as_ref()]) {
        match value {
            Some(value) if pairs.len() < METADATA_PAIRS_MAX && value.len() <= METADATA_VALUE_BYTES_MAX => {
                pairs.insert(key.to_owned(), value.clone());
            }
            _ => break,
        }
    }
    pairs
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn o2_a_message_gets_the_trace_context_of_its_call_if_it_fits() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = |tracestate: &str| TraceContext::parse(parent, Some(tracestate)).unwrap();
        let with = |of: &[(&str, &str)], tracestate: &str| with_trace(pairs(of), Some(&trace(tracestate)));
        let (both, state) = (("traceparent", parent), ("tracestate", "a=1"));
        assert_eq!(with(&[("k", "v")], "a=1"), pairs(&[("k", "v"), both, state]));
        assert_eq!(with(&[], ""), pairs(&[both]));
        assert_eq!(with(&[], &"x".repeat(METADATA_VALUE_BYTES_MAX + 1)), pairs(&[both]));
        let three = [("k1", "v"), ("k2", "v"), ("k3", "v")];
        assert_eq!(with(&three, "a=1"), pairs(&[&three[..], &[both]].concat()));
        for unchanged in [&[&three[..], &[("k4", "v")]].concat()[..], &[("traceparent", "own")], &[state]] {
            assert_eq!(with(unchanged, "b=2"), pairs(unchanged));
        }
        assert_eq!(with_trace(pairs(&three), None), pairs(&three));
    }
}
