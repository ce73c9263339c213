//! The contract of a store: what each verb does to a queue shard, atomically. Two implementations: the
//! [`oracle`](crate::oracle) and Redis (server `store/`). The conformance suite and the property tests hold
//! them to the same answers.
//!
//! Rules that every verb shares:
//! - One call is one atomic step. `Err` is of the whole call, the inner `Err` of one item; neither changed
//!   anything (but see [`Applied::Unknown`](crate::Applied)). Items act in order, each seeing those before it.
//! - The shard has one sequence: every accepted message takes the next number as its place among equal
//!   priorities, every lease the next as its fencing token. It starts at the microseconds of the creation of the
//!   queue, so that a queue deleted and made anew never gives out a token twice.
//! - A lease lives while its message is running, carries its fencing token, and `now < expires_at`. How the last lease of
//!   a message *ended* (fencing token, state, version) is remembered until the next lease ends: a repeated Complete,
//!   Release or Cancel with that fencing token, of the same verb, answers what the first did. Any other call on a dead lease
//!   is [`Refusal::LeaseLost`].
//! - A coalesced mark (Q12) ends when the message leaves running: by Complete it is pending again; by Release or a
//!   lapsed lease it goes where it would with all attempts left; attempts restart at 0. By Cancel it is canceled.
//! - Each write raises the version by one and leaves one event per arrow of [`ARROWS`](crate::state::ARROWS).

use crate::config::{QueueConfig, QueuePatch};
use crate::explain::Facts;
use crate::filter::Filter;
use crate::invariants::Violation;
use crate::message::{Enqueued, Lease, Message, NewMessage};
use crate::names::{MessageId, QueueName};
use crate::refusal::Refusal;
use crate::shard::Shard;
use crate::state::State;
use std::future::Future;

/// The answer of one call: of the whole, then of each item.
pub type Items<T> = Result<Vec<Result<T, Refusal>>, Refusal>;

/// A queue and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: QueueName,
    /// Its configuration.
    pub config: QueueConfig,
    /// 1 at creation; raised with every change.
    pub revision: u32,
    /// When it was created, by the store's clock.
    pub created_at_ms: u64,
}

/// One caller's wish in a Dequeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DequeueRequest {
    /// Who asks.
    pub worker: String,
    /// How many at most; 1 or more.
    pub limit: usize,
    /// Overrides the message's and the queue's lease.
    pub lease_ms: Option<u64>,
    /// Any of these; none means every message.
    pub filters: Vec<Filter>,
    /// The same id answers the same leases as long as any of them lives; empty: always a new request.
    pub request_id: String,
}

/// What a Dequeue call answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dequeued {
    /// Leases per request, in order; empty where nothing was runnable.
    pub leases: Vec<Result<Vec<Lease>, Refusal>>,
    /// Some request got fewer leases than its limit though more was runnable: a bound of the store was met.
    pub cut_short: bool,
    /// What stood after the call.
    pub outlook: Outlook,
}

/// What a server needs to know to decide when to ask again (Q18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Runnable messages left.
    pub ready: u64,
    /// When the next invisible message or lease falls due; `None`: none will.
    pub next_due_ms: Option<u64>,
    /// The store's clock.
    pub now_ms: u64,
}

/// Names a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// The message.
    pub id: MessageId,
    /// The fencing token.
    pub fencing_token: u64,
}

/// One item of ExtendLease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The lease.
    pub lease: LeaseRef,
    /// It will end so long from now; `None`: the length it was granted for.
    pub lease_ms: Option<u64>,
    /// The same id as the lease's last extension: answers the same and changes nothing. Empty: always extends.
    pub request_id: String,
}

/// What ExtendLease answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// When the lease ends now.
    pub expires_at_ms: u64,
}

/// One item of Release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The lease.
    pub lease: LeaseRef,
    /// Before the next run; `None`: the queue's retry backoff.
    pub delay_ms: Option<u64>,
    /// Why.
    pub reason: String,
}

