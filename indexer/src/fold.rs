//! From an event to what the stores keep: the transition, and the message after it. Both stores write these values, so
//! their responses cannot differ.

use tallystone_model::{Cause, Event, Recorded, State};
use tallystone_proto::event::v1 as event;
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};
use tallystone_proto::queue::v1 as queue;

/// The permanent name of a message: `QUEUE/SHARD/SEQUENCE`.
pub fn message_key(recorded: &Recorded) -> String {
    format!("{}/{}/{}", recorded.shard.queue, recorded.shard.number, recorded.event.sequence)
}

/// The same of a message that a store returns.
pub fn key_of_indexed(message: &IndexedMessage) -> String {
    format!("{}/{}/{}", message.queue, message.shard, message.sequence)
}

/// The state on the wire; `None`: the message is not in the queue.
pub fn wire_state(state: Option<State>) -> queue::State {
    // The wire uses the numbers of the model (a test compares them).
    state.and_then(|state| queue::State::try_from(state as i32).ok()).unwrap_or_default()
}

/// The cause on the wire.
pub fn wire_cause(cause: Cause) -> event::Cause {
    event::Cause::try_from(cause as i32).unwrap_or_default()
}

/// One row of a trace.
pub fn transition(event: &Event) -> TracedTransition {
    TracedTransition {
        sequence: event.sequence,
        version: event.version,
        from_state: wire_state(event.from).into(),
        to_state: wire_state(event.to).into(),
        cause: wire_cause(event.by).into(),
        at_ms: event.at_ms as i64,
        spent_ms: spent_ms(event) as i64,
        worker: event.worker.clone(),
        fencing_token: event.fencing_token,
        attempt: event.attempts,
        reason: event.reason.clone(),
        due_ms: event.due_ms as i64,
        priority: event.priority,
    }
}

/// The fields of a message that an event can change.
pub(crate) struct Changing<'a> {
    pub(crate) version: u32,
    pub(crate) gone: bool,
    pub(crate) state: i32,
    pub(crate) changed_at_ms: i64,
    pub(crate) since_ms: i64,
    pub(crate) due_ms: i64,
    pub(crate) priority: i64,
    pub(crate) attempts: u32,
    pub(crate) fencing_token: u64,
    pub(crate) coalesced: bool,
    pub(crate) worker: &'a str,
    pub(crate) reason: &'a str,
}

/// The changing fields after this event.
pub(crate) fn changing(event: &Event) -> Changing<'_> {
    Changing {
        version: event.version,
        gone: event.to.is_none(),
        state: wire_state(event.to.or(event.from)).into(),
        changed_at_ms: event.at_ms as i64,
        since_ms: event.since_ms as i64,
        due_ms: event.due_ms as i64,
        priority: event.priority,
        attempts: event.attempts,
        fencing_token: event.fencing_token,
        coalesced: event.coalesced,
        worker: &event.worker,
        reason: &event.last_reason,
    }
}

/// The message after this event, without its payload. Of all events of a message, the highest version is current.
pub fn message(recorded: &Recorded) -> IndexedMessage {
    let event = &recorded.event;
    let changing = changing(event);
    IndexedMessage {
        queue: recorded.shard.queue.to_string(),
        shard: recorded.shard.number.into(),
        id: event.id.to_string(),
        sequence: event.sequence,
        state: changing.state,
        gone: changing.gone,
        version: changing.version,
        priority: changing.priority,
        metadata: event.metadata.pairs().clone(),
        attempts: changing.attempts,
        fencing_token: changing.fencing_token,
        worker: changing.worker.to_owned(),
        reason: changing.reason.to_owned(),
        enqueued_at_ms: event.enqueued_at_ms as i64,
        state_since_ms: changing.since_ms,
        changed_at_ms: changing.changed_at_ms,
        due_ms: changing.due_ms,
        coalesced: changing.coalesced,
        payload: None,
        repaired: false,
        uncertain: false,
        result: event.result.clone(),
    }
}

/// The time in ms that the message spent in the state it left, or so far in the state it stays in. It is 0 if the clock
/// was set back.
pub fn spent_ms(event: &Event) -> u64 {
    match event.from {
        Some(_) => event.at_ms.saturating_sub(event.from_since_ms),
        None => 0,
    }
}
