//! What the verbs of leases take and return.

use crate::filter::Filter;
use crate::message::Lease;
use crate::names::MessageId;
use crate::refusal::Refusal;
use crate::state::State;
use bytes::Bytes;

/// One request of a Dequeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DequeueRequest {
    /// The name of the worker.
    pub worker: String,
    /// The most leases. 0: only those that an earlier try has been given, see [`Ticket`].
    pub limit: usize,
    /// The lease length, instead of the message's and the queue's.
    pub lease_ms: Option<u64>,
    /// A message must pass any of these; without filters every message passes.
    pub filters: Vec<Filter>,
    /// A repeated id gets the same leases as long as any of them is live. Empty: always a new request.
    pub request_id: String,
}

/// Identifies a Dequeue call, so that the server can repeat it and collect what a lost reply gave (Q10). A slot has one
/// ticket at a time: the server draws the next one when it knows the answer to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The server; no other has this number.
    pub server: u64,
    /// The slot, in one shard.
    pub slot: u8,
    /// The number of the first try. Numbers rise with every try and every ticket of the server, by 2 at least, so that each leaves one
    /// for [`Ticket::collects`]; below 2^53.
    pub first: u64,
    /// The number of this try.
    pub number: u64,
}

impl Ticket {
    /// Whether an earlier try was made.
    pub fn is_repeat(&self) -> bool {
        self.number > self.first
    }

    /// A repeat of this try that comes before every other try: it collects what this one has given, or keeps it from acting later.
    #[must_use]
    pub fn collects(self) -> Ticket {
        Ticket { number: self.number + 1, ..self }
    }
}

/// The result of a Dequeue call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dequeued {
    /// The leases of each request, in order; empty if nothing was runnable.
    pub leases: Vec<Result<Vec<Lease>, Refusal>>,
    /// Some request got fewer leases than its limit although more messages were runnable: the store met a bound.
    pub cut_short: bool,
    /// Leases that had expired, and that the call has ended first.
    pub expired: u64,
    /// How many of these left an errored message.
    pub errored: u64,
    /// The shard after the call.
    pub outlook: Outlook,
}

/// What a server needs to decide when to call Dequeue again (Q18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Runnable messages left.
    pub ready: u64,
    /// When the next invisibility or lease ends: Unix ms; `None`: never.
    pub next_due_ms: Option<u64>,
    /// The time of the call by the store's clock: Unix ms.
    pub now_ms: u64,
    /// The priority of the most urgent runnable message that is left; `None`: there is none, or the queue has one shard.
    pub head: Option<i64>,
}

/// Identifies a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// The message.
    pub id: MessageId,
    /// The fencing token.
    pub fencing_token: u64,
}

/// One item of Complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The lease.
    pub lease: LeaseRef,
    /// The result of the work; may be empty. At most [`RESULT_BYTES_MAX`](crate::limits::RESULT_BYTES_MAX).
    pub result: Bytes,
}

impl From<&Lease> for LeaseRef {
    fn from(lease: &Lease) -> Self {
        LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token }
    }
}

impl From<LeaseRef> for Completion {
    fn from(lease: LeaseRef) -> Self {
        Completion { lease, result: Bytes::new() }
    }
}

/// One item of ExtendLease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The lease.
    pub lease: LeaseRef,
    /// The lease will end this long after the call; `None`: its original length.
    pub lease_ms: Option<u64>,
    /// The id of the lease's last extension gets the same result again and changes nothing. Empty: always extends.
    pub request_id: String,
}

/// The result of one ExtendLease item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// The new end of the lease: Unix ms.
    pub expires_at_ms: u64,
}

/// One item of Release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lease.
    pub lease: LeaseRef,
    /// The delay before the next run; `None`: the queue's retry backoff.
    pub delay_ms: Option<u64>,
    /// The reason, for people.
    pub reason: String,
    /// Whether the message runs again.
    pub verdict: Verdict,
}

impl Release {
    /// Gives a lease back that no worker has got.
    pub fn undelivered(lease: LeaseRef, reason: &str) -> Release {
        Release { lease, delay_ms: None, reason: reason.to_owned(), verdict: Verdict::Undelivered }
    }
}

/// What happens to a message whose worker gives up its lease (Q23, Q29). The numbers are those of the scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// It runs again, if it has attempts left or is coalesced.
    #[default]
    Retry = 0,
    /// Never again: it becomes errored, coalesced or not.
    Error = 1,
    /// It becomes canceled, coalesced or not.
    Cancel = 2,
    /// No worker has got the lease: it runs again at once, and this was no attempt. Only the server gives this one.
    Undelivered = 3,
}

impl Verdict {
    /// The state that the verdict requires; none if the message may run again.
    pub fn state(self) -> Option<State> {
        match self {
            Verdict::Retry => None,
            Verdict::Undelivered => Some(State::Pending),
            Verdict::Error => Some(State::Errored),
            Verdict::Cancel => Some(State::Canceled),
        }
    }
}

/// One item of Cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    /// The message.
    pub id: MessageId,
    /// The holder's fencing token, for a running message; 0: none.
    pub fencing_token: u64,
    /// An operator cancels: a running message needs no fencing token.
    pub force: bool,
    /// The reason, for people.
    pub reason: String,
}

/// The message after a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Its state.
    pub state: State,
    /// Its version.
    pub version: u32,
}
