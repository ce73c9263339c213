//! Decodes records. Any client with access to the topic can write to it, so a value is accepted only if both stores can
//! hold it.

use prost::Message;
use tallystone_model::limits::*;
use tallystone_model::names::{check_range, check_text};
use tallystone_model::{Cause, Event, Loss, MessageId, Metadata, QueueName, Recorded, Refusal, Shard, State};
use tallystone_proto::event::v1 as wire;

/// 2000-01-01. An earlier time comes from a broken clock.
const AT_MS_MIN: u64 = 946_684_800_000;
/// How far the clock of Redis may be ahead of the reader's.
const AHEAD_MS_MAX: u64 = 86_400_000;

/// Why a record can never be indexed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// Its bytes are not a message of its type.
    #[error("malformed: {0}")]
    Malformed(String),
    /// One of its fields has a value that no server writes.
    #[error("invalid: {0}")]
    Invalid(String),
    /// Its header names none of the three types.
    #[error("unknown type {0:?}")]
    UnknownType(String),
}

impl Undecodable {
    /// The kind in one word, for a metric.
    pub fn kind(&self) -> &'static str {
        match self {
            Undecodable::Malformed(_) => "malformed",
            Undecodable::Invalid(_) => "invalid",
            Undecodable::UnknownType(_) => "unknown_type",
        }
    }
}

impl From<Refusal> for Undecodable {
    fn from(refusal: Refusal) -> Self {
        Undecodable::Invalid(refusal.to_string())
    }
}

/// Decodes the value of an event's record. `now_ms` is the reader's clock, Unix ms.
pub fn decode(value: &[u8], now_ms: u64) -> Result<Recorded, Undecodable> {
    let wire = wire::Event::decode(value).map_err(|error| Undecodable::Malformed(error.to_string()))?;
    let shard = shard(&wire.queue, wire.shard)?;
    let (from, to) = (state("from_state", wire.from_state)?, state("to_state", wire.to_state)?);
    if from.is_none() && to.is_none() {
        return Err(Undecodable::Invalid("it neither leaves nor enters a state".to_owned()));
    }
    if wire.version == 0 {
        return Err(invalid("version", 0));
    }
    let by = u8::try_from(wire.cause).ok().and_then(Cause::from_code).ok_or_else(|| invalid("cause", wire.cause))?;
    for (field, text, bytes_max) in [
        ("worker", &wire.worker, WORKER_BYTES_MAX),
        ("reason", &wire.reason, REASON_BYTES_MAX),
        ("last_reason", &wire.last_reason, REASON_BYTES_MAX),
    ] {
        check_text(field, text, 0, bytes_max)?;
    }
    if let Some(payload) = wire.payload.as_ref().filter(|payload| payload.len() > PAYLOAD_BYTES_MAX) {
        return Err(Undecodable::Invalid(format!("payload: is {} bytes long", payload.len())));
    }
    if wire.result.len() > RESULT_BYTES_MAX {
        return Err(Undecodable::Invalid(format!("result: is {} bytes long", wire.result.len())));
    }
    // A lease or a delay may end long after its transition.
    let due_ms_max = now_ms + AHEAD_MS_MAX + DELAY_MS_MAX;
    let event = Event {
        id: MessageId::parse("id", wire.id)?,
        version: wire.version,
        from,
        to,
        by,
        at_ms: time("at_ms", wire.at_ms, now_ms)?,
        from_since_ms: or_zero(wire.from_state_since_ms, |ms| time("from_state_since_ms", ms, now_ms))?,
        since_ms: time("state_since_ms", wire.state_since_ms, now_ms)?,
        sequence: signed("sequence", wire.sequence)?,
        enqueued_at_ms: time("enqueued_at_ms", wire.enqueued_at_ms, now_ms)?,
        priority: wire.priority,
        metadata: Metadata::parse(wire.metadata)?,
        attempts: wire.attempts,
        fencing_token: signed("fencing_token", wire.fencing_token)?,
        worker: wire.worker,
        due_ms: or_zero(wire.due_ms, |ms| Ok(check_range("due_ms", ms, AT_MS_MIN, due_ms_max)?))?,
        reason: wire.reason,
        last_reason: wire.last_reason,
        coalesced: wire.coalesced,
        payload: wire.payload,
        result: wire.result,
    };
    Ok(Recorded { shard, offset: signed("offset", wire.offset)?, event })
}

/// Decodes the value of a loss's record. `now_ms` is the reader's clock, Unix ms.
pub fn decode_loss(value: &[u8], now_ms: u64) -> Result<Loss, Undecodable> {
    let wire = wire::Loss::decode(value).map_err(|error| Undecodable::Malformed(error.to_string()))?;
    let lost_to_ms = time("lost_to_ms", wire.lost_to_ms, now_ms)?;
    Ok(Loss { shard: shard(&wire.queue, wire.shard)?, lost_to_ms })
}

/// Decodes the value of a watermark's record, Unix ms. `now_ms` is the reader's clock, Unix ms.
pub fn decode_watermark(value: &[u8], now_ms: u64) -> Result<u64, Undecodable> {
    let wire = wire::Watermark::decode(value).map_err(|error| Undecodable::Malformed(error.to_string()))?;
    time("up_to_ms", wire.up_to_ms, now_ms)
}

fn shard(queue: &str, number: u32) -> Result<Shard, Undecodable> {
    let number = u16::try_from(number).map_err(|_| invalid("shard", number))?;
    Ok(Shard { queue: QueueName::parse("queue", queue)?, number })
}

fn state(field: &'static str, number: i32) -> Result<Option<State>, Undecodable> {
    match u8::try_from(number).ok() {
        Some(0) => Ok(None),
        number_u8 => number_u8.and_then(State::from_code).map(Some).ok_or_else(|| invalid(field, number)),
    }
}

/// A time in the past, within the tolerance of the clocks.
fn time(field: &'static str, at_ms: i64, now_ms: u64) -> Result<u64, Undecodable> {
    Ok(check_range(field, at_ms, AT_MS_MIN, now_ms + AHEAD_MS_MAX)?)
}

fn or_zero(ms: i64, check: impl FnOnce(i64) -> Result<u64, Undecodable>) -> Result<u64, Undecodable> {
    if ms == 0 { Ok(0) } else { check(ms) }
}

/// Both stores hold signed numbers only.
fn signed(field: &'static str, number: u64) -> Result<u64, Undecodable> {
    i64::try_from(number).map(|_| number).map_err(|_| invalid(field, number))
}

fn invalid(field: &'static str, number: impl std::fmt::Display) -> Undecodable {
    Undecodable::Invalid(format!("{field}: is {number}"))
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
