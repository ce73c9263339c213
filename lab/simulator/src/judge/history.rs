//! What happened in one episode: every event that Redis wrote, lost ones included, and what callers saw.

use std::collections::{BTreeMap, BTreeSet};
use tallystone_model::{Event, MessageId, QueueName, Recorded, Shard, State};

/// The metadata key whose values are exclusive in the queues of an episode. A simple queue's messages do not have it.
pub const EXCLUSIVITY_KEY: &str = "value";

/// A message of a queue, in any of its shards: its id, and its exclusivity value if it has one. Shards of an exclusive queue may have messages
/// of one id and different values.
pub type QueueMessage = (QueueName, MessageId, Option<String>);

/// One event as Redis wrote it.
#[derive(Clone, Debug)]
pub struct Written {
    /// The number of the write, in order of execution.
    pub write: u64,
    /// When: ms since the start of the episode, which no clock of it shows.
    pub elapsed_ms: u64,
    /// By how much the clocks of primaries had been set in all before, in either direction, in ms.
    pub redis_set_ms: u64,
    /// A failover lost this write.
    pub is_lost: bool,
    /// The event.
    pub recorded: Recorded,
}

/// A lease that a caller got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLease {
    /// The queue.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// The fencing token, which names the shard.
    pub fencing_token: u64,
    /// The call that got it. Repetitions of a call have its number.
    pub call: u64,
}

/// A transition that a caller was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTransition {
    /// The queue.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// Its state after the transition.
    pub state: State,
    /// Its version after the transition.
    pub version: u32,
    /// The fencing token with which the caller ended a lease; `None`: the call was about no lease.
    pub lease: Option<u64>,
}

/// A configuration that a caller was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRevision {
    /// The queue.
    pub queue: QueueName,
    /// The revision.
    pub revision: u32,
    /// The configuration, as text.
    pub config: String,
}

/// One episode, as the judge reads it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In order of execution.
    pub written: Vec<Written>,
    /// Messages whose Enqueue was acknowledged.
    pub acknowledged: Vec<(QueueName, MessageId)>,
    /// In order of the replies.
    pub leases: Vec<SeenLease>,
    /// In order of the replies.
    pub transitions: Vec<SeenTransition>,
    /// In order of the replies.
    pub revisions: Vec<SeenRevision>,
    /// The shards of which a failover lost the move to a timeline, so that two timelines continue the same state.
    pub forked: BTreeSet<Shard>,
    /// What the queues list at the end.
    pub left: BTreeMap<QueueMessage, State>,
    /// What the scrubber found at the end.
    pub violations: Vec<String>,
    /// What could not be read at the end, or made no sense at any time.
    pub failures: Vec<String>,
}

impl History {
    /// The events that no failover lost.
    pub(crate) fn surviving(&self) -> impl Iterator<Item = &Recorded> {
        self.written.iter().filter(|written| !written.is_lost).map(|written| &written.recorded)
    }

    /// The leases that callers saw.
    pub(crate) fn seen_leases(&self) -> BTreeSet<LeaseName<'_>> {
        self.leases.iter().map(|lease| (&lease.queue, &lease.id, lease.fencing_token)).collect()
    }
}

/// A lease as callers name it: the queue, the message, the fencing token.
pub(crate) type LeaseName<'a> = (&'a QueueName, &'a MessageId, u64);

/// The lease that an event is about.
pub(crate) fn lease_of(recorded: &Recorded) -> LeaseName<'_> {
    (&recorded.shard.queue, &recorded.event.id, recorded.event.fencing_token)
}

/// Whether an event grants one of these leases.
pub(crate) fn is_seen_grant<'a>(recorded: &'a Recorded, seen: &BTreeSet<LeaseName<'a>>) -> bool {
    let event = &recorded.event;
    event.to == Some(State::Running) && event.from == Some(State::Pending) && seen.contains(&lease_of(recorded))
}

/// The message of an event.
pub(crate) fn message_of(recorded: &Recorded) -> QueueMessage {
    (recorded.shard.queue.clone(), recorded.event.id.clone(), value_of(&recorded.event).map(str::to_owned))
}

/// The exclusivity value of the message of an event.
pub(crate) fn value_of(event: &Event) -> Option<&str> {
    event.metadata.get(EXCLUSIVITY_KEY)
}
