//! Fields of several requests, checked and converted from the wire.

use super::status;
use crate::store::TIME_MS_MAX;
use std::collections::BTreeMap;
use tallystone_model::names::{check_range, check_text};
use tallystone_model::{MessageId, Metadata, QueueName, State};
use tonic::Status;

/// The field `queue`.
pub(super) fn queue(name: &str) -> Result<QueueName, Status> {
    QueueName::parse("queue", name).map_err(status::of_refusal)
}

/// The field `id`.
pub(super) fn id(id: &str) -> Result<MessageId, Status> {
    MessageId::parse("id", id).map_err(status::of_refusal)
}

/// A field that is absent if empty.
pub(super) fn unless_empty<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, Status>) -> Result<Option<T>, Status> {
    (!text.is_empty()).then(|| parse(text)).transpose()
}

/// A text that may be empty.
pub(super) fn text(field: &'static str, text: String, bytes_max: usize) -> Result<String, Status> {
    check_text(field, &text, 0, bytes_max).map_err(status::of_refusal)?;
    Ok(text)
}

/// The field `metadata`: at most as many pairs as a message can have.
pub(super) fn metadata(pairs: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Status> {
    Metadata::parse(pairs).map(Metadata::into_pairs).map_err(status::of_refusal)
}

/// A state of messages; 0 is refused.
pub(super) fn state(field: &str, number: i32) -> Result<State, Status> {
    let state = u8::try_from(number).ok().and_then(State::from_code);
    state.ok_or_else(|| status::invalid(field, format!("is {number}; must be one of the six states (1 to 6)")))
}

/// A time, Unix ms; 0: absent.
pub(super) fn time_ms(field: &'static str, time_ms: i64) -> Result<Option<u64>, Status> {
    let time_ms = check_range(field, time_ms, 0, TIME_MS_MAX).map_err(status::of_refusal)?;
    Ok((time_ms > 0).then_some(time_ms))
}

/// A limit; 0: the default.
pub(super) fn count(field: &'static str, count: i32, default: usize, max: usize) -> Result<usize, Status> {
    match count {
        0 => Ok(default),
        count => {
            check_range(field, i64::from(count), 1, max as u64).map(|count| count as usize).map_err(status::of_refusal)
        }
    }
}
