//! Queries about what happened to messages, one method per RPC, and their answers. Times are Unix milliseconds by the
//! store's clock, durations are milliseconds; ranges include their start and exclude their end.

use crate::calls::rpc;
use crate::client::Client;
use crate::error::Result;
use crate::message::{State, text_or_bytes};
use crate::wire::{from_wire, wire_count, wire_ms};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_proto::event::v1::Cause;
use tallystone_proto::history::v1 as wire;

/// How current an answer is. History is written after the fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Watermark {
    /// The answer has every transition up to this time; `None`: nothing is indexed yet.
    pub indexed_to_ms: Option<u64>,
    /// The age of `indexed_to_ms`, by the answering server's clock.
    pub behind_ms: Option<u64>,
}

/// One transition of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TracedTransition {
    /// The message's version after the transition.
    pub version: u32,
    /// The state left; `None`: the message did not exist before.
    pub from: Option<State>,
    /// The state entered; `None`: the message no longer exists.
    pub to: Option<State>,
    /// When it happened.
    pub at_ms: u64,
    /// The worker that holds or held the lease.
    pub worker: String,
    /// The reason given with the transition.
    pub reason: String,
    /// The cause, such as `dequeue` or `lease_expired`.
    pub by: String,
    /// Time spent in the state left; if the state has not changed, the time spent in it so far.
    pub spent_ms: u64,
    /// Attempts spent.
    pub attempt: u32,
    /// The current or last lease's fencing token; 0 before the first lease.
    pub fencing_token: u64,
    /// When it leaves its state by itself. Invisible: becomes visible. Running: the lease expires. Else 0.
    pub due_ms: u64,
    /// The message's priority after the transition.
    pub priority: i64,
    /// Distinguishes messages that had the same id one after the other.
    pub sequence: u64,
    /// The result that the worker gave with this transition to completed; empty: none. Only the newest message of the id has
    /// it.
    #[serde(skip_serializing_if = "Bytes::is_empty", serialize_with = "text_or_bytes")]
    pub result: Bytes,
}

/// Versions that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Of which message.
    pub sequence: u64,
    /// The first missing version.
    pub first_version: u32,
    /// The last missing version.
    pub last_version: u32,
}

/// The transitions of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Ordered by message, then version.
    pub transitions: Vec<TracedTransition>,
    /// Versions missing among them.
    pub gaps: Vec<Gap>,
    /// The message as the newest indexed transition left it; `None`: history knows no such message.
    pub message: Option<IndexedMessage>,
    /// The token of the next page; empty: this is the last page.
    pub next_page_token: String,
    /// How current the answer is.
    pub watermark: Watermark,
}

/// The arguments of [`Client::search_messages`]. A message must match every field; an empty or zero field matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The queue.
    pub queue: String,
    /// The id.
    pub id: String,
    /// It is in one of these states.
    pub states: Vec<State>,
    /// Its metadata has every pair; up to 4.
    pub metadata: BTreeMap<String, String>,
    /// The worker that holds or held its lease.
    pub worker: String,
    /// A part of the last reason given; the case of ASCII letters does not matter.
    pub reason_contains: String,
    /// Its last transition happened at this time or later.
    pub changed_from_ms: u64,
    /// Its last transition happened before this time.
    pub changed_to_ms: u64,
    /// Also messages that are no longer in the queue.
    pub include_gone: bool,
    /// Messages per page, up to 1,000; 0: 100.
    pub page_size: u32,
    /// The token of the page, from the same search; empty: the first page.
    pub page_token: String,
}

/// A message as the newest indexed transition left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexedMessage {
    /// Its queue.
    pub queue: String,
    /// Its id.
    pub id: String,
    /// Distinguishes messages that had the same id one after the other.
    pub sequence: u64,
    /// Its state; its last one if it is gone.
    pub state: Option<State>,
    /// It is no longer in the queue.
    pub gone: bool,
    /// Each write raises it by one.
    pub version: u32,
    /// Its priority.
    pub priority: i64,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Attempts spent.
    pub attempts: u32,
    /// The current or last lease's fencing token; 0 before the first lease.
    pub fencing_token: u64,
    /// The worker that holds or held that lease.
    pub worker: String,
    /// The last reason given.
    pub reason: String,
    /// When it was accepted.
    pub enqueued_at_ms: u64,
    /// When it entered its state.
    pub state_since_ms: u64,
    /// When its last transition happened.
    pub changed_at_ms: u64,
    /// When it leaves its state by itself. Invisible: becomes visible. Running: the lease expires. Else 0.
    pub due_ms: u64,
    /// It is running, and returns to pending when it completes.
    pub coalesced: bool,
    /// Transitions of its queue were lost after its newest indexed one, so it may have changed, or be gone.
    pub uncertain: bool,
    /// `history repair` wrote it, because later transitions are lost.
    pub repaired: bool,
    /// Its shard of the queue.
    #[serde(skip)]
    pub shard: u32,
    /// The first bytes of its payload, in a trace, if the server is configured to keep them.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_nothing")]
    pub payload: Option<Bytes>,
    /// The result that its worker gave when it completed; empty: none.
    #[serde(skip_serializing_if = "Bytes::is_empty", serialize_with = "text_or_bytes")]
    pub result: Bytes,
}