/// One item of Cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    /// The message.
    pub id: MessageId,
    /// The holder's token, for a running message; 0: none.
    pub fencing_token: u64,
    /// An operator's: no token needed.
    pub force: bool,
    /// Why.
    pub reason: String,
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Its state.
    pub state: State,
    /// Its version.
    pub version: u32,
}

/// What UpdateMessage changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessagePatch {
    /// The new priority.
    pub priority: Option<i64>,
    /// Invisible until then; past or now: visible. Not for running messages.
    pub visible_at_ms: Option<u64>,
}

/// Messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
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
    /// Invisible, pending and running: what max_depth bounds.
    pub fn live(&self) -> u64 {
        self.invisible + self.pending + self.running
    }

    /// The count of one state.
    pub fn of(&self, state: State) -> u64 {
        match state {
            State::Invisible => self.invisible,
            State::Pending => self.pending,
            State::Running => self.running,
            State::Completed => self.completed,
            State::Canceled => self.canceled,
            State::Errored => self.errored,
        }
    }

    /// The count of one state, to change.
    pub fn of_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Invisible => &mut self.invisible,
            State::Pending => &mut self.pending,
            State::Running => &mut self.running,
            State::Completed => &mut self.completed,
            State::Canceled => &mut self.canceled,
            State::Errored => &mut self.errored,
        }
    }
}

/// One page and where the next begins; an empty cursor: there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Opaque.
    pub next_cursor: String,
}

/// What a sweep did (each at most [`SWEEP_ITEMS_MAX`](crate::limits::SWEEP_ITEMS_MAX) messages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Invisible messages made pending.
    pub promoted: u64,
    /// Leases that had run out.
    pub expired: u64,
    /// Terminal messages removed.
    pub collected: u64,
    /// When there is something to sweep next, retention included; may be past. `None`: never.
    pub next_ms: Option<u64>,
    /// The store's clock.
    pub now_ms: u64,
}

/// One step of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Messages removed in this step.
    pub purged: u64,
    /// Pass to the next step; empty: all that came before the purge began are gone.
    pub next_cursor: String,
}

