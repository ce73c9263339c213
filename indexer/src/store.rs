//! The contract of a history store. Elasticsearch and SQLite implement it; one conformance suite runs on both
//! (Q20, Q21).

use std::collections::{BTreeMap, BTreeSet};
use tallystone_model::names::INTERNAL_QUEUES;
use tallystone_model::{Loss, MessageId, QueueName, Recorded, State};
use tallystone_proto::history::v1::{Activity, IndexedMessage, TracedTransition};

/// The last millisecond of the year 2200. A later time comes from a broken clock.
pub const TIME_MS_MAX: u64 = 7_289_654_399_999;

/// Why a call of a history store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The store does not respond, or is overloaded: the same call may succeed later. Its writes may have happened.
    #[error("the history store is unavailable: {0}")]
    Unavailable(String),
    /// The store responds with an error that no retry mends.
    #[error("the history store failed: {0}")]
    Failed(String),
}

/// An event that a store can never hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its index in the events of the call.
    pub index: usize,
    /// The store's reason.
    pub why: String,
}

/// One of the streams that fill a store: a partition of the topic, or the only relay of an embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// From 0.
    pub number: u32,
    /// The number of sources.
    pub of: u32,
}

/// Which transitions to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceQuery {
    /// The queue.
    pub queue: QueueName,
    /// The message's id.
    pub id: MessageId,
    /// The sequence of one message; `None`: all messages that had the id, one after the other.
    pub sequence: Option<u64>,
    /// The most transitions to return; at least 1.
    pub limit: usize,
    /// Only those after this sequence and version.
    pub after: Option<(u64, u32)>,
}

/// The result of a [`TraceQuery`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order of sequence, then version.
    pub transitions: Vec<TracedTransition>,
    /// Whether there are more than the limit.
    pub more: bool,
    /// The newest of the requested messages after its newest transition, with its payload.
    pub message: Option<IndexedMessage>,
}

/// Which messages to return. Absent and empty fields match every message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// In these queues.
    pub queues: Queues,
    /// One of these states.
    pub states: BTreeSet<State>,
    /// All of these pairs.
    pub metadata: BTreeMap<String, String>,
    /// The worker of the current or last lease.
    pub worker: String,
    /// Part of the last reason. ASCII letters match in either case, other characters exactly.
    pub reason_contains: String,
    /// The last transition happened at this time or later, Unix ms.
    pub changed_from_ms: Option<u64>,
    /// The last transition happened before this time, Unix ms.
    pub changed_to_ms: Option<u64>,
    /// Whether to return messages that are gone.
    pub include_gone: bool,
    /// The id.
    pub id: Option<MessageId>,
    /// The most messages to return; at least 1.
    pub limit: usize,
    /// Only messages after this position.
    pub after: Option<SearchPosition>,
}

/// The position of a message in the order of a search: latest enqueued first, then highest sequence, then by queue and
/// shard. A position never changes, so pages neither repeat nor omit a message that exists all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPosition {
    /// The time it was enqueued, Unix ms.
    pub enqueued_at_ms: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Its queue.
    pub queue: String,
    /// Its shard.
    pub shard: u16,
}

impl SearchPosition {
    /// The position of this message.
    pub fn of(message: &IndexedMessage) -> SearchPosition {
        SearchPosition {
            enqueued_at_ms: message.enqueued_at_ms as u64,
            sequence: message.sequence,
            queue: message.queue.clone(),
            shard: message.shard as u16,
        }
    }
}

/// A span of a queue's activity: `from_ms` is in it, `to_ms` is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsQuery {
    /// The queue.
    pub queue: QueueName,
    /// The start of the span, Unix ms.
    pub from_ms: u64,
    /// The end of the span, Unix ms; later than its start.
    pub to_ms: u64,
    /// The length of its intervals in ms, the last of which may be shorter; `None`: no intervals.
    pub interval_ms: Option<u64>,
}

/// One queue, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queues {
    /// This queue.
    One(QueueName),
    /// The queues whose names begin so; empty: all queues.
    WithPrefix(String),
    /// The same, except internal queues.
    NotInternal(String),
}

impl Default for Queues {
    /// All queues.
    fn default() -> Queues {
        Queues::WithPrefix(String::new())
    }
}

impl Queues {
    /// Whether the queue of this name is one of them.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Queues::One(queue) => queue.as_str() == name,
            Queues::WithPrefix(prefix) => name.starts_with(prefix),
            Queues::NotInternal(prefix) => name.starts_with(prefix) && !name.starts_with(INTERNAL_QUEUES),
        }
    }
}

