//! Conversions that several RPCs share: from the wire, with checks, and to the wire.

use super::status;
use tallystone_model::limits::*;
use tallystone_model::message::Attempt;
use tallystone_model::names::{check_range, check_text};
use tallystone_model::store::{
    Ages, Completion, Depth, Extended, Extension, LeaseRef, MessagePatch, Release, Transition, Verdict,
};
use tallystone_model::{Filter, Lease, Message, MessageId, QueueName, Refusal, State};
use tallystone_proto::RpcStatus;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

/// The end of the year 9999. Packed records have six bytes for a time.
pub(super) const TIME_MS_MAX: u64 = 253_402_300_799_999;
/// Far above the length of any cursor of the store.
const PAGE_TOKEN_BYTES_MAX: usize = 4_096;

/// The field `queue`.
pub(super) fn queue(name: &str) -> Result<QueueName, Status> {
    QueueName::parse("queue", name).map_err(status::of_call)
}

/// The field `name` of the verbs on queues.
pub(super) fn name(name: &str) -> Result<QueueName, Status> {
    QueueName::parse("name", name).map_err(status::of_call)
}

/// The field `id`.
pub(super) fn id(id: String) -> Result<MessageId, Refusal> {
    MessageId::parse("id", id)
}

/// A reference to a lease.
pub(super) fn lease_ms(lease_ms: Option<i64>) -> Result<Option<u64>, Refusal> {
    lease_ms.map(|value| check_range("lease_ms", value, LEASE_MS_MIN, LEASE_MS_MAX)).transpose()
}

/// Text that may be empty.
pub(super) fn text(field: &'static str, text: String, bytes_max: usize) -> Result<String, Refusal> {
    check_text(field, &text, 0, bytes_max)?;
    Ok(text)
}

/// The filters of a Dequeue or a Work stream; `path` is their field.
pub(super) fn filters(path: &str, filters: Vec<pb::Filter>) -> Result<Vec<Filter>, Status> {
    if filters.len() > FILTERS_MAX {
        let why = format!("has {} filters; the maximum is {FILTERS_MAX}", filters.len());
        return Err(status::at_field(path.to_owned(), Refusal::invalid("filters", why)));
    }
    let parse = |(i, filter): (usize, pb::Filter)| {
        Filter::parse(filter.equals).map_err(|refusal| status::at_field(format!("{path}[{i}]"), refusal))
    };
    filters.into_iter().enumerate().map(parse).collect()
}

/// The only filter of a request; an empty one passes everything.
pub(super) fn filter(filter: Option<pb::Filter>) -> Result<Option<Filter>, Refusal> {
    let Some(filter) = filter.filter(|filter| !filter.equals.is_empty()) else { return Ok(None) };
    Filter::parse(filter.equals).map(Some).map_err(|refusal| match refusal {
        Refusal::Invalid { why, .. } => Refusal::invalid("filter", why),
        other => other,
    })
}

/// The size of a page; 0: the default of 100.
pub(super) fn page_size(size: i32) -> Result<usize, Status> {
    match size {
        0 => Ok(100),
        size => check_range("page_size", i64::from(size), 1, PAGE_ITEMS_MAX as u64)
            .map(|size| size as usize)
            .map_err(status::of_call),
    }
}

pub(super) fn completion(lease: pb::LeaseRef) -> Result<Completion, Refusal> {
    let result = lease.result;
    if result.len() > RESULT_BYTES_MAX {
        let why = format!("is {} bytes long; the maximum is {RESULT_BYTES_MAX}", result.len());
        return Err(Refusal::invalid("result", why));
    }
    Ok(Completion { lease: LeaseRef { id: id(lease.id)?, fencing_token: lease.fencing_token }, result })
}

pub(super) fn lease_release(release: pb::LeaseRelease) -> Result<Release, Refusal> {
    let verdict = verdict(release.verdict)?;
    if verdict != Verdict::Retry && release.delay_ms.is_some() {
        return Err(Refusal::invalid("delay_ms", "is set, but with this verdict the message does not run again"));
    }
    Ok(Release {
        verdict,
        lease: LeaseRef { id: id(release.id)?, fencing_token: release.fencing_token },
        delay_ms: release.delay_ms.map(|value| check_range("delay_ms", value, 0, DELAY_MS_MAX)).transpose()?,
        reason: text("reason", release.reason, REASON_BYTES_MAX)?,
    })
}

fn verdict(number: i32) -> Result<Verdict, Refusal> {
    match pb::Verdict::try_from(number) {
        Ok(pb::Verdict::Unspecified | pb::Verdict::Retry) => Ok(Verdict::Retry),
        Ok(pb::Verdict::Error) => Ok(Verdict::Error),
        Ok(pb::Verdict::Cancel) => Ok(Verdict::Cancel),
        Err(_) => Err(Refusal::invalid("verdict", format!("is {number}; must be from 0 to 3"))),
    }
}

pub(super) fn lease_extension(extension: pb::LeaseExtension, request_id: &str) -> Result<Extension, Refusal> {
    Ok(Extension {
        lease: LeaseRef { id: id(extension.id)?, fencing_token: extension.fencing_token },
        lease_ms: lease_ms(extension.lease_ms)?,
        request_id: request_id.to_owned(),
    })
}

