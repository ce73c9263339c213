//! Questions about what happened, one method per RPC, and their answers. Times are Unix milliseconds by the store's
//! clock, durations milliseconds; ranges are half open.

use crate::client::{Client, from_wire, wire_count, wire_ms};
use crate::connection::rpc;
use crate::error::Result;
use crate::inspect::Depth;
use crate::message::{State, text_or_bytes};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_proto::event::v1::Cause;
use tallystone_proto::history::v1 as wire;
use tokio::time::Instant;

/// Between two looks at the watermark.
const CATCH_UP_POLL: Duration = Duration::from_millis(50);

/// How far an answer goes: history is written after the fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Watermark {
    /// Every transition up to here is in the answer; `None`: nothing is known yet.
    pub indexed_to_ms: Option<u64>,
    /// How long ago that was, by the answering server's clock.
    pub behind_ms: Option<u64>,
}

/// One transition of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TracedTransition {
    /// The message's version after it.
    pub version: u32,
    /// The state left; `None`: it was not there.
    pub from: Option<State>,
    /// The state entered; `None`: it is gone.
    pub to: Option<State>,
    /// When.
    pub at_ms: u64,
    /// The present or last lease's holder.
    pub worker: String,
    /// Given with it.
    pub reason: String,
    /// What did it, such as `dequeue` or `lease_expired`.
    pub by: String,
    /// Time spent in the state left; where the state has not changed, so far.
    pub spent_ms: u64,
    /// Attempts spent.
    pub attempt: u32,
    /// The present or last lease's; 0 before the first.
    pub fencing_token: u64,
    /// Invisible: visible at; running: lease expires at; else 0.
    pub due_ms: u64,
    /// Present priority.
    pub priority: i64,
    /// Tells apart messages that had the same id one after the other.
    pub sequence: u64,
}

/// Versions that should be there and are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Of which message.
    pub sequence: u64,
    /// From this version on,
    pub first_version: u32,
    /// to this one.
    pub last_version: u32,
}

/// The transitions of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// In order.
    pub transitions: Vec<TracedTransition>,
    /// Between them.
    pub gaps: Vec<Gap>,
    /// The message as its newest transition left it; `None`: history does not know it.
    pub message: Option<IndexedMessage>,
    /// Asks for the next page; empty: there is none.
    pub next_page_token: String,
    /// How far the answer goes.
    pub watermark: Watermark,
}

/// Which messages to find. What is empty, zero or `None` means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The queue.
    pub queue: String,
    /// The id.
    pub id: String,
    /// Any of these.
    pub states: Vec<State>,
    /// All of these pairs.
    pub metadata: BTreeMap<String, String>,
    /// Of the present or last lease.
    pub worker: String,
    /// Part of the last reason given, in either case.
    pub reason_contains: String,
    /// The last transition happened then or later.
    pub changed_from_ms: u64,
    /// The last transition happened before.
    pub changed_to_ms: u64,
    /// Collected messages, too.
    pub include_gone: bool,
    /// Messages on a page; 0 is the server's default.
    pub page_size: u32,
    /// Of the same search; empty: the first page.
    pub page_token: String,
}

/// A message as the newest indexed transition left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexedMessage {
    /// Its queue.
    pub queue: String,
    /// Its id.
    pub id: String,
    /// Tells it apart from others of the same id.
    pub sequence: u64,
    /// Its state; the last one, if it is gone.
    pub state: Option<State>,
    /// Collected: no longer in the queue.
    pub gone: bool,
    /// Raised by one with every write.
    pub version: u32,
    /// Its present priority.
    pub priority: i64,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Spent so far.
    pub attempts: u32,
    /// The last lease's; 0 before the first.
    pub fencing_token: u64,
    /// The last lease's holder.
    pub worker: String,
    /// The last one given.
    pub reason: String,
    /// When it was accepted.
    pub enqueued_at_ms: u64,
    /// When it came into its state.
    pub state_since_ms: u64,
    /// When its last transition was.
    pub changed_at_ms: u64,
    /// Invisible: visible at; running: lease expires at; else 0.
    pub due_ms: u64,
    /// Running, and will be pending again when it completes.
    pub coalesced: bool,
    /// Its begin, of a trace, where the server keeps it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_nothing")]
    pub payload: Option<Bytes>,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Latest enqueued first.
    pub messages: Vec<IndexedMessage>,
    /// Asks for the next page; empty: there is none.
    pub next_page_token: String,
    /// How far the answer goes.
    pub watermark: Watermark,
}

