//! What clients saw of one queue: every operation with the moments of its invocation and its response, by one
//! monotonic clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tallystone_client::{Depth, State};

/// From the invocation of an operation to its response, in µs since the history began. Whatever the operation did, it
/// did at one moment within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) begin_us: u64,
    pub(crate) end_us: u64,
}

impl Span {
    /// The response of this one came before the other was invoked: so it also acted before.
    pub(crate) fn before(self, other: Span) -> bool {
        self.end_us < other.begin_us
    }

    /// How long it took.
    pub(crate) fn length_ms(self) -> u64 {
        (self.end_us - self.begin_us) / 1_000
    }
}

/// One operation on one message or queue.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) span: Span,
    pub(crate) what: What,
}

/// The result. Refusals without information are not recorded.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Accepted by an Enqueue.
    Enqueued { id: String, origin: String },
    /// Leased, by a Dequeue, or (`kept`) by a Work stream, whose worker extends it unseen; `key` in an exclusive queue. `left_ms`: what was
    /// left of `lease_ms` when the lease arrived.
    Leased {
        id: String,
        key: Option<String>,
        fencing_token: u64,
        lease_ms: u64,
        left_ms: u64,
        version: u32,
        kept: bool,
    },
    /// Extended; `ok` is false where the lease was found lost.
    Extended { id: String, fencing_token: u64, lease_ms: u64, ok: bool },
    /// Completed or released by the holder of a lease.
    Ended { id: String, fencing_token: u64, end: End },
    /// Canceled, redriven or updated. These get the same result when another caller has done the same before.
    Changed { id: String, state: State, version: u32 },
    /// Read; `None`: it does not exist.
    Seen { id: String, found: Option<(State, u32)> },
    /// Counted, all or those of one origin.
    Counted { origin: Option<String>, depth: Depth },
    /// Dequeue was blocked.
    Paused,
    /// Dequeue was allowed again.
    Resumed,
}

impl What {
    /// The message; `None`: it is about the queue.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            What::Enqueued { id, .. }
            | What::Leased { id, .. }
            | What::Extended { id, .. }
            | What::Ended { id, .. }
            | What::Changed { id, .. }
            | What::Seen { id, .. } => Some(id),
            What::Counted { .. } | What::Paused | What::Resumed => None,
        }
    }
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By this call, which brought the message to this state and version.
    To(State, u32),
    /// It had ended before.
    Lost,
    /// Unknown: there was no answer.
    Unknown,
}

/// Writes a history down. Its clones write into the same one.
#[derive(Clone)]
pub(crate) struct Recorder {
    started: Instant,
    ops: Arc<Mutex<Vec<Op>>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Recorder { started: Instant::now(), ops: Arc::default() }
    }

    /// Now, µs since the history began.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).expect("a test ends within its century")
    }

    /// Writes down what was invoked at `begin_us` and answered now.
    pub(crate) fn record(&self, begin_us: u64, what: What) {
        let span = Span { begin_us, end_us: self.now_us() };
        self.ops.lock().unwrap_or_else(PoisonError::into_inner).push(Op { span, what });
    }

    /// The history so far.
    pub(crate) fn history(&self) -> Vec<Op> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
