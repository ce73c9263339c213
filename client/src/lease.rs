//! Leases, and the arguments of the calls about them. Times are Unix milliseconds by the store's clock, durations are
//! milliseconds.

use crate::error::{Refused, Result};
use crate::message::{Filter, State, text_or_bytes};
use crate::wire::{from_wire, new_id, outcome, wire_ms};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as wire;

/// The arguments of [`Client::dequeue`](crate::Client::dequeue).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dequeue {
    queue: String,
    worker: String,
    limit: u32,
    lease_ms: Option<u64>,
    filters: Vec<Filter>,
    wait_ms: u64,
    request_id: String,
}

impl Dequeue {
    /// One message of this queue, without waiting for it.
    pub fn new(queue: impl Into<String>) -> Self {
        let (queue, worker, filters, request_id) = (queue.into(), String::new(), Vec::new(), String::new());
        Dequeue { queue, worker, limit: 1, lease_ms: None, filters, wait_ms: 0, request_id }
    }

    /// A name for the caller, up to 128 bytes, which history and Explain show.
    #[must_use]
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = worker.into();
        self
    }

    /// How many messages at most, 1 to 1,000; default 1.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// The length of the leases, instead of the message's or the queue's.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }

    /// Adds a filter: only messages that pass one of the filters are leased. Up to 16.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// How long to wait for the first message, up to 300,000; default 0.
    #[must_use]
    pub fn wait_ms(mut self, wait_ms: u64) -> Self {
        self.wait_ms = wait_ms;
        self
    }

    /// A request id, up to 128 bytes: a repeated call with it answers the same leases while they live. Without it the
    /// client draws one per call, so its own repetitions are covered.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = request_id.into();
        self
    }

    pub(crate) fn into_wire(self) -> wire::DequeueRequest {
        wire::DequeueRequest {
            queue: self.queue,
            worker: self.worker,
            limit: i32::try_from(self.limit).unwrap_or(i32::MAX),
            lease_ms: self.lease_ms.map(wire_ms),
            filters: self.filters.into_iter().map(Filter::into_wire).collect(),
            wait_ms: wire_ms(self.wait_ms),
            request_id: if self.request_id.is_empty() { new_id() } else { self.request_id },
        }
    }
}

/// The right of one worker to run one message until `lease_expires_at_ms`; see
/// [leases and fencing](crate#leases-and-fencing).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// The message.
    pub id: String,
    /// Its payload.
    #[serde(serialize_with = "text_or_bytes")]
    pub payload: Bytes,
    /// Its current priority.
    pub priority: i64,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Higher than that of any earlier lease of the message. Pass it on to the systems that the work writes to.
    pub fencing_token: u64,
    /// 1 for the first run.
    pub attempt: u32,
    /// After this many attempts the message is errored.
    pub max_attempts: u32,
    /// When the message was accepted.
    pub enqueued_at_ms: u64,
    /// When this lease began.
    pub leased_at_ms: u64,
    /// When it ends, unless extended.
    pub lease_expires_at_ms: u64,
    /// What was left of it when the server sent it, at least. Measure it with a monotonic clock, from the moment when the lease arrives.
    pub left_ms: u64,
    /// The message's version.
    pub version: u32,
}

impl Lease {
    /// Identifies this lease in later calls.
    pub fn lease_ref(&self) -> LeaseRef {
        LeaseRef { id: self.id.clone(), fencing_token: self.fencing_token }
    }

    pub(crate) fn from_wire(lease: wire::Lease) -> Self {
        // Version 0.1 of the server does not say it.
        let left_ms = if lease.left_ms > 0 {
            lease.left_ms
        } else {
            lease.lease_expires_at_ms.saturating_sub(lease.leased_at_ms)
        };
        Lease {
            id: lease.id,
            payload: lease.payload,
            priority: lease.priority,
            metadata: lease.metadata,
            fencing_token: lease.fencing_token,
            attempt: u32::try_from(lease.attempt).unwrap_or(0),
            max_attempts: u32::try_from(lease.max_attempts).unwrap_or(0),
            enqueued_at_ms: from_wire(lease.enqueued_at_ms),
            leased_at_ms: from_wire(lease.leased_at_ms),
            lease_expires_at_ms: from_wire(lease.lease_expires_at_ms),
            left_ms: from_wire(left_ms),
            version: lease.version,
        }
    }
}

/// Identifies a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct LeaseRef {
    /// The message.
    pub id: String,
    /// The fencing token of the lease.
    pub fencing_token: u64,
}

impl LeaseRef {
    pub(crate) fn into_wire(self) -> wire::LeaseRef {
        wire::LeaseRef { id: self.id, fencing_token: self.fencing_token, result: Bytes::new() }
    }
}

impl From<&Lease> for LeaseRef {
    fn from(lease: &Lease) -> Self {
        lease.lease_ref()
    }
}

/// One item of [`Client::complete`](crate::Client::complete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The lease.
    pub lease: LeaseRef,
    /// The result of the work, up to 1,024 bytes; kept with the completed message. Empty: none.
    pub result: Bytes,
}

