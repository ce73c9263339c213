//! One flush: the gathered calls of a lane as one store call per verb, all sent at once.

use super::context::Context;
use super::cost::Load;
use super::fair_queue::Permit;
use super::gather::{Batch, FLUSH_ITEMS, Parts};
use super::steps;
use super::waiting::DequeueBatch;
use crate::again;
use crate::config::CreateOnEnqueue;
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{Cancellation, Completion, Dequeued, Extended, Extension, Items, Release, Transition};
use tallystone_model::{Lease, NewMessage, QueueConfig, QueueName, Refusal, Shard, Store};
use tallystone_serving::WaitingRoom;
use tokio::time::Instant;

/// The store calls of one flush.
#[derive(Default)]
pub(super) struct Flush {
    pub(super) complete: Option<Batch<Completion, Transition>>,
    pub(super) release: Option<Batch<Release, Transition>>,
    pub(super) extend: Option<Batch<Extension, Extended>>,
    pub(super) cancel: Option<Batch<Cancellation, Transition>>,
    pub(super) enqueue: Option<Batch<NewMessage, Enqueued>>,
    pub(super) dequeue: Option<DequeueBatch>,
}

/// The results of a flush.
pub(super) struct Outcome {
    pub(super) complete: Option<(Parts<Transition>, Items<Transition>)>,
    pub(super) release: Option<(Parts<Transition>, Items<Transition>)>,
    pub(super) extend: Option<(Parts<Extended>, Items<Extended>)>,
    pub(super) cancel: Option<(Parts<Transition>, Items<Transition>)>,
    pub(super) enqueue: Option<(Parts<Enqueued>, Items<Enqueued>)>,
    pub(super) dequeue: Option<(DequeueBatch, Result<Dequeued, Refusal>)>,
    /// When the dequeue was sent: its leases run from then on at the earliest.
    pub(super) dequeue_sent_at: Instant,
    /// The messages that the dequeue has leased.
    pub(super) leased: Load,
    /// The dequeue was executed before a part of the other calls: the enqueue had to create its queue first, or a call had
    /// several steps.
    pub(super) overtaken: bool,
}

impl Flush {
    /// What is sent to the store; each request of the dequeue counts as one item.
    pub(super) fn load(&self) -> Load {
        fn of<I, O>(batch: &Option<Batch<I, O>>) -> Load {
            batch.as_ref().map(Batch::load).unwrap_or_default()
        }
        let requests = self.dequeue.as_ref().map_or(0, |batch| batch.requests.len());
        of(&self.complete)
            .plus(of(&self.release))
            .plus(of(&self.extend))
            .plus(of(&self.cancel))
            .plus(of(&self.enqueue))
            .plus(Load { items: requests, bytes: 0 })
    }

    /// Whether a call has more items than one step of this size.
    fn has_steps(&self, step: Option<usize>) -> bool {
        fn length<I, O>(batch: &Option<Batch<I, O>>) -> usize {
            batch.as_ref().map_or(0, |batch| batch.items.len())
        }
        let Flush { complete, release, extend, cancel, enqueue, .. } = self;
        let lengths = [length(complete), length(release), length(extend), length(cancel), length(enqueue)];
        step.is_some_and(|step| lengths.into_iter().any(|length| length > step))
    }

    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        !self.writes() && self.dequeue.is_none()
    }

    /// Whether there is another store call than the dequeue.
    pub(super) fn writes(&self) -> bool {
        self.complete.is_some()
            || self.release.is_some()
            || self.extend.is_some()
            || self.cancel.is_some()
            || self.enqueue.is_some()
    }
}

impl Outcome {
    /// Whether the queue exists, as the store has answered; `None`: no answer says so. (A quota refuses a whole call only if
    /// it would have to create its queue.)
    pub(super) fn finds_queue(&self) -> Option<bool> {
        if self.has(|refusal| matches!(refusal, Refusal::QueueNotFound { .. } | Refusal::TenantQuota { .. })) {
            return Some(false);
        }
        fn is_executed<P, T>(answer: &Option<(P, Result<T, Refusal>)>) -> bool {
            matches!(answer, Some((_, Ok(_))))
        }
        let is_executed = is_executed(&self.complete)
            || is_executed(&self.release)
            || is_executed(&self.extend)
            || is_executed(&self.cancel)
            || is_executed(&self.enqueue)
            || is_executed(&self.dequeue);
        is_executed.then_some(true)
    }