/// A page of found messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The last enqueued first.
    pub messages: Vec<IndexedMessage>,
    /// The token of the next page; empty: this is the last page.
    pub next_page_token: String,
    /// How current the answer is.
    pub watermark: Watermark,
}

/// What happened in a queue in a range of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Start of the range.
    pub from_ms: u64,
    /// End of the range.
    pub to_ms: u64,
    /// One for each state that messages entered or left.
    pub states: Vec<StateActivity>,
    /// The reasons given with transitions, the most frequent first; at most 20.
    pub reasons: Vec<ReasonCount>,
}

/// How messages entered and left one state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateActivity {
    /// The state.
    pub state: Option<State>,
    /// Transitions into the state from another one.
    pub entered: u64,
    /// `entered` per second.
    pub entered_per_s: f64,
    /// Transitions from the state to another one, or out of the queue.
    pub left: u64,
    /// Time that the messages that left had spent in the state: the median.
    pub p50_ms: u64,
    /// The 90th percentile of the same.
    pub p90_ms: u64,
    /// The 99th percentile of the same.
    pub p99_ms: u64,
    /// The longest time of the same.
    pub max_ms: u64,
}

/// How often a reason was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonCount {
    /// The reason.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// The answer of [`Client::queue_stats`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueStats {
    /// Of the whole range.
    pub total: Activity,
    /// One for each interval, in order; empty if none were requested.
    pub intervals: Vec<Activity>,
    /// How current the answer is.
    pub watermark: Watermark,
}

impl Client {
    /// Lists every transition of the messages that have or had this id, in order. `sequence` 0: of all of them. `limit`:
    /// transitions per page, 0 for the server's default. The first page has the empty token.
    pub async fn trace_message(
        &self,
        queue: &str,
        id: &str,
        sequence: u64,
        limit: u32,
        page_token: &str,
    ) -> Result<Trace> {
        let (queue, id, page_token) = (queue.to_owned(), id.to_owned(), page_token.to_owned());
        let limit = wire_count(limit);
        let request = wire::TraceMessageRequest { queue, id, sequence, limit, page_token };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.history, trace_message)).await?.response;
        let gap = |gap: wire::Gap| Gap {
            sequence: gap.sequence,
            first_version: gap.first_version,
            last_version: gap.last_version,
        };
        let message = response.message.map(IndexedMessage::from_wire);
        let mut transitions: Vec<_> = response.transitions.into_iter().map(TracedTransition::from_wire).collect();
        // A completed message has completed once: nothing but its collection follows.
        for transition in &mut transitions {
            if transition.to == Some(State::Completed)
                && let Some(message) = message.as_ref().filter(|message| message.sequence == transition.sequence)
            {
                transition.result = message.result.clone();
            }
        }
        Ok(Trace {
            transitions,
            gaps: response.gaps.into_iter().map(gap).collect(),
            message,
            next_page_token: response.next_page_token,
            watermark: Watermark::from_wire(response.watermark),
        })
    }

    /// Finds messages by anything that history knows of them.
    pub async fn search_messages(&self, search: Search) -> Result<Found> {
        let request = wire::SearchMessagesRequest {
            queue: search.queue,
            states: search.states.into_iter().map(|state| state.to_wire().into()).collect(),
            metadata: search.metadata,
            worker: search.worker,
            reason_contains: search.reason_contains,
            changed_from_ms: wire_ms(search.changed_from_ms),
            changed_to_ms: wire_ms(search.changed_to_ms),
            include_gone: search.include_gone,
            id: search.id,
            page_size: wire_count(search.page_size),
            page_token: search.page_token,
        };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.history, search_messages)).await?.response;
        Ok(Found {
            messages: response.messages.into_iter().map(IndexedMessage::from_wire).collect(),
            next_page_token: response.next_page_token,
            watermark: Watermark::from_wire(response.watermark),
        })
    }

    /// Summarizes how messages went through a queue. `to_ms` 0: up to the watermark; `from_ms` 0: an hour before `to_ms`;
    /// `interval_ms` 0: no intervals.
    pub async fn queue_stats(&self, queue: &str, from_ms: u64, to_ms: u64, interval_ms: u64) -> Result<QueueStats> {
        let request = wire::QueueStatsRequest {
            queue: queue.to_owned(),
            from_ms: wire_ms(from_ms),
            to_ms: wire_ms(to_ms),
            interval_ms: wire_ms(interval_ms),
        };
        let response = self.calls.read(Duration::ZERO, request, rpc!(self.history, queue_stats)).await?.response;
        Ok(QueueStats {
            total: Activity::from_wire(response.total.unwrap_or_default()),
            intervals: response.intervals.into_iter().map(Activity::from_wire).collect(),
            watermark: Watermark::from_wire(response.watermark),
        })
    }
}

