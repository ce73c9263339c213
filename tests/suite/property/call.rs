//! One step made concrete: the call, on any store, and its answer as one comparable value.

use crate::property::program::{Act, Held, QUEUES, TicketOf, id_of, message_patch};
use std::collections::{BTreeSet, HashMap};
use tallystone_model::explain::Facts;
use tallystone_model::message::Enqueued;
use tallystone_model::store::*;
use tallystone_model::*;

/// The tokens that the messages of a program were given, by queue and place of the id, in order.
#[derive(Default)]
pub(crate) struct Tokens(HashMap<(usize, MessageId), Vec<u64>>, Tickets);

/// The first numbers of the tickets that have been taken, by queue, server and slot; and the last number of all. Every other number
/// is left to repetitions.
type Tickets = (HashMap<(usize, u64, u8), u64>, u64);

impl Tokens {
    /// Takes note of the leases in an answer.
    pub(crate) fn learn(&mut self, queue: usize, answer: &CallReply) {
        let CallReply::Dequeued(Ok(dequeued)) = answer else { return };
        for lease in dequeued.leases.iter().flatten().flatten() {
            let known = self.0.entry((queue, lease.id.clone())).or_default();
            if !known.contains(&lease.fencing_token) {
                known.push(lease.fencing_token);
            }
        }
    }

    /// The next try of a ticket. No other call of the slot is under way.
    fn ticket(&mut self, queue: usize, of: TicketOf) -> Ticket {
        let TicketOf { server, slot, again } = of;
        let (firsts, last) = &mut self.1;
        *last += 2;
        let first = firsts.entry((queue, server, slot)).or_insert(*last);
        if !again {
            *first = *last;
        }
        Ticket { server, slot, first: *first, number: *last }
    }

    fn lease(&self, queue: usize, held: Held) -> LeaseRef {
        let given = held.token_of.and_then(|of| self.0.get(&(queue, id_of(of))));
        let fencing_token = given.and_then(|given| given.iter().rev().nth(held.back)).copied().unwrap_or(0);
        LeaseRef { id: id_of(held.id), fencing_token }
    }
}

/// One call of the store, as it is sent.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Enqueue(Vec<NewMessage>),
    Dequeue(Vec<DequeueRequest>, bool, Option<Ticket>),
    Complete(Vec<Completion>),
    Extend(Vec<Extension>),
    Release(Vec<Release>),
    Cancel(Vec<Cancellation>),
    Redrive(Vec<MessageId>),
    Update(MessageId, MessagePatch),
    Change(ChangeRequest, usize),
    Purge(bool),
    Create(QueueConfig),
    Configure(QueuePatch),
    Delete,
    Explain(MessageId),
    DepthOf(Filter),
    Sweep,
}

/// What a call answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallReply {
    Enqueued(Items<Enqueued>),
    Dequeued(Result<Dequeued, Refusal>),
    Went(Items<Transition>),
    Extended(Items<Extended>),
    WentOne(Result<Transition, Refusal>),
    /// Over all pages.
    Changed(Result<Changes, Refusal>),
    /// How many, over all steps of the purge; likewise the sweep.
    Purged(Result<u64, Refusal>),
    Queue(Result<Queue, Refusal>),
    Deleted(Result<(), Refusal>),
    Facts(Result<Box<Facts>, Refusal>),
    Depth(Result<Depth, Refusal>),
    Swept(Result<Swept, Refusal>),
}

/// What all pages of a selection answer: how many matched and were changed, and the refused ones.
type Changes = (u64, u64, Vec<(MessageId, Refusal)>);

impl Call {
    /// The call of a step; `None`: the step moves the clock.
    pub(crate) fn of(act: &Act, queue: usize, tokens: &mut Tokens, now_ms: u64) -> Option<Call> {
        if let Act::Dequeue { requests, wait, ticket } = act {
            return Some(Call::Dequeue(requests.clone(), *wait, ticket.map(|ticket| tokens.ticket(queue, ticket))));
        }
        let lease = |held: &Held| tokens.lease(queue, *held);
        Some(match act {
            Act::Enqueue(messages) => Call::Enqueue(messages.clone()),
            Act::Complete(items) => {
                let completion = |(held, result): &(Held, &'static str)| Completion {
                    lease: lease(held),
                    result: bytes::Bytes::from_static(result.as_bytes()),
                };
                Call::Complete(items.iter().map(completion).collect())
            }
            Act::Extend(items) => {
                let extension = |(held, lease_ms, request_id): &(Held, Option<u64>, String)| Extension {
                    lease: lease(held),
                    lease_ms: *lease_ms,
                    request_id: request_id.clone(),
                };
                Call::Extend(items.iter().map(extension).collect())
            }
            Act::Release(items) => {
                let release = |(held, delay_ms, reason, verdict): &(Held, Option<u64>, String, Verdict)| Release {
                    lease: lease(held),
                    delay_ms: *delay_ms,
                    reason: reason.clone(),
                    verdict: *verdict,
                };
                Call::Release(items.iter().map(release).collect())
            }
            Act::Cancel(items) => {
                let cancellation = |(held, force, reason): &(Held, bool, String)| {
                    let LeaseRef { id, fencing_token } = lease(held);
                    Cancellation { id, fencing_token, force: *force, reason: reason.clone() }
                };
                Call::Cancel(items.iter().map(cancellation).collect())
            }
            Act::Redrive(ids) => Call::Redrive(ids.iter().map(|at| id_of(*at)).collect()),
            Act::Update { id, priority, visible_in_ms } => {
                Call::Update(id_of(*id), message_patch(*priority, *visible_in_ms, now_ms))
            }
            Act::Change(request, page_items) => Call::Change(request.clone(), *page_items),
            Act::Purge { include_running } => Call::Purge(*include_running),
            Act::Create(config) => Call::Create(config.clone()),
            Act::Configure(patch) => Call::Configure(patch.clone()),
            Act::Reshard(shards) => Call::Configure(QueuePatch { shards: Some(*shards), ..QueuePatch::default() }),
            Act::Delete => Call::Delete,
            Act::Explain(id) => Call::Explain(id_of(*id)),
            Act::DepthOf(filter) => Call::DepthOf(filter.clone()),
            Act::Sweep => Call::Sweep,
            Act::Dequeue { .. } | Act::Finish | Act::Pass { .. } | Act::PassToDue { .. } => return None,
        })
    }