    /// Whether a call as a whole was refused so.
    fn has(&self, is: fn(&Refusal) -> bool) -> bool {
        fn refusal<P, T>(answer: &Option<(P, Result<T, Refusal>)>) -> Option<&Refusal> {
            answer.as_ref().and_then(|(_, answer)| answer.as_ref().err())
        }
        let refusals = [
            refusal(&self.complete),
            refusal(&self.release),
            refusal(&self.extend),
            refusal(&self.cancel),
            refusal(&self.enqueue),
            refusal(&self.dequeue),
        ];
        refusals.into_iter().flatten().any(is)
    }
}

/// Sends a flush. The store calls do not wait for each other. They are polled in this order and so reach the store's
/// connection in this order: the dequeue comes after the calls that may make messages runnable. `leases`: about what it will
/// lease. Most flushes have one or two of the six calls: each is boxed, so that a flush does not reserve the memory of all.
pub(super) async fn perform<S: Store>(
    context: Arc<Context<S>>,
    shard: Shard,
    flush: Flush,
    leases: Load,
    mut permit: Permit,
) -> Outcome {
    permit.set_cost(flush.load().cost(), leases.cost());
    let began = Instant::now();
    let step = permit.step_items();
    let mut overtaken = flush.has_steps(step);
    let (store, shard) = (&*context.store, &shard);
    let complete = sent(flush.complete, step, |items| store.complete(shard, items));
    let release = sent(flush.release, step, |items| store.release(shard, items));
    let extend = sent(flush.extend, step, |items| store.extend_lease(shard, items));
    let cancel = sent(flush.cancel, step, |items| store.cancel(shard, items));
    let (context, overtaken_by, permit_of_enqueue) = (&context, &mut overtaken, &mut permit);
    let enqueue = flush.enqueue.map(|Batch { mut items, parts, may_create, .. }| {
        let call = async move {
            let (count, began) = (items.len(), Instant::now());
            let later = items.split_off(items.len().min(step.unwrap_or(usize::MAX)));
            let (answer, created) = enqueue_or_create(context, shard, items, may_create, permit_of_enqueue).await;
            *overtaken_by |= created;
            let answer = steps::go_on(answer, later, step, |items| store.enqueue(shard, items)).await;
            note(&context.rooms.messages, &answer, count, began.elapsed());
            (parts, answer)
        };
        call.boxed()
    });
    let dequeue = flush.dequeue.map(|batch| {
        let call = async {
            let answer = store.dequeue(shard, &batch.requests, batch.wait, Some(batch.ticket)).await;
            (batch, answer)
        };
        call.boxed()
    });
    let (complete, release, extend, cancel, enqueue, dequeue) =
        futures::join!(complete, release, extend, cancel, OptionFuture::from(enqueue), OptionFuture::from(dequeue),);
    let leased = dequeue.as_ref().map_or(Load::default(), |(_, answer)| leased(answer));
    permit.leased(leased.cost());
    let outcome =
        Outcome { complete, release, extend, cancel, enqueue, dequeue, dequeue_sent_at: began, leased, overtaken };
    let is_store_away = outcome.has(|refusal| matches!(refusal, Refusal::Unavailable { .. }));
    permit.set_store_away(is_store_away);
    if let Some(flow) = permit.slow_flow(began.elapsed()).filter(|_| !is_store_away) {
        let (context, shard) = (context.clone(), shard.clone());
        tokio::spawn(async move {
            if let Err(error) = context.store.notify_light_flow(&shard, &flow).await {
                tracing::debug!(%error, "other servers are not notified of a slow flow");
            }
        });
    }
    outcome
}

/// Notes how fast the store takes messages: refused calls retry at that rate.
fn note<O>(room: &WaitingRoom, answer: &Items<O>, count: usize, took: Duration) {
    if matches!(answer, Err(Refusal::Unavailable { .. })) {
        return;
    }
    room.note_answer();
    if 2 * count >= FLUSH_ITEMS {
        room.note_flush(count, took);
    }
}

/// The store call of a batch, or its steps, with what the results belong to.
fn sent<'a, I, O, F>(
    batch: Option<Batch<I, O>>,
    step: Option<usize>,
    call: impl Fn(Vec<I>) -> F + Send + 'a,
) -> OptionFuture<BoxFuture<'a, (Parts<O>, Items<O>)>>
where
    I: Send + 'a,
    O: Send + 'a,
    F: Future<Output = Items<O>> + Send + 'a,
{
    let with_parts = |Batch { mut items, parts, .. }: Batch<I, O>| {
        let later = items.split_off(items.len().min(step.unwrap_or(usize::MAX)));
        let call = async move {
            let answer = call(items).await;
            (parts, steps::go_on(answer, later, step, call).await)
        };
        call.boxed()
    };
    batch.map(with_parts).into()
}

