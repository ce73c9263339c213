//! The answers of the operator's calls: messages, counts, explanations, violations. Times are Unix milliseconds by the
//! store's clock, durations are milliseconds.

use crate::config::QueueInfo;
use crate::error::{Error, Result};
use crate::message::{State, text_or_bytes};
use crate::wire::{from_wire, wire_ms};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as wire;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The token of the next page; empty: this is the last page.
    pub next_page_token: String,
}

/// A queue with its message counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueSummary {
    /// The queue.
    #[serde(flatten)]
    pub queue: QueueInfo,
    /// Its messages by state.
    pub depth: Depth,
    /// The ages of its oldest runnable message and of its oldest lease.
    pub ages: Ages,
}

/// The ages of the oldest runnable message and of the oldest lease of a queue, at the time of the call. Exact with at
/// most 32 different priorities and 128 leases; with more, older messages or leases may exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ages {
    /// The time since the Enqueue of the oldest message that a worker could lease now; `None`: there is none.
    pub oldest_pending_ms: Option<u64>,
    /// The time since the oldest lease began; `None`: there is none.
    pub oldest_lease_ms: Option<u64>,
}

impl Ages {
    pub(crate) fn from_wire(ages: wire::Ages) -> Self {
        let wire::Ages { oldest_pending_ms, oldest_lease_ms } = ages;
        Ages { oldest_pending_ms: oldest_pending_ms.map(from_wire), oldest_lease_ms: oldest_lease_ms.map(from_wire) }
    }
}

/// Numbers of messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// Not visible to Dequeue yet.
    pub invisible: u64,
    /// Waiting for a worker.
    pub pending: u64,
    /// Leased to a worker.
    pub running: u64,
    /// Ended with success, and not removed yet.
    pub completed: u64,
    /// Ended by Cancel, and not removed yet.
    pub canceled: u64,
    /// Ended because their attempts were spent, and not removed yet.
    pub errored: u64,
}

impl Depth {
    /// Invisible, pending and running.
    pub fn live(&self) -> u64 {
        self.invisible + self.pending + self.running
    }

    /// Messages in any state.
    pub fn total(&self) -> u64 {
        self.live() + self.completed + self.canceled + self.errored
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
    /// Whether messages are left. If so, call again.
    pub more: bool,
}

/// A message as it is stored now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: State,
    /// Each write raises it by one.
    pub version: u32,
    /// Its payload.
    #[serde(serialize_with = "text_or_bytes")]
    pub payload: Bytes,
    /// Its current priority.
    pub priority: i64,
    /// The priority class that set its first priority, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Its own lease length; `None`: the queue's applies.
    pub lease_ms: Option<u64>,
    /// Its own invisibility; `None`: the queue's applied.
    pub invisibility_ms: Option<u64>,
    /// Its own maximum of attempts, else the queue's.
    pub max_attempts: u32,
    /// Attempts spent, the current run included.
    pub attempts: u32,
    /// When it was accepted.
    pub enqueued_at_ms: u64,
    /// When it entered its current state.
    pub state_since_ms: u64,
    /// When it leaves its state by itself. Invisible: becomes visible. Running: the lease expires. Ended: it is removed.
    /// Pending: 0.
    pub due_ms: u64,
    /// The current or last lease's fencing token; 0 before the first lease.
    pub fencing_token: u64,
    /// The worker that holds or held that lease.
    pub worker: String,
    /// The last reason given by Release or Cancel, or "lease expired".
    pub reason: String,
    /// It is running, and returns to pending when it completes.
    pub coalesced: bool,
    /// The result that its worker gave when it completed; empty: none.
    #[serde(serialize_with = "text_or_bytes", skip_serializing_if = "Bytes::is_empty")]
    pub result: Bytes,
    /// Its last attempts, at most 20, the oldest first; only from [`Client::get_message`](crate::Client::get_message).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_attempts: Vec<Attempt>,
}

/// One attempt of a message: one lease, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// 1 for the first; counted from 1 again after a redrive, and after a run that follows from coalescing.
    pub number: u32,
    /// The fencing token of its lease.
    pub fencing_token: u64,
    /// The worker that held the lease.
    pub worker: String,
    /// When it began, in Unix ms.
    pub leased_at_ms: u64,
    /// When it ended, in Unix ms; 0: it runs.
    pub ended_at_ms: u64,
    /// The state in which it left the message; running: it runs.
    pub state: State,
    /// Why it ended; may be empty.
    pub reason: String,
}

impl Attempt {
    fn from_wire(attempt: wire::Attempt) -> Result<Self> {
        Ok(Attempt {
            state: known_state(attempt.state)?,
            number: u32::try_from(attempt.number).unwrap_or(0),
            fencing_token: attempt.fencing_token,
            worker: attempt.worker,
            leased_at_ms: from_wire(attempt.leased_at_ms),
            ended_at_ms: from_wire(attempt.ended_at_ms),
            reason: attempt.reason,
        })
    }
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
            priority_class: Some(message.priority_class).filter(|class| !class.is_empty()),
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
            result: message.result,
            last_attempts: message.last_attempts.into_iter().map(Attempt::from_wire).collect::<Result<_>>()?,
        })
    }
}

fn known_state(state: i32) -> Result<State> {
    State::from_wire(state).ok_or_else(|| Error::Protocol(format!("unknown state {state}")))
}

/// The arguments of [`Client::update_message`](crate::Client::update_message). `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessagePatch {
    /// Its new priority.
    pub priority: Option<i64>,
    /// It stays invisible until this time, in Unix ms; a time in the past makes it pending now. Refused for a running
    /// message.
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
    /// What keeps it from running, the decisive one first.
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
    /// What it is.
    pub kind: HindranceKind,
    /// One sentence for a person.
    pub text: String,
    /// The message in the way; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocking_id: String,
    /// The worker that holds the lease in the way; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worker: String,
    /// When the hindrance ends by itself, in Unix ms; 0: it does not, or the time is unknown.
    pub until_ms: u64,
}

/// What keeps a message from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HindranceKind {
    /// A kind that this client does not know. The text explains it.
    Unknown,
    /// It runs already.
    Running,
    /// Another running message holds its exclusivity value.
    KeyLocked,
    /// A more urgent message of the same exclusivity value goes first.
    BehindInKey,
    /// It is invisible.
    Invisible,
    /// The queue is paused.
    QueuePaused,
    /// It is runnable, and no worker has taken it yet.
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

/// The result of one step of [`Client::check_queue`](crate::Client::check_queue).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckStep {
    /// Where to continue; empty: the check is finished.
    pub cursor: String,
    /// Entries checked in this step. A message has one or more entries.
    pub checked: u64,
    /// Invariants that do not hold.
    pub violations: Vec<Violation>,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Its number, such as "I3".
    pub invariant: String,
    /// Where, and how it is broken.
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
