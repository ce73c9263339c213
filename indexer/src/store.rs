//! The contract of a history store. Two implementations: Elasticsearch and SQLite. One conformance suite holds both
//! to the same answers (Q20, Q21).

use std::collections::{BTreeMap, BTreeSet};
use tallystone_model::{MessageId, QueueName, Recorded, State};
use tallystone_proto::history::v1::{Activity, IndexedMessage, TracedTransition};

/// The last millisecond of the year 2200: later times make no sensible index, and are no time of ours.
pub const TIME_MS_MAX: u64 = 7_289_654_399_999;

/// Why a history store did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// It does not answer, or is overloaded: the same call may succeed later. What it was given may be written or not.
    #[error("the history store is unavailable: {0}")]
    Unavailable(String),
    /// It answers, but not with what it should: waiting will not mend it.
    #[error("the history store failed: {0}")]
    Failed(String),
}

/// An event that a store can never take, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its place in the events given.
    pub index: usize,
    /// Why, in the store's words.
    pub why: String,
}

/// Which of the streams that fill a store: a partition of the topic, or the one relay of an embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// From 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// Whose transitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceQuery {
    /// The queue.
    pub queue: QueueName,
    /// The message's id.
    pub id: MessageId,
    /// Which message, where several had the id one after the other; `None`: all.
    pub sequence: Option<u64>,
    /// How many transitions at most; 1 or more.
    pub limit: usize,
    /// Only those after this sequence and version.
    pub after: Option<(u64, u32)>,
}

/// What TraceMessage finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// By sequence, then version.
    pub transitions: Vec<TracedTransition>,
    /// There are more than the limit.
    pub more: bool,
    /// The newest message of those asked for, as its newest transition left it, payload included.
    pub message: Option<IndexedMessage>,
}

/// Which messages. Absent and empty fields mean any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// The queue.
    pub queue: Option<QueueName>,
    /// Any of these.
    pub states: BTreeSet<State>,
    /// All of these pairs.
    pub metadata: BTreeMap<String, String>,
    /// Of the present or last lease.
    pub worker: String,
    /// Part of the last reason given; ASCII letters match in either case, all else as it stands.
    pub reason_contains: String,
    /// The last transition happened then or later.
    pub changed_from_ms: Option<u64>,
    /// The last transition happened before.
    pub changed_to_ms: Option<u64>,
    /// Collected messages too.
    pub include_gone: bool,
    /// This id.
    pub id: Option<MessageId>,
    /// How many at most; 1 or more.
    pub limit: usize,
    /// Only those that come after this one.
    pub after: Option<Position>,
}

/// Where a message stands in the order of a search: latest enqueued first, then highest sequence, then by queue and
/// shard. None of it ever changes, so that pages neither repeat nor omit a message that is there all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// When it was enqueued.
    pub enqueued_at_ms: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Its queue.
    pub queue: String,
    /// Its shard.
    pub shard: u16,
}

impl Position {
    /// Where this message stands.
    pub fn of(message: &IndexedMessage) -> Position {
        Position {
            enqueued_at_ms: message.enqueued_at_ms as u64,
            sequence: message.sequence,
            queue: message.queue.clone(),
            shard: message.shard as u16,
        }
    }
}

/// What span of a queue's activity. Half open: `from_ms` is in it, `to_ms` is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsQuery {
    /// The queue.
    pub queue: QueueName,
    /// Its begin.
    pub from_ms: u64,
    /// Its end; later than its begin.
    pub to_ms: u64,
    /// The length of its parts, the last of which may be shorter; `None`: only the whole.
    pub interval_ms: Option<u64>,
}

/// Which messages to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepthQuery {
    /// The queue.
    pub queue: QueueName,
    /// All of these pairs.
    pub metadata: BTreeMap<String, String>,
}

/// A store of history. What a call has written is seen by others once [`advance`](HistoryStore::advance) has answered
/// after it, or earlier.
pub trait HistoryStore: Send + Sync + 'static {
    /// Takes transitions, in any order, once or often: the same set of events leaves the same documents, byte for
    /// byte. Answers when all but the rejected are durable. After an error any of them may be.
    fn record(&self, events: &[Recorded]) -> impl Future<Output = Result<Vec<Rejected>, HistoryError>> + Send;

    /// All that this source had before `up_to_ms` has been recorded: makes it visible, then says so. Never goes back.
    fn advance(&self, source: Source, up_to_ms: u64) -> impl Future<Output = Result<(), HistoryError>> + Send;

    /// Every transition up to here is in the answers; `None`: some source has not said yet.
    fn watermark(&self) -> impl Future<Output = Result<Option<u64>, HistoryError>> + Send;

    /// The transitions of a message, by sequence and version.
    fn trace(&self, query: &TraceQuery) -> impl Future<Output = Result<Trace, HistoryError>> + Send;

    /// Messages in the order of [`Position`], without payloads.
    fn search(&self, query: &SearchQuery) -> impl Future<Output = Result<Vec<IndexedMessage>, HistoryError>> + Send;

    /// The whole span, then its parts in order, empty ones too. States in the order of their numbers. A new message
    /// enters its first state; a transition that stays in a state neither enters nor leaves it. Every transition that
    /// gave a reason counts for it; of reasons equally common the one whose bytes sort first comes first.
    fn stats(&self, query: &StatsQuery) -> impl Future<Output = Result<Vec<Activity>, HistoryError>> + Send;

    /// Messages that are not gone, by state in the order of the states' numbers.
    fn depth(&self, query: &DepthQuery) -> impl Future<Output = Result<[u64; 6], HistoryError>> + Send;

    /// Drops what is older than the store's retention, in bounded steps; `true`: there is more to drop.
    fn prune(&self, now_ms: u64) -> impl Future<Output = Result<bool, HistoryError>> + Send;
}