/// The messages that a dequeue has leased.
fn leased(answer: &Result<Dequeued, Refusal>) -> Load {
    let leases = answer.iter().flat_map(|dequeued| dequeued.leases.iter().flatten().flatten());
    let load = |lease: &Lease| Load { items: 1, bytes: lease.payload.len() };
    leases.map(load).fold(Load::default(), Load::plus)
}

/// Enqueues; the first Enqueue creates the queue from its template (Q1). Returns whether it came after the dequeue of its
/// flush, because it had to create the queue, or to be sent again.
async fn enqueue_or_create<S: Store>(
    context: &Context<S>,
    shard: &Shard,
    messages: Vec<NewMessage>,
    may_create: bool,
    permit: &mut Permit,
) -> (Items<Enqueued>, bool) {
    // The store consumes the messages, and only the store knows whether the queue (still) exists.
    let again = messages.clone();
    let not_found = match context.store.enqueue(shard, messages).await {
        Err(refusal @ Refusal::QueueNotFound { .. }) => refusal,
        answer if again::some(&answer, Refusal::is_by_earlier_layout) => {
            return (enqueue_again(context, shard, again, answer).await, true);
        }
        answer => return (answer, false),
    };
    let config = match config_of_new(context, &shard.queue, may_create).await {
        Ok(Some(config)) => config,
        Ok(None) => return (Err(not_found), false),
        Err(refusal) => return (Err(refusal), false),
    };
    let mut creating = None;
    if let Some(tenant) = context.tenants.of(&shard.queue) {
        // A tenant creates one queue after the other. Other lanes do not wait for that.
        permit.give_back();
        let alone = creating.insert(tenant.creating().await);
        if let Err(refusal) = alone.check_new(&config).await {
            return (Err(refusal), false);
        }
    }
    let answer = match context.store.create_queue(&shard.queue, config).await {
        Ok(_) => {
            // The queue is there now, whatever becomes of the messages.
            let mut answer = context.store.enqueue(shard, again).await.map_err(Refusal::after_an_earlier_try);
            answer.iter_mut().flatten().flatten().for_each(|enqueued| enqueued.queue_created = true);
            answer
        }
        // Another server has created it at the same moment, with another configuration.
        Err(Refusal::QueueExists { .. }) => context.store.enqueue(shard, again).await,
        Err(refusal) => Err(refusal),
    };
    (answer, true)
}

/// Sends these messages once more, now that the store knows the layout: callers would have to repeat each of them.
async fn enqueue_again<S: Store>(
    context: &Context<S>,
    shard: &Shard,
    messages: Vec<NewMessage>,
    answer: Items<Enqueued>,
) -> Items<Enqueued> {
    let open = again::left(messages, &answer, Refusal::is_by_earlier_layout);
    let coalesce: Vec<bool> = open.iter().map(|message| message.coalesce).collect();
    let mut sent = context.store.enqueue(shard, open).await;
    if answer.is_ok() {
        // A closed shard may have collected the ended message of a coalescing one.
        let each = sent.unwrap_or_else(|refusal| coalesce.iter().map(|_| Err(refusal.clone())).collect());
        let after = |(result, coalesces): (Result<Enqueued, Refusal>, bool)| match coalesces {
            true => result.map_err(Refusal::after_an_earlier_try),
            false => result,
        };
        sent = Ok(each.into_iter().zip(coalesce).map(after).collect());
    }
    again::replaced(answer, sent, Refusal::is_by_earlier_layout)
}

/// The configuration of a queue that an Enqueue may create; `None`: it may not.
async fn config_of_new<S: Store>(
    context: &Context<S>,
    queue: &QueueName,
    may_create: bool,
) -> Result<Option<QueueConfig>, Refusal> {
    let template = context.templates.template_of(queue);
    let config = match (context.create_on_enqueue, template) {
        (CreateOnEnqueue::Never, _) | (CreateOnEnqueue::Templates, None) => return Ok(None),
        (CreateOnEnqueue::Always, None) if !may_create => return Ok(None),
        (_, template) => template.cloned().unwrap_or_default(),
    };
    // Messages of one key must not run at once because an operator has deleted the queue.
    let loses_exclusivity = config.queue_type.key().is_none() && context.store.was_exclusive(queue).await?;
    Ok(Some(config).filter(|_| !loses_exclusivity))
}