/// What an update changes.
pub(super) fn message_patch(priority: Option<i64>, visible_at_ms: Option<i64>) -> Result<MessagePatch, Refusal> {
    if priority.is_none() && visible_at_ms.is_none() {
        let why = "is absent, and so is visible_at_ms: nothing would change";
        return Err(Refusal::invalid("priority", why));
    }
    let check = |value| check_range("visible_at_ms", value, 0, TIME_MS_MAX);
    Ok(MessagePatch { priority, visible_at_ms: visible_at_ms.map(check).transpose()? })
}

/// One of the six states; `field` has it.
pub(super) fn state(field: &'static str, number: i32) -> Result<State, Refusal> {
    let state = u8::try_from(number).ok().and_then(State::from_code);
    state.ok_or_else(|| Refusal::invalid(field, format!("is {number}; must be one of the six states (1 to 6)")))
}

/// The page token of a list of messages: a cursor of the store.
pub(super) fn page_token(token: &str) -> Result<(), Status> {
    check_text("page_token", token, 0, PAGE_TOKEN_BYTES_MAX).map_err(status::of_call)
}

/// The refusal of a call with a page token. The store names its own parameter: the wire has another name for it.
pub(super) fn of_page(refusal: Refusal) -> Status {
    match refusal {
        refusal @ Refusal::Invalid { .. } => status::at_field("page_token".to_owned(), refusal),
        other => status::of_call(other),
    }
}

/// The numbers are the same: a test compares the two enums.
pub(super) fn to_state(state: State) -> i32 {
    state as i32
}

pub(super) fn to_lease(lease: Lease) -> pb::Lease {
    pb::Lease {
        id: lease.id.to_string(),
        payload: lease.payload,
        priority: lease.priority,
        metadata: lease.metadata.into_pairs(),
        fencing_token: lease.fencing_token,
        attempt: to_i32(lease.attempt),
        max_attempts: to_i32(lease.max_attempts),
        enqueued_at_ms: to_i64(lease.enqueued_at_ms),
        leased_at_ms: to_i64(lease.leased_at_ms),
        lease_expires_at_ms: to_i64(lease.expires_at_ms),
        left_ms: to_i64(lease.left_ms),
        version: lease.version,
    }
}

pub(super) fn to_transition(transition: Transition) -> pb::Transition {
    pb::Transition { state: to_state(transition.state), version: transition.version }
}

pub(super) fn to_transition_result(id: String, result: Result<Transition, RpcStatus>) -> pb::TransitionResult {
    pb::TransitionResult { id, outcome: Some(result.map(to_transition).into()) }
}

pub(super) fn to_extension_result(id: String, result: Result<Extended, RpcStatus>) -> pb::LeaseExtensionResult {
    let extended = |extended: Extended| pb::LeaseExtended { lease_expires_at_ms: to_i64(extended.expires_at_ms) };
    pb::LeaseExtensionResult { id, outcome: Some(result.map(extended).into()) }
}

pub(super) fn to_counts(depth: Depth) -> pb::StateCounts {
    let Depth { invisible, pending, running, completed, canceled, errored } = depth;
    pb::StateCounts { invisible, pending, running, completed, canceled, errored }
}

pub(super) fn to_ages(ages: Ages) -> pb::Ages {
    pb::Ages { oldest_pending_ms: ages.pending_ms.map(to_i64), oldest_lease_ms: ages.lease_ms.map(to_i64) }
}

pub(super) fn to_message(message: Message) -> pb::Message {
    pb::Message {
        id: message.id.to_string(),
        state: to_state(message.state),
        version: message.version,
        payload: message.payload,
        priority: message.priority,
        priority_class: message.priority_class.unwrap_or_default(),
        metadata: message.metadata.into_pairs(),
        lease_ms: message.lease_ms.map(to_i64),
        invisibility_ms: message.invisibility_ms.map(to_i64),
        max_attempts: to_i32(message.max_attempts),
        attempts: to_i32(message.attempts),
        enqueued_at_ms: to_i64(message.enqueued_at_ms),
        state_since_ms: to_i64(message.state_since_ms),
        due_ms: to_i64(message.due_ms),
        fencing_token: message.fencing_token,
        worker: message.worker,
        reason: message.reason,
        coalesced: message.coalesced,
        result: message.result,
        last_attempts: message.last_attempts.into_iter().map(to_attempt).collect(),
    }
}

fn to_attempt(attempt: Attempt) -> pb::Attempt {
    pb::Attempt {
        number: to_i32(attempt.number),
        fencing_token: attempt.fencing_token,
        worker: attempt.worker,
        leased_at_ms: to_i64(attempt.leased_at_ms),
        ended_at_ms: to_i64(attempt.ended_at_ms),
        state: to_state(attempt.state),
        reason: attempt.reason,
    }
}

/// Times and counts are far below the largest i64; a larger value becomes that, not a negative number.
pub(super) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// As above, for u32.
pub(super) fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