    /// Makes the call.
    pub(crate) async fn on<S: Store>(&self, store: &S, shard: &Shard) -> CallReply {
        match self.clone() {
            Call::Enqueue(messages) => CallReply::Enqueued(store.enqueue(shard, messages).await),
            Call::Dequeue(requests, wait, ticket) => {
                CallReply::Dequeued(store.dequeue(shard, &requests, wait, ticket).await)
            }
            Call::Complete(completions) => CallReply::Went(store.complete(shard, completions).await),
            Call::Extend(extensions) => CallReply::Extended(store.extend_lease(shard, extensions).await),
            Call::Release(releases) => CallReply::Went(store.release(shard, releases).await),
            Call::Cancel(cancellations) => CallReply::Went(store.cancel(shard, cancellations).await),
            Call::Redrive(ids) => CallReply::Went(store.redrive(shard, ids).await),
            Call::Update(id, patch) => CallReply::WentOne(store.update_message(shard, &id, patch).await),
            Call::Change(request, page_items) => {
                CallReply::Changed(change_all(store, shard, &request, page_items).await)
            }
            Call::Purge(include_running) => CallReply::Purged(purge(store, shard, include_running).await),
            Call::Create(config) => CallReply::Queue(store.create_queue(&shard.queue, config).await),
            Call::Configure(patch) => CallReply::Queue(store.update_queue(&shard.queue, patch).await),
            Call::Delete => CallReply::Deleted(store.delete_queue(&shard.queue).await),
            Call::Explain(id) => CallReply::Facts(store.explain(shard, &id).await.map(Box::new)),
            Call::DepthOf(filter) => CallReply::Depth(store.depth(shard, Some(&filter)).await),
            Call::Sweep => CallReply::Swept(sweep(store, shard).await),
        }
    }

    /// The same call as the next try of its ticket.
    pub(crate) fn tried_again(&self) -> Call {
        match self.clone() {
            Call::Dequeue(requests, wait, Some(ticket)) => {
                Call::Dequeue(requests, wait, Some(Ticket { number: ticket.number + 1, ..ticket }))
            }
            other => other,
        }
    }

    /// Whether the same call at once must answer the same and change nothing (Q10). Not so where an item undoes
    /// what an earlier item of the same name answered, nor where neither an id nor a ticket identifies what it repeats.
    pub(crate) fn is_repeatable(&self) -> bool {
        let distinct = |names: &[&str]| names.iter().collect::<BTreeSet<_>>().len() == names.len();
        let ids = self.ids();
        if !distinct(&ids.iter().map(MessageId::as_str).collect::<Vec<_>>()) {
            return false;
        }
        match self {
            Call::Dequeue(requests, _, ticket) => {
                let ids = requests.iter().map(|request| request.request_id.as_str());
                let (named, nameless): (Vec<&str>, Vec<&str>) = ids.partition(|id| !id.is_empty());
                distinct(&named) && (nameless.is_empty() || ticket.is_some())
            }
            Call::Extend(extensions) => extensions.iter().all(|extension| !extension.request_id.is_empty()),
            Call::Change(request, _) => request.dry_run,
            Call::Purge(_) | Call::Delete | Call::Sweep => false,
            _ => true,
        }
    }

    /// Whether the shards of the queue may be others after it.
    pub(crate) fn changes_shards(&self) -> bool {
        match self {
            Call::Create(_) | Call::Delete => true,
            Call::Configure(patch) => patch.shards.is_some(),
            _ => false,
        }
    }