/// Which messages to count. Absent and empty fields match every message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepthQuery {
    /// Of these queues.
    pub queues: Queues,
    /// All of these pairs.
    pub metadata: BTreeMap<String, String>,
    /// The priority is not below this.
    pub priority_min: Option<i64>,
    /// The priority is not above this.
    pub priority_max: Option<i64>,
    /// Enqueued at this time or later, Unix ms.
    pub enqueued_from_ms: Option<u64>,
    /// Enqueued before this time, Unix ms.
    pub enqueued_to_ms: Option<u64>,
    /// Only messages that one of these losses makes uncertain.
    pub uncertain_by: Option<Vec<Loss>>,
}

impl DepthQuery {
    /// All messages of these queues.
    pub fn of(queues: Queues) -> DepthQuery {
        DepthQuery {
            queues,
            metadata: BTreeMap::new(),
            priority_min: None,
            priority_max: None,
            enqueued_from_ms: None,
            enqueued_to_ms: None,
            uncertain_by: None,
        }
    }
}

/// By what to group counted messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// By their queue.
    Queue,
    /// By their value of this metadata key. Messages without it are in no group.
    Key(String),
}

/// Which groups to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// By what.
    pub by: GroupBy,
    /// Only groups whose value is after this one.
    pub after: Option<String>,
    /// The most groups to return; at least 1.
    pub limit: usize,
}

/// A history store. Queries find an event at the latest after a call of [`advance`](HistoryStore::advance) that began
/// after its write has returned.
pub trait HistoryStore: Send + Sync + 'static {
    /// Writes events, in any order and any number of times: the same set of events leaves the same documents, byte for
    /// byte. Returns once all events are durable, except the rejected ones. After an error any of them may be durable.
    fn record(&self, events: &[Recorded]) -> impl Future<Output = Result<Vec<Rejected>, HistoryError>> + Send;

    /// Writes losses, in any order and any number of times. Of each shard the latest is kept. Returns once they are durable.
    fn record_losses(&self, losses: &[Loss]) -> impl Future<Output = Result<(), HistoryError>> + Send;

    /// The losses of these queues that are not settled, in any order, at most one of each shard.
    fn losses(&self, queues: &Queues) -> impl Future<Output = Result<Vec<Loss>, HistoryError>> + Send;

    /// Removes losses, except those of shards with a later one.
    fn settle_losses(&self, losses: &[Loss]) -> impl Future<Output = Result<(), HistoryError>> + Send;

    /// Replaces messages that the store has with an earlier version, and marks them as repaired. An event of the same
    /// version, or a later one, replaces them again. Returns for each whether the store has it like this now: false
    /// also of one that can never be written. Once this has returned, the others are durable; queries find them after the
    /// next [`advance`](HistoryStore::advance).
    fn repair(&self, messages: &[IndexedMessage]) -> impl Future<Output = Result<Vec<bool>, HistoryError>> + Send;

    /// Makes all events of the source before `up_to_ms` (Unix ms) visible to queries, then stores `up_to_ms` as the
    /// source's watermark. The caller has recorded them. A watermark never decreases.
    fn advance(&self, source: Source, up_to_ms: u64) -> impl Future<Output = Result<(), HistoryError>> + Send;

    /// The lowest watermark of all sources, Unix ms: queries return every transition before it. `None`: at least one
    /// source has no watermark yet.
    fn watermark(&self) -> impl Future<Output = Result<Option<u64>, HistoryError>> + Send;

    /// The transitions of an id, in the order of sequence and version.
    fn trace(&self, query: &TraceQuery) -> impl Future<Output = Result<Trace, HistoryError>> + Send;

    /// Messages in the order of [`SearchPosition`], without payloads.
    fn search(&self, query: &SearchQuery) -> impl Future<Output = Result<Vec<IndexedMessage>, HistoryError>> + Send;

    /// The whole span, then its intervals in order, empty ones included. States are in the order of their numbers. A
    /// new message enters its first state; a transition that keeps the state neither enters nor leaves it. Every
    /// transition with a reason counts for that reason; equally frequent reasons are in the order of their bytes.
    fn stats(&self, query: &StatsQuery) -> impl Future<Output = Result<Vec<Activity>, HistoryError>> + Send;

    /// The number of messages in each state, in the order of the states' numbers. Messages that are gone do not count.
    fn depth(&self, query: &DepthQuery) -> impl Future<Output = Result<[u64; 6], HistoryError>> + Send;

    /// The same by groups, in the order of the bytes of their values. Groups without messages are left out.
    fn depth_by(
        &self,
        query: &DepthQuery,
        grouping: &Grouping,
    ) -> impl Future<Output = Result<Vec<(String, [u64; 6])>, HistoryError>> + Send;

    /// Removes what is older than the store's retention, in bounded steps. `true`: the caller should call again.
    fn prune(&self, now_ms: u64) -> impl Future<Output = Result<bool, HistoryError>> + Send;
}