impl Watermark {
    /// When the answer was given, by the answering server's clock.
    pub fn answered_at_ms(&self) -> Option<u64> {
        Some(self.indexed_to_ms? + self.behind_ms?)
    }

    pub(crate) fn from_wire(watermark: Option<wire::Watermark>) -> Self {
        let watermark = watermark.unwrap_or_default();
        Watermark {
            indexed_to_ms: watermark.indexed_to_ms.map(from_wire),
            behind_ms: watermark.behind_ms.map(from_wire),
        }
    }
}

impl TracedTransition {
    fn from_wire(transition: wire::TracedTransition) -> Self {
        let cause = Cause::try_from(transition.cause).unwrap_or_default();
        TracedTransition {
            version: transition.version,
            from: State::from_wire(transition.from_state),
            to: State::from_wire(transition.to_state),
            at_ms: from_wire(transition.at_ms),
            worker: transition.worker,
            reason: transition.reason,
            by: cause_name(cause),
            spent_ms: from_wire(transition.spent_ms),
            attempt: transition.attempt,
            fencing_token: transition.fencing_token,
            due_ms: from_wire(transition.due_ms),
            priority: transition.priority,
            sequence: transition.sequence,
            result: Bytes::new(),
        }
    }
}

impl IndexedMessage {
    fn from_wire(message: wire::IndexedMessage) -> Self {
        IndexedMessage {
            queue: message.queue,
            id: message.id,
            sequence: message.sequence,
            state: State::from_wire(message.state),
            gone: message.gone,
            version: message.version,
            priority: message.priority,
            metadata: message.metadata,
            attempts: message.attempts,
            fencing_token: message.fencing_token,
            worker: message.worker,
            reason: message.reason,
            enqueued_at_ms: from_wire(message.enqueued_at_ms),
            state_since_ms: from_wire(message.state_since_ms),
            changed_at_ms: from_wire(message.changed_at_ms),
            due_ms: from_wire(message.due_ms),
            coalesced: message.coalesced,
            uncertain: message.uncertain,
            repaired: message.repaired,
            shard: message.shard,
            payload: message.payload,
            result: message.result,
        }
    }
}

impl Activity {
    fn from_wire(activity: wire::Activity) -> Self {
        let state = |state: wire::StateActivity| StateActivity {
            state: State::from_wire(state.state),
            entered: state.entered,
            entered_per_s: state.entered_per_s,
            left: state.left,
            p50_ms: from_wire(state.p50_ms),
            p90_ms: from_wire(state.p90_ms),
            p99_ms: from_wire(state.p99_ms),
            max_ms: from_wire(state.max_ms),
        };
        let reason = |reason: wire::ReasonCount| ReasonCount { reason: reason.reason, count: reason.count };
        Activity {
            from_ms: from_wire(activity.from_ms),
            to_ms: from_wire(activity.to_ms),
            states: activity.states.into_iter().map(state).collect(),
            reasons: activity.reasons.into_iter().map(reason).collect(),
        }
    }
}

/// `dequeue` for `CAUSE_DEQUEUE`.
fn cause_name(cause: Cause) -> String {
    cause.as_str_name().trim_start_matches("CAUSE_").to_lowercase()
}

fn text_or_nothing<S: serde::Serializer>(payload: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    match payload {
        Some(payload) => text_or_bytes(payload, serializer),
        None => serializer.serialize_none(),
    }
}
