//! The contract of a store: what each verb does to a queue shard, atomically; and to all shards of a queue, one after the other,
//! where a verb takes the name of a queue. It has two implementations: the
//! [`oracle`](crate::oracle) and Redis (server `store/`). The conformance suite and the property tests check that both
//! return the same results.
//!
//! Rules that every verb shares:
//! - One call is one atomic step; a store may divide a batch that touches much into several, between items. An outer `Err`
//!   refuses the whole call, an inner `Err` one item; a refusal changes nothing (except
//!   [`Applied::Unknown`](crate::Applied)). Items act in order, and each sees the effects of the earlier ones.
//! - The shard has one sequence of numbers. Every accepted message takes the next number, which orders messages of equal
//!   priority; every lease takes the next number as its fencing token, with the number of the shard above it
//!   ([`Shard::token`]). The sequence starts at the microseconds of the
//!   queue's creation, so that a queue that is deleted and created again never grants the same fencing token twice.
//! - A lease is live while its message is running with its fencing token, and `now < expires_at`. How the last lease of
//!   a message *ended* (fencing token, state, version) is recorded until the next lease ends: a repetition of the same
//!   Complete, Release or Cancel with that fencing token gets the first result. Any other call on a dead lease is refused
//!   with [`Refusal::LeaseLost`].
//! - A coalesced mark (Q12) ends when the message leaves running. After Complete the message is pending again. After
//!   Release, or when the lease expires, it goes where a message with all attempts left goes. In both cases its attempts
//!   restart at 0. After Cancel it is canceled, and after a Release with another verdict than Retry it goes where that
//!   says.
//! - Each write raises the version by one and leaves one event for each transition of [`ARROWS`](crate::state::ARROWS).

mod leases;
mod results;

use crate::config::{QueueConfig, QueuePatch};
use crate::explain::Facts;
use crate::filter::Filter;
use crate::invariants::Violation;
use crate::message::{Enqueued, Message, NewMessage};
use crate::names::{MessageId, QueueName};
use crate::refusal::Refusal;
pub use crate::selection::MessagePatch;
use crate::selection::{ChangeRequest, ChangedPage};
use crate::shard::{Generation, Layout, Shard, Spread};
use crate::state::State;
pub use leases::{
    Cancellation, Completion, DequeueRequest, Dequeued, Extended, Extension, LeaseRef, Outlook, Release, Ticket,
    Transition, Verdict,
};
pub use results::{Ages, Depth, Page, Purged, Swept, TOO_MANY_ERRORED};
use std::future::Future;
use std::time::Duration;

/// The result of one call: the refusal of the whole call, or the result of each item in order.
pub type Items<T> = Result<Vec<Result<T, Refusal>>, Refusal>;

/// A queue and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: QueueName,
    /// Its configuration.
    pub config: QueueConfig,
    /// 1 at creation; raised by 1 with every change.
    pub revision: u32,
    /// When it was created: Unix ms, by the store's clock.
    pub created_at_ms: u64,
    /// How its number of shards was changed; `None`: never.
    pub spread: Option<Spread>,
}

impl Queue {
    /// How it is spread over its shards.
    pub fn layout(&self) -> Layout {
        Layout::of(&self.config, self.spread.as_ref())
    }

    /// All its shards, the first one first.
    pub fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        self.layout().shards(&self.name)
    }

    /// The shards of the same age as the one of this number; of the first, if it is of none, the current ones.
    pub fn generation_of(&self, number: u16) -> Generation {
        self.layout().generation_or_current(number)
    }
}
/// Is called with a lease that was revoked, and its shard; see [`Store::on_revoked`].
pub type NotifyRevoked = Box<dyn Fn(&Shard, &LeaseRef) + Send + Sync>;

/// Is called with the name of a flow that has small flushes; see [`Store::on_light_flow`].
pub type NotifyLightFlow = Box<dyn Fn(&str) + Send + Sync>;

