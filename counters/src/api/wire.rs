//! What several calls have in common: tokens, batches and names.

use crate::log::{Bounds, Change, Labels};
use crate::names::{CounterName, NamespaceName, Token};
use crate::namespace::CounterType;
use crate::refusal::Refusal;
use crate::service::{ChangeRequest, TOP_MAX};
use std::ops::Range;
use std::time::Duration;
use tallystone_model::names::check_range;
use tallystone_proto::counter::v1 as wire;
use tokio::time::Instant;
use tonic::Status;

/// Items of one call.
const BATCH_ITEMS_MAX: usize = 1_000;

/// Items of an answer, unless the caller limits it; and the highest limit.
const ANSWER_ITEMS: usize = 100;
const ANSWER_ITEMS_MAX: u64 = TOP_MAX as u64;

/// How long a call may wait.
pub(super) const WAIT_MS_MAX: u64 = 30_000;

/// The namespace of a call.
pub(super) fn namespace(name: String) -> Result<NamespaceName, Status> {
    NamespaceName::parse(name).map_err(super::status::of_call)
}

/// The number of items of a call.
pub(super) fn batch(field: &'static str, items: usize) -> Result<(), Status> {
    match items {
        1..=BATCH_ITEMS_MAX => Ok(()),
        // Of a longer list over HTTP only a part is read.
        _ => Err(super::status::of_call(Refusal::invalid(field, format!("must have 1 to {BATCH_ITEMS_MAX} items")))),
    }
}

/// The most items of an answer, as its caller limits it; 0: 100.
pub(super) fn answer_items(limit: i32) -> Result<usize, Refusal> {
    Ok(match check_range("limit", limit.into(), 0, ANSWER_ITEMS_MAX)? {
        0 => ANSWER_ITEMS,
        limit => limit as usize,
    })
}

/// When a call gives up that may wait for so long: in any case before its caller does.
pub(super) fn gives_up(wait_ms: i64, answer_by: Option<Instant>) -> Result<Instant, Refusal> {
    let until = Instant::now() + Duration::from_millis(check_range("wait_ms", wait_ms, 0, WAIT_MS_MAX)?);
    Ok(answer_by.map_or(until, |by| by.min(until)))
}

/// A range of time in Unix ms; 0: its start or its end is not given.
pub(super) fn range(from_ms: i64, to_ms: i64) -> Result<Range<u64>, Status> {
    let time = |field, ms: i64| {
        let refused = |_| Refusal::invalid(field, format!("is {ms}; must be a time in Unix ms, or 0"));
        u64::try_from(ms).map_err(refused).map_err(super::status::of_call)
    };
    let range = time("from_ms", from_ms)?..time("to_ms", to_ms)?;
    if range.end > 0 && range.end < range.start {
        return Err(super::status::of_call(Refusal::invalid("to_ms", "is before the start of the range")));
    }
    Ok(range)
}

/// A change without bounds, with the caller's token and time if it has them.
pub(super) fn change_request(
    counter: String,
    change: Change,
    token: Option<wire::IdempotencyToken>,
) -> Result<ChangeRequest, Refusal> {
    let counter = CounterName::parse(counter)?;
    let event = |wire::IdempotencyToken { token, generation_time_ms }| {
        let bad_time = |_| {
            Refusal::invalid("token.generation_time_ms", format!("is {generation_time_ms}; must be a time in Unix ms"))
        };
        let time_ms = u64::try_from(generation_time_ms).map_err(bad_time)?;
        if time_ms == 0 {
            let why = "is absent or 0; without the event's time, a retry could not be recognized";
            return Err(Refusal::invalid("token.generation_time_ms", why));
        }
        Ok((Token::parse(token)?, time_ms))
    };
    let (bounds, labels) = (Bounds::default(), Labels::default());
    Ok(ChangeRequest { counter, change, event: token.map(event).transpose()?, bounds, labels })
}

pub(super) fn counter_type(counter_type: CounterType) -> wire::CounterType {
    match counter_type {
        CounterType::BestEffort => wire::CounterType::BestEffort,
        CounterType::Eventual => wire::CounterType::Eventual,
        CounterType::Accurate => wire::CounterType::Accurate,
    }
}

/// Splits what is well-formed from what is not; both keep their numbers.
pub(super) fn sorted<T>(items: impl Iterator<Item = Result<T, Refusal>>) -> (Vec<T>, Vec<Result<(), Refusal>>) {
    let mut good = Vec::new();
    let verdicts = items.map(|item| item.map(|item| good.push(item))).collect();
    (good, verdicts)
}

/// Puts the answers to the good ones back among the refusals of the others.
pub(super) fn merged<A>(
    verdicts: Vec<Result<(), Refusal>>,
    answers: impl IntoIterator<Item = Result<A, Refusal>>,
) -> impl Iterator<Item = Result<A, Refusal>> {
    let mut answers = answers.into_iter();
    verdicts.into_iter().map(move |verdict| {
        verdict.and_then(|()| answers.next().unwrap_or_else(|| Err(Refusal::Internal("too few answers".to_owned()))))
    })
}