/// What happened in a queue in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Its begin.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// Of every state that was entered or left.
    pub states: Vec<StateActivity>,
    /// Why messages were released, canceled, lost their lease or errored: the commonest first.
    pub reasons: Vec<ReasonCount>,
}

/// One state's part in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateActivity {
    /// The state.
    pub state: Option<State>,
    /// Transitions into it.
    pub entered: u64,
    /// The same per second.
    pub entered_per_s: f64,
    /// Transitions out of it.
    pub left: u64,
    /// Time that those who left it had spent in it: half of them at most so long,
    pub p50_ms: u64,
    /// nine of ten,
    pub p90_ms: u64,
    /// ninety-nine of a hundred,
    pub p99_ms: u64,
    /// all.
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

/// What [`Client::queue_stats`] answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueStats {
    /// Of the whole span.
    pub total: Activity,
    /// Of its parts, if asked for.
    pub intervals: Vec<Activity>,
    /// How far the answer goes.
    pub watermark: Watermark,
}

impl Client {
    /// Every transition of the messages that have or had this id, in order. `sequence` 0: of all of them; `limit` 0: the
    /// server's default. The first page has the empty token.
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
        let response = self.patience.call(Duration::ZERO, request, rpc!(self.history, trace_message)).await?;
        let gap = |gap: wire::Gap| Gap {
            sequence: gap.sequence,
            first_version: gap.first_version,
            last_version: gap.last_version,
        };
        Ok(Trace {
            transitions: response.transitions.into_iter().map(TracedTransition::from_wire).collect(),
            gaps: response.gaps.into_iter().map(gap).collect(),
            message: response.message.map(IndexedMessage::from_wire),
            next_page_token: response.next_page_token,
            watermark: Watermark::from_wire(response.watermark),
        })
    }

    /// Messages by anything that history knows of them.
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
        let response = self.patience.call(Duration::ZERO, request, rpc!(self.history, search_messages)).await?;
        Ok(Found {
            messages: response.messages.into_iter().map(IndexedMessage::from_wire).collect(),
            next_page_token: response.next_page_token,
            watermark: Watermark::from_wire(response.watermark),
        })
    }

    /// How messages went through a queue. `to_ms` 0: until now; `from_ms` 0: an hour before; `interval_ms` 0: no parts.
    pub async fn queue_stats(&self, queue: &str, from_ms: u64, to_ms: u64, interval_ms: u64) -> Result<QueueStats> {
        let request = wire::QueueStatsRequest {
            queue: queue.to_owned(),
            from_ms: wire_ms(from_ms),
            to_ms: wire_ms(to_ms),
            interval_ms: wire_ms(interval_ms),
        };
        let response = self.patience.call(Duration::ZERO, request, rpc!(self.history, queue_stats)).await?;
        Ok(QueueStats {
            total: Activity::from_wire(response.total.unwrap_or_default()),
            intervals: response.intervals.into_iter().map(Activity::from_wire).collect(),
            watermark: Watermark::from_wire(response.watermark),
        })
    }

    /// Messages by state under any metadata, as far as history knows.
    pub async fn indexed_depth(&self, queue: &str, metadata: BTreeMap<String, String>) -> Result<(Depth, Watermark)> {
        let request = wire::IndexedDepthRequest { queue: queue.to_owned(), metadata };
        let depth = self.patience.call(Duration::ZERO, request, rpc!(self.history, indexed_depth)).await?;
        Ok((Depth::from_wire(depth.counts.unwrap_or_default()), Watermark::from_wire(depth.watermark)))
    }
}

impl Client {
    /// Waits until history has all that had happened when this was called. `false`: not within so long.
    pub async fn history_caught_up(&self, within: Duration) -> Result<bool> {
        let give_up_at = Instant::now() + within;
        let mut target_ms = None;
        loop {
            // The watermark is of all queues, whichever is asked about.
            let (_, watermark) = self.indexed_depth("any", BTreeMap::new()).await?;
            if let (Some(indexed_to_ms), Some(now_ms)) = (watermark.indexed_to_ms, watermark.answered_at_ms())
                && indexed_to_ms >= *target_ms.get_or_insert(now_ms)
            {
                return Ok(true);
            }
            if Instant::now() >= give_up_at {
                return Ok(false);
            }
            tokio::time::sleep(CATCH_UP_POLL).await;
        }
    }
}

impl Watermark {
    /// When the answer was given, by the answering server's clock.
    pub fn answered_at_ms(&self) -> Option<u64> {
        Some(self.indexed_to_ms? + self.behind_ms?)
    }

    fn from_wire(watermark: Option<wire::Watermark>) -> Self {
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
            payload: message.payload,
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