/// A store of queues. See the module for the rules.
pub trait Store: Send + Sync + 'static {
    /// Makes a queue. Same configuration: answers the one that is there; other: [`Refusal::QueueExists`].
    fn create_queue(
        &self,
        name: &QueueName,
        config: QueueConfig,
    ) -> impl Future<Output = Result<Queue, Refusal>> + Send;

    /// Lays the patch over the configuration; one that changes nothing leaves the revision.
    fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> impl Future<Output = Result<Queue, Refusal>> + Send;

    /// The queue as it stands.
    fn get_queue(&self, name: &QueueName) -> impl Future<Output = Result<Queue, Refusal>> + Send;

    /// Queues by name, with the given prefix, after the cursor (a name).
    fn list_queues(
        &self,
        prefix: &str,
        cursor: &str,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Queue>, Refusal>> + Send;

    /// Removes a queue that has no live messages; terminal ones are collected first. Its events stay in the outbox.
    /// A queue that is not there: [`Refusal::QueueNotFound`], unless it was deleted within the last hour: the call is
    /// a repeated one then, and answers the same (Q10).
    fn delete_queue(&self, name: &QueueName) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// One bounded step of a purge: cancels (by Purge) and collects messages accepted before the first step, the one
    /// with an empty cursor. Running ones only if asked to.
    fn purge(
        &self,
        shard: &Shard,
        include_running: bool,
        cursor: &str,
    ) -> impl Future<Output = Result<Purged, Refusal>> + Send;

    /// Q1, Q3, Q10, Q12. In order: enqueue blocked (whole call); exclusivity key missing (Invalid "metadata");
    /// id known: without `coalesce` the same content answers the first result, other content IdConflict; with
    /// `coalesce` a live message stands for it (IdConflict if its exclusivity value differs): it takes the priority
    /// if that is more urgent, a running one is marked; a write only where something changes; a terminal one is
    /// collected and the message is new. New: QueueFull at max_depth, else invisible or pending at version 1.
    fn enqueue(&self, shard: &Shard, messages: Vec<NewMessage>) -> impl Future<Output = Items<Enqueued>> + Send;

    /// Q4, Q8, Q10, Q11. Dequeue blocked refuses the whole call. First, all that is due (windows, leases) moves,
    /// windows before leases, each by due time. Then each request in order: a known request id of which leases
    /// live answers those; else up to `limit` of the most urgent runnable messages that pass any of its filters, the
    /// last of them the first to bring their payloads to `DEQUEUE_PAYLOAD_BYTES`.
    /// Runnable: pending and, in an exclusive queue, its value free and, without filters, the value's most
    /// urgent; with filters, the most urgent of those of the value that pass. Taking one locks its value.
    /// `wait` says that the caller may hold some when this is answered: see [`Store::on_ready`].
    fn dequeue(
        &self,
        shard: &Shard,
        requests: Vec<DequeueRequest>,
        wait: bool,
    ) -> impl Future<Output = Result<Dequeued, Refusal>> + Send;

    /// Q10, Q11. Answers the state: completed, or pending where the message was coalesced.
    fn complete(&self, shard: &Shard, leases: Vec<LeaseRef>) -> impl Future<Output = Items<Transition>> + Send;

    /// Q11. The lease ends at now + lease_ms, which may be sooner than before.
    fn extend_lease(&self, shard: &Shard, extensions: Vec<Extension>) -> impl Future<Output = Items<Extended>> + Send;

    /// Attempts left (or coalesced): invisible for the delay, or pending where that is 0; else errored.
    fn release(&self, shard: &Shard, releases: Vec<Release>) -> impl Future<Output = Items<Transition>> + Send;

    /// Canceled already: answers that. Completed, errored: WrongState. Running: by a live lease, or forced; with
    /// another fencing token LeaseLost, with none WrongState.
    fn cancel(&self, shard: &Shard, cancellations: Vec<Cancellation>)
    -> impl Future<Output = Items<Transition>> + Send;

    /// Errored and canceled messages to pending, attempts 0. A message that Redrive made pending and nobody has
    /// leased since answers the same; others WrongState. QueueFull at max_depth.
    fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> impl Future<Output = Items<Transition>> + Send;

    /// Changes priority, then visibility, in one write; a patch that changes nothing writes nothing. Terminal, and
    /// visibility of a running message: WrongState.
    fn update_message(
        &self,
        shard: &Shard,
        id: &MessageId,
        patch: MessagePatch,
    ) -> impl Future<Output = Result<Transition, Refusal>> + Send;

    /// Messages as they stand.
    fn get_messages(&self, shard: &Shard, ids: Vec<MessageId>) -> impl Future<Output = Items<Message>> + Send;

    /// Messages of one state. Pending ones: the runnable most urgent first, then (exclusive queues) the rest by
    /// value and urgency; invisible and running by due time; terminal by when they ended.
    fn list_messages(
        &self,
        shard: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Message>, Refusal>> + Send;

    /// The facts from which [`hindrances`](crate::explain::hindrances) follow.
    fn explain(&self, shard: &Shard, id: &MessageId) -> impl Future<Output = Result<Facts, Refusal>> + Send;

    /// Exact counts (Q9), of all or of what passes the filter.
    fn depth(&self, shard: &Shard, filter: Option<&Filter>) -> impl Future<Output = Result<Depth, Refusal>> + Send;

    /// One bounded step of the background work: due windows, expired leases, terminal messages past the retention.
    fn sweep(&self, shard: &Shard) -> impl Future<Output = Result<Swept, Refusal>> + Send;

    /// One bounded step of the scrubber: messages looked at, violations found, where to go on.
    fn check(
        &self,
        shard: &Shard,
        cursor: &str,
    ) -> impl Future<Output = Result<(u64, Page<Violation>), Refusal>> + Send;

    /// Registers who is told that a shard whose dequeue waited has something runnable. At least once, promptly, and
    /// only for shards where some server waits; a store may also call it when nothing is there.
    fn on_ready(&self, tell: Box<dyn Fn(&Shard) + Send + Sync>);
}