    /// A verb of workers and senders, not of operators.
    pub(crate) fn is_by_worker(&self) -> bool {
        use Call::*;
        matches!(self, Enqueue(_) | Dequeue(..) | Complete(_) | Extend(_) | Release(_) | Cancel(_))
    }

    /// The messages that the call names.
    pub(crate) fn ids(&self) -> Vec<MessageId> {
        match self {
            Call::Enqueue(messages) => messages.iter().map(|message| message.id.clone()).collect(),
            Call::Complete(completions) => completions.iter().map(|completion| completion.lease.id.clone()).collect(),
            Call::Extend(extensions) => extensions.iter().map(|extension| extension.lease.id.clone()).collect(),
            Call::Release(releases) => releases.iter().map(|release| release.lease.id.clone()).collect(),
            Call::Cancel(cancellations) => cancellations.iter().map(|cancellation| cancellation.id.clone()).collect(),
            Call::Redrive(ids) => ids.clone(),
            Call::Update(id, _) | Call::Explain(id) => vec![id.clone()],
            _ => Vec::new(),
        }
    }
}

impl CallReply {
    /// Takes out what a store may answer in its own way: Redis reads the next sweep's time from a list with
    /// entries of messages that were redriven since, so it may sweep early.
    pub(crate) fn comparable(self) -> CallReply {
        match self {
            CallReply::Swept(Ok(swept)) => CallReply::Swept(Ok(Swept { next_ms: None, ..swept })),
            other => other,
        }
    }

    /// Takes out what is only about so in a queue with several shards: how many messages are runnable.
    pub(crate) fn without_outlook(self) -> CallReply {
        match self {
            CallReply::Dequeued(Ok(dequeued)) => {
                CallReply::Dequeued(Ok(Dequeued { outlook: Outlook::default(), cut_short: false, ..dequeued }))
            }
            other => other,
        }
    }

    /// The answer when the same call is repeated: the leases that had expired are ended and counted already.
    pub(crate) fn repeated(self) -> CallReply {
        match self {
            CallReply::Dequeued(Ok(dequeued)) => {
                CallReply::Dequeued(Ok(Dequeued { expired: 0, errored: 0, ..dequeued }))
            }
            other => other,
        }
    }
}

/// Sweeps each shard of a queue.
async fn sweep<S: Store>(store: &S, first: &Shard) -> Result<Swept, Refusal> {
    let numbers = store.layout(first).await?.numbers();
    let mut all = sweep_shard(store, first).await?;
    for number in numbers.skip(1) {
        let next = sweep_shard(store, &first.sibling(number)).await?;
        all = Swept { next_ms: all.next_ms.into_iter().chain(next.next_ms).min(), ..sum(all, next) };
    }
    Ok(all)
}

fn sum(all: Swept, step: Swept) -> Swept {
    let (promoted, expired) = (all.promoted + step.promoted, all.expired + step.expired);
    let errored = all.errored + step.errored;
    let (collected, dropped) = (all.collected + step.collected, all.dropped + step.dropped);
    Swept { promoted, expired, errored, collected, dropped, ..step }
}

/// Sweeps until nothing is due: which messages a bounded step takes first is open where they are due alike.
async fn sweep_shard<S: Store>(store: &S, shard: &Shard) -> Result<Swept, Refusal> {
    const STEPS_MAX: usize = 100;
    let mut all = Swept::default();
    for _ in 0..STEPS_MAX {
        let step = store.sweep(shard).await?;
        all = sum(all, step);
        if step.next_ms.is_none_or(|at_ms| at_ms > step.now_ms) {
            return Ok(all);
        }
    }
    Err(Refusal::Internal(format!("after {STEPS_MAX} sweeps something is due still")))
}

async fn change_all<S: Store>(
    store: &S,
    shard: &Shard,
    request: &ChangeRequest,
    page_items: usize,
) -> Result<Changes, Refusal> {
    const PAGES_MAX: usize = 100_000;
    let ((mut matched, mut changed), mut refused, mut cursor) = ((0, 0), Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let page = store.change_messages(shard, request, &cursor, page_items).await?;
        matched += page.matched;
        changed += page.changed;
        refused.extend(page.refused);
        if page.next_cursor.is_empty() {
            return Ok((matched, changed, refused));
        }
        cursor = page.next_cursor;
    }
    Err(Refusal::Internal(format!("after {PAGES_MAX} pages there are more")))
}

async fn purge<S: Store>(store: &S, shard: &Shard, include_running: bool) -> Result<u64, Refusal> {
    let (mut purged, mut cursor) = (0, String::new());
    loop {
        let step = store.purge(shard, include_running, &cursor).await?;
        purged += step.purged;
        if step.next_cursor.is_empty() {
            return Ok(purged);
        }
        cursor = step.next_cursor;
    }
}

/// The queues of one run of a program; no other run has them.
pub(crate) fn shards(run: &str) -> [Shard; QUEUES] {
    std::array::from_fn(|queue| {
        let name = QueueName::parse("queue", &format!("{run}/{queue}")).expect("a valid queue name");
        Shard::first(&name)
    })
}