impl Completion {
    /// Completes without a result.
    pub fn of(lease: impl Into<LeaseRef>) -> Self {
        Completion { lease: lease.into(), result: Bytes::new() }
    }

    /// The result of the work, up to 1,024 bytes.
    #[must_use]
    pub fn result(mut self, result: impl Into<Bytes>) -> Self {
        self.result = result.into();
        self
    }

    pub(crate) fn into_wire(self) -> wire::LeaseRef {
        wire::LeaseRef { result: self.result, ..self.lease.into_wire() }
    }
}

impl<L: Into<LeaseRef>> From<L> for Completion {
    fn from(lease: L) -> Self {
        Completion::of(lease)
    }
}

/// One item of [`Client::extend_lease`](crate::Client::extend_lease).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The lease.
    pub lease: LeaseRef,
    /// It ends this long from now; `None`: the length for which it was granted.
    pub lease_ms: Option<u64>,
}

impl Extension {
    /// Extends by the length for which the lease was granted.
    pub fn of(lease: impl Into<LeaseRef>) -> Self {
        Extension { lease: lease.into(), lease_ms: None }
    }

    /// The lease ends this long from now.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }

    pub(crate) fn into_wire(self) -> wire::LeaseExtension {
        let LeaseRef { id, fencing_token } = self.lease;
        wire::LeaseExtension { id, fencing_token, lease_ms: self.lease_ms.map(wire_ms) }
    }
}

/// An extended lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extended {
    /// When the lease ends now.
    pub lease_expires_at_ms: u64,
}

/// One item of [`Client::release`](crate::Client::release).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lease.
    pub lease: LeaseRef,
    /// How long the message stays invisible before its next attempt; `None`: the queue's retry backoff decides.
    pub delay_ms: Option<u64>,
    /// Why, up to 255 bytes; kept with the message and in its history.
    pub reason: String,
    /// Whether the message runs again.
    pub verdict: Verdict,
}

/// What happens to a message whose worker gives up its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It runs again, if it has attempts left or was coalesced.
    #[default]
    Retry,
    /// Never again: it is errored now, whatever attempts it has left.
    Error,
    /// It is canceled.
    Cancel,
}

impl Release {
    /// Releases with the delay of the queue's retry backoff.
    pub fn of(lease: impl Into<LeaseRef>) -> Self {
        Release { lease: lease.into(), delay_ms: None, reason: String::new(), verdict: Verdict::Retry }
    }

    /// Whether the message runs again.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// The message runs again after this delay; 0: at once. Refused with a verdict that lets no attempt follow.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = Some(delay_ms);
        self
    }

    /// The reason, up to 255 bytes.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    pub(crate) fn into_wire(self) -> wire::LeaseRelease {
        let LeaseRef { id, fencing_token } = self.lease;
        let verdict = match self.verdict {
            Verdict::Retry => wire::Verdict::Retry,
            Verdict::Error => wire::Verdict::Error,
            Verdict::Cancel => wire::Verdict::Cancel,
        };
        let (delay_ms, reason) = (self.delay_ms.map(wire_ms), self.reason);
        wire::LeaseRelease { id, fencing_token, delay_ms, reason, verdict: verdict.into() }
    }
}

/// One item of [`Client::cancel`](crate::Client::cancel).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    /// The message.
    pub id: String,
    /// The lease's, when a worker cancels the message that it runs; 0 otherwise.
    pub fencing_token: u64,
    /// Cancels a running message without its lease. For operators.
    pub force: bool,
    /// Why, up to 255 bytes.
    pub reason: String,
}

impl Cancellation {
    /// Cancels a message that is not running.
    pub fn of(id: impl Into<String>) -> Self {
        Cancellation { id: id.into(), fencing_token: 0, force: false, reason: String::new() }
    }

    /// Cancels a running message, by the worker that holds its lease.
    pub fn by_holder(lease: impl Into<LeaseRef>) -> Self {
        let LeaseRef { id, fencing_token } = lease.into();
        Cancellation { fencing_token, ..Cancellation::of(id) }
    }

    /// Cancels the message even if it is running, without its lease.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// The reason, up to 255 bytes.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    pub(crate) fn into_wire(self) -> wire::Cancellation {
        let Cancellation { id, fencing_token, force, reason } = self;
        wire::Cancellation { id, fencing_token, force, reason }
    }
}

/// Where a call left a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// Its state now.
    pub state: State,
    /// Its version now.
    pub version: u32,
}

impl Transition {
    pub(crate) fn from_wire(transition: &wire::Transition) -> Result<Self, Refused> {
        let state = State::from_wire(transition.state).ok_or_else(|| Refused::protocol("a state without a name"))?;
        Ok(Transition { state, version: transition.version })
    }

    /// One item's result.
    pub(crate) fn from_result(result: wire::TransitionResult) -> Result<Self, Refused> {
        Transition::from_wire(&outcome(result.outcome)?)
    }
}
