//! What the operator's calls answer: messages as they stand, counts, explanations, violations. Times are Unix
//! milliseconds by the store's clock, durations milliseconds.

use crate::client::{from_wire, wire_ms};
use crate::config::QueueInfo;
use crate::error::{Error, Result};
use crate::message::{State, text_or_bytes};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as wire;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Asks for the next page; empty: there is none.
    pub next_page_token: String,
}

/// A queue and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueSummary {
    /// The queue.
    #[serde(flatten)]
    pub queue: QueueInfo,
    /// Its messages by state.
    pub depth: Depth,
}

/// Messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// Not yet visible.
    pub invisible: u64,
    /// Waiting.
    pub pending: u64,
    /// Leased.
    pub running: u64,
    /// Ended well, not yet collected.
    pub completed: u64,
    /// Taken out, not yet collected.
    pub canceled: u64,
    /// Attempts spent, not yet collected.
    pub errored: u64,
}

impl Depth {
    /// Invisible, pending and running.
    pub fn live(&self) -> u64 {
        self.invisible + self.pending + self.running
    }

    pub(crate) fn from_wire(counts: wire::StateCounts) -> Self {
        let wire::StateCounts { invisible, pending, running, completed, canceled, errored } = counts;
        Depth { invisible, pending, running, completed, canceled, errored }
    }
}

/// One step of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Messages removed in this step.
    pub purged: u64,
    /// Whether messages are left: call again.
    pub more: bool,
}

/// A message as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: State,
    /// Raised by one with every write.
    pub version: u32,
    /// Its payload.
    #[serde(serialize_with = "text_or_bytes")]
    pub payload: Bytes,
    /// Its present priority.
    pub priority: i64,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Its own lease, if it has one.
    pub lease_ms: Option<u64>,
    /// Its own invisibility, if it has one.
    pub invisibility_ms: Option<u64>,
    /// Its own bound, or the queue's.
    pub max_attempts: u32,
    /// Spent so far; the current run counts.
    pub attempts: u32,
    /// When it was accepted.
    pub enqueued_at_ms: u64,
    /// When it came into its present state.
    pub state_since_ms: u64,
    /// Invisible: visible at; running: lease expires at; ended: collected at. Else 0.
    pub due_ms: u64,
    /// The last lease's; 0 before the first.
    pub fencing_token: u64,
    /// The last lease's holder.
    pub worker: String,
    /// The last reason given by Release or Cancel, or "lease expired".
    pub reason: String,
    /// Running, and will be pending again when it completes.
    pub coalesced: bool,
}

impl Message {
    pub(crate) fn from_wire(message: wire::Message) -> Result<Self> {
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        Ok(Message {
            state: known_state(message.state)?,
            id: message.id,
            version: message.version,
            payload: message.payload,
            priority: message.priority,
            metadata: message.metadata,
            lease_ms: message.lease_ms.map(from_wire),
            invisibility_ms: message.invisibility_ms.map(from_wire),
            max_attempts: count(message.max_attempts),
            attempts: count(message.attempts),
            enqueued_at_ms: from_wire(message.enqueued_at_ms),
            state_since_ms: from_wire(message.state_since_ms),
            due_ms: from_wire(message.due_ms),
            fencing_token: message.fencing_token,
            worker: message.worker,
            reason: message.reason,
            coalesced: message.coalesced,
        })
    }
}

fn known_state(state: i32) -> Result<State> {
    State::from_wire(state).ok_or_else(|| Error::Protocol(format!("unknown state {state}")))
}

/// What to change of a message that has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagePatch {
    /// Its new priority.
    pub priority: Option<i64>,
    /// Invisible until then (Unix ms); past: visible now. Not for running messages.
    pub visible_at_ms: Option<u64>,
}

impl MessagePatch {
    pub(crate) fn into_wire(self, queue: &str, id: &str) -> wire::UpdateMessageRequest {
        wire::UpdateMessageRequest {
            queue: queue.to_owned(),
            id: id.to_owned(),
            priority: self.priority,
            visible_at_ms: self.visible_at_ms.map(wire_ms),
        }
    }
}

/// Why a message is not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The message.
    pub message: Message,
    /// What keeps it, most telling first; empty: nothing.
    pub hindrances: Vec<Hindrance>,
    /// Runnable messages more urgent than this one.
    pub ahead: u64,
}

impl Explanation {
    pub(crate) fn from_wire(response: wire::ExplainResponse) -> Result<Self> {
        let message = response.message.ok_or_else(|| Error::Protocol("an explanation of no message".to_owned()))?;
        Ok(Explanation {
            message: Message::from_wire(message)?,
            hindrances: response.hindrances.into_iter().map(Hindrance::from_wire).collect(),
            ahead: from_wire(response.ahead),
        })
    }
}

/// One thing that keeps a message from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hindrance {
    /// Which.
    pub kind: HindranceKind,
    /// One sentence for a person.
    pub text: String,
    /// The message in the way, if one is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocking_id: String,
    /// Who holds it, if someone does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// Until when; 0: unknown.
    pub until_ms: u64,
}

/// What keeps a message from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HindranceKind {
    /// A kind that this client does not know; the text says what it is.
    Unknown,
    /// It runs now.
    Running,
    /// Its exclusivity value is held by another message.
    KeyLocked,
    /// A more urgent message of the same value goes first.
    BehindInKey,
    /// It is not visible yet.
    Invisible,
    /// The queue gives nothing out.
    QueuePaused,
    /// More urgent messages are ahead of it; no worker has asked for it yet.
    WaitingForWorker,
    /// It ended.
    Terminal,
    /// It ended because its attempts were spent.
    NoAttemptsLeft,
}

impl Hindrance {
    fn from_wire(hindrance: wire::Hindrance) -> Self {
        use wire::hindrance::Kind;
        let kind = match hindrance.kind() {
            Kind::Unspecified => HindranceKind::Unknown,
            Kind::Running => HindranceKind::Running,
            Kind::KeyLocked => HindranceKind::KeyLocked,
            Kind::BehindInKey => HindranceKind::BehindInKey,
            Kind::Invisible => HindranceKind::Invisible,
            Kind::QueuePaused => HindranceKind::QueuePaused,
            Kind::WaitingForWorker => HindranceKind::WaitingForWorker,
            Kind::Terminal => HindranceKind::Terminal,
            Kind::NoAttemptsLeft => HindranceKind::NoAttemptsLeft,
        };
        let wire::Hindrance { text, blocking_id, worker, until_ms, .. } = hindrance;
        Hindrance { kind, text, blocking_id, worker, until_ms: from_wire(until_ms) }
    }
}

/// One bounded step of the scrubber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckStep {
    /// Where to go on; empty: the walk is done.
    pub cursor: String,
    /// Messages looked at.
    pub checked: u64,
    /// What is wrong.
    pub violations: Vec<Violation>,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Its number, "I3".
    pub invariant: String,
    /// Where and how.
    pub detail: String,
}

impl CheckStep {
    pub(crate) fn from_wire(response: wire::CheckQueueResponse) -> Self {
        let violation = |wire::Violation { invariant, detail }| Violation { invariant, detail };
        CheckStep {
            cursor: response.cursor,
            checked: from_wire(response.checked),
            violations: response.violations.into_iter().map(violation).collect(),
        }
    }
}
