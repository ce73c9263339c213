//! What happened in one episode: every event that Redis wrote, lost ones included, and what callers saw.

use std::collections::{BTreeMap, BTreeSet};
use tallystone_model::{MessageId, Recorded, Shard, State};

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
    /// The shard.
    pub shard: Shard,
    /// The message.
    pub id: MessageId,
    /// The fencing token.
    pub fencing_token: u64,
    /// The call that got it. Repetitions of a call have its number.
    pub call: u64,
}

/// A transition that a caller was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTransition {
    /// The shard.
    pub shard: Shard,
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
    /// The shard with the configuration.
    pub shard: Shard,
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
    pub acknowledged: Vec<(Shard, MessageId)>,
    /// In order of the replies.
    pub leases: Vec<SeenLease>,
    /// In order of the replies.
    pub transitions: Vec<SeenTransition>,
    /// In order of the replies.
    pub revisions: Vec<SeenRevision>,
    /// The shards of which a failover lost the move to a timeline, so that two timelines continue the same state.
    pub forked: BTreeSet<Shard>,
    /// What is there at the end.
    pub left: BTreeMap<(Shard, MessageId), State>,
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
}