/// A store of queues. The module's documentation has the rules that all verbs share.
pub trait Store: Send + Sync + 'static {
    /// Creates a queue with all its shards. If it exists with the same configuration, returns that one, and creates the shards
    /// that it lacks; with another configuration: [`Refusal::QueueExists`].
    fn create_queue(
        &self,
        name: &QueueName,
        config: QueueConfig,
    ) -> impl Future<Output = Result<Queue, Refusal>> + Send;

    /// Applies the patch to the configuration, in all shards before the answer. A patch that changes nothing keeps the
    /// revision.
    ///
    /// Another number of shards (Q17): the shards of before are *closed*, see [`Store::enqueue`], and new ones take new messages. The
    /// closed ones stay until a background job of the store finds them empty: without a message in any state, and without a
    /// remembered id. In an exclusive queue, each shard that is closed gets an index over the exclusivity key before.
    /// Refused: see [`Spread::changed`]; IndexBuilding while these are built; TooManyIndexes.
    fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> impl Future<Output = Result<Queue, Refusal>> + Send;

    /// The queue with its current configuration.
    fn get_queue(&self, name: &QueueName) -> impl Future<Output = Result<Queue, Refusal>> + Send;

    /// The queues with the given prefix, in order of name, after the cursor (a name).
    fn list_queues(
        &self,
        prefix: &str,
        cursor: &str,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Queue>, Refusal>> + Send;

    /// Removes a queue without live messages, its first shard last; terminal messages are collected first. Its events stay in the outbox. A
    /// queue that does not exist: [`Refusal::QueueNotFound`]; but if it was deleted within the last hour, the call counts
    /// as a repetition and succeeds (Q10).
    fn delete_queue(&self, name: &QueueName) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Whether there was an exclusive queue of this name that was deleted within the last 30 days, and none since (Q1).
    fn was_exclusive(&self, name: &QueueName) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// How the queue of this first shard is spread over its shards, as far as this store knows. A call on a shard that the queue
    /// has no more, or a message for another shard, is refused, and the store knows better afterwards.
    fn layout(&self, first: &Shard) -> impl Future<Output = Result<Layout, Refusal>> + Send {
        async move { Ok(self.get_queue(&first.queue).await?.layout()) }
    }

    /// A call has found no shard of this number, except the first. Creates it, if its queue should have it, because the creation
    /// of the queue or a refused deletion has ended early. [`Refusal::QueueNotFound`]: there is no such queue.
    fn mend(&self, shard: &Shard) -> impl Future<Output = Result<(), Refusal>> + Send {
        async move { self.get_queue(&shard.queue).await.map(drop) }
    }

    /// Which of these ids a message of the shard has.
    fn holds(&self, shard: &Shard, ids: &[MessageId]) -> impl Future<Output = Result<Vec<bool>, Refusal>> + Send {
        async move {
            let found = self.get_messages(shard, ids.to_vec()).await?;
            Ok(found.iter().map(|message| !matches!(message, Err(Refusal::MessageNotFound { .. }))).collect())
        }
    }

    /// One bounded step of a purge: cancels (by Purge) and collects messages that were accepted before the first step,
    /// which has an empty cursor. Running messages only with `include_running`.
    fn purge(
        &self,
        shard: &Shard,
        include_running: bool,
        cursor: &str,
    ) -> impl Future<Output = Result<Purged, Refusal>> + Send;

    /// Q1, Q3, Q10, Q12. The checks, in order:
    /// 1. Enqueue is blocked: refuses the whole call.
    /// 2. The exclusivity key is missing: Invalid "metadata".
    /// 3. The id is known or remembered (a sweep collected its message, less than `id_window_ms` after the message ended),
    ///    without `coalesce`: the same content gets the first result, other content IdConflict.
    /// 4. The id is known, with `coalesce`. A live message stands for the new one (IdConflict if its exclusivity value
    ///    differs): it takes the priority if that is more urgent, and a running one is marked; nothing is written if
    ///    nothing changes. A terminal message is collected, and the message is new. So is one whose id is only remembered.
    /// 5. The message is new. A closed shard takes it only if it has a message of its exclusivity value that has not completed,
    ///    the collected one included. Otherwise it forgets what it remembers of the id, and refuses the message:
    ///    [`Refusal::moved`]. It is for a later shard of the queue. A message or a value that was refused so never comes to the closed
    ///    shard again.
    /// 6. QueueFull at max_depth, else the message is invisible or pending at version 1.
    fn enqueue(&self, shard: &Shard, messages: Vec<NewMessage>) -> impl Future<Output = Items<Enqueued>> + Send;

    /// Q4, Q8, Q10, Q11. If dequeue is blocked, refuses the whole call. First, everything that is due moves: messages
    /// whose invisibility has ended, then expired leases, each by due time. (Where more than 2,000 are due, a store may move
    /// them in batches. A request then gets what is runnable after a batch, and continues with the next only while it has fewer
    /// than its limit.) Then the requests act in order. A known
    /// request id with live leases gets those. Any other request gets up to `limit` of the most urgent runnable messages
    /// that pass any of its filters, and no further one once their payloads reach `DEQUEUE_PAYLOAD_BYTES`.
    ///
    /// A message is runnable if it is pending and, in an exclusive queue, its value is free and it is the most urgent of
    /// that value: of all messages without filters, of those that pass with filters. A lease locks the value.
    ///
    /// `wait`: callers may wait on this server after the call, see [`Store::on_ready`].
    ///
    /// `ticket`: the store remembers what this call gives to each request without an id, until the slot's next ticket. In a
    /// repeat, a request gets those of these leases that live; only if there are none, it acts as in a first try. A
    /// repeat is also answered if dequeue is blocked: requests without such leases are refused. A try that reaches the
    /// store after a later one of its slot is refused.
    fn dequeue(
        &self,
        shard: &Shard,
        requests: &[DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> impl Future<Output = Result<Dequeued, Refusal>> + Send;

    /// Q10, Q11, Q23. The message becomes completed and keeps the result, or pending if it was coalesced, without it.
    fn complete(&self, shard: &Shard, completions: Vec<Completion>) -> impl Future<Output = Items<Transition>> + Send;

    /// Q11. The lease ends `lease_ms` after the call, which may be sooner than before.
    fn extend_lease(&self, shard: &Shard, extensions: Vec<Extension>) -> impl Future<Output = Items<Extended>> + Send;

    /// A message with attempts left, or a coalesced one, becomes invisible for the delay, or pending if the delay is 0.
    /// Otherwise it becomes errored. Another verdict than Retry decides instead (Q23, Q29).
    fn release(&self, shard: &Shard, releases: Vec<Release>) -> impl Future<Output = Items<Transition>> + Send;

    /// A canceled message: succeeds again. Completed or errored: WrongState. Running: needs its live lease or `force`; with
    /// another fencing token LeaseLost, without one WrongState.
    fn cancel(&self, shard: &Shard, cancellations: Vec<Cancellation>)
    -> impl Future<Output = Items<Transition>> + Send;

    /// Makes errored and canceled messages pending, with 0 attempts. A message that Redrive has made pending and that was
    /// not leased since gets the same result; any other WrongState. QueueFull at max_depth.
    fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> impl Future<Output = Items<Transition>> + Send;

    /// Changes priority and visibility in one write; a patch that changes nothing writes nothing. A terminal message, or
    /// the visibility of a running one: WrongState.
    fn update_message(
        &self,
        shard: &Shard,
        id: &MessageId,
        patch: MessagePatch,
    ) -> impl Future<Output = Result<Transition, Refusal>> + Send;

    /// One bounded step of a change of all messages that a selection matches (Q25): examines at most `limit` messages of
    /// one state, in the order of [`Store::list_messages`] (in an exclusive queue the messages that wait for another one of
    /// their value come first), and changes those that the selection matches, each as the verb of that name does. The first
    /// step has an empty cursor. Messages that entered their state after it do not match. A message may be examined again
    /// where a change or another call moves it on in the order; that it is missed takes another call that moves it back.
    fn change_messages(
        &self,
        shard: &Shard,
        request: &ChangeRequest,
        cursor: &str,
        limit: usize,
    ) -> impl Future<Output = Result<ChangedPage, Refusal>> + Send;

    /// The messages with these ids.
    fn get_messages(&self, shard: &Shard, ids: Vec<MessageId>) -> impl Future<Output = Items<Message>> + Send;

    /// Messages of one state. Pending: the runnable ones, most urgent first, then (in exclusive queues) the others by
    /// value and urgency. Invisible and running: by due time. Terminal: by the time when they ended.
    fn list_messages(
        &self,
        shard: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Message>, Refusal>> + Send;

    /// The facts from which [`hindrances`](crate::explain::hindrances) follow.
    fn explain(&self, shard: &Shard, id: &MessageId) -> impl Future<Output = Result<Facts, Refusal>> + Send;

    /// Exact counts (Q9) of all messages, or of those that pass the filter.
    fn depth(&self, shard: &Shard, filter: Option<&Filter>) -> impl Future<Output = Result<Depth, Refusal>> + Send;

    /// The ages of the oldest runnable message and of the oldest lease (O1). The call does not move due messages.
    fn ages(&self, shard: &Shard) -> impl Future<Output = Result<Ages, Refusal>> + Send;

    /// One bounded step of the background work: promotes messages whose invisibility has ended, ends expired leases,
    /// collects terminal messages past the retention, and the oldest errored ones beyond `max_errored` and
    /// `max_errored_bytes`, whose events have the reason [`TOO_MANY_ERRORED`].
    fn sweep(&self, shard: &Shard) -> impl Future<Output = Result<Swept, Refusal>> + Send;

    /// One bounded step of the scrubber. Returns how many messages it checked, and a page of the violations found.
    fn check(
        &self,
        shard: &Shard,
        cursor: &str,
    ) -> impl Future<Output = Result<(u64, Page<Violation>), Refusal>> + Send;

    /// Registers the callback for shards with callers that wait (see [`Store::dequeue`]): the store calls it promptly, at
    /// least once, when a message becomes runnable there. It may also call it when none is.
    fn on_ready(&self, notify: Box<dyn Fn(&Shard) + Send + Sync>);

    /// Whether the calls for this first shard go to several shards. Then the store itself notes which of them answer.
    fn is_spread(&self, first: &Shard) -> bool {
        let _ = first;
        false
    }

    /// How long a call on one shard of several may take. After that the calls on the others go on without it.
    fn patience(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// Registers the callback for leases that a Cancel with `force` or a purge has ended (Q7, Q23): the store calls it
    /// promptly. A call may be lost when the store is unavailable: then the worker learns it when it next uses the lease.
    fn on_revoked(&self, notify: NotifyRevoked);

    /// Notifies the servers on this store that small flushes of this flow (a queue or a tenant) are slow, so that they send
    /// large flushes in steps (S5). `shard`: one that the flow uses.
    fn notify_light_flow(&self, shard: &Shard, flow: &str) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Registers the callback for [`notify_light_flow`](Store::notify_light_flow) of any server on this store. A call may be
    /// lost.
    fn on_light_flow(&self, notify: NotifyLightFlow);
}
