//! One flush: the gathered calls of a lane as one store call per verb, all sent at once.

use super::context::Context;
use super::gather::{Batch, Parts};
use super::waiting::DequeueBatch;
use crate::config::CreateOnEnqueue;
use futures::FutureExt;
use futures::future::OptionFuture;
use std::sync::Arc;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{Cancellation, Completion, Dequeued, Extended, Extension, Items, Release, Transition};
use tallystone_model::{NewMessage, QueueConfig, QueueName, Refusal, Shard, Store};

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
    /// The enqueue had to create its queue first, so the dequeue was executed before it.
    pub(super) overtaken: bool,
}

impl Flush {
    /// The number of items; each request of the dequeue counts as one.
    pub(super) fn items(&self) -> usize {
        fn of<I, O>(batch: &Option<Batch<I, O>>) -> usize {
            batch.as_ref().map_or(0, |batch| batch.items.len())
        }
        of(&self.complete)
            + of(&self.release)
            + of(&self.extend)
            + of(&self.cancel)
            + of(&self.enqueue)
            + self.dequeue.as_ref().map_or(0, |batch| batch.requests.len())
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
    /// Whether the store has answered a call that there is no such queue.
    pub(super) fn finds_no_queue(&self) -> bool {
        fn by<P, T>(answer: &Option<(P, Result<T, Refusal>)>) -> bool {
            matches!(answer, Some((_, Err(Refusal::QueueNotFound { .. }))))
        }
        by(&self.complete)
            || by(&self.release)
            || by(&self.extend)
            || by(&self.cancel)
            || by(&self.enqueue)
            || by(&self.dequeue)
    }
}

/// Sends a flush. The store calls do not wait for each other. They are polled in this order and so reach the store's
/// connection in this order: the dequeue comes after the calls that may make messages runnable. Most flushes have one or two
/// of the six calls: each is boxed, so that a flush does not reserve the memory of all.
pub(super) async fn perform<S: Store>(context: Arc<Context<S>>, shard: Shard, flush: Flush) -> Outcome {
    let (store, shard) = (&*context.store, &shard);
    let mut overtaken = false;
    let complete = flush.complete.map(|batch| {
        let call = async {
            let answer = store.complete(shard, batch.items).await;
            (batch.parts, answer)
        };
        call.boxed()
    });
    let release = flush.release.map(|batch| {
        let call = async {
            let answer = store.release(shard, batch.items).await;
            (batch.parts, answer)
        };
        call.boxed()
    });
    let extend = flush.extend.map(|batch| {
        let call = async {
            let answer = store.extend_lease(shard, batch.items).await;
            (batch.parts, answer)
        };
        call.boxed()
    });
    let cancel = flush.cancel.map(|batch| {
        let call = async {
            let answer = store.cancel(shard, batch.items).await;
            (batch.parts, answer)
        };
        call.boxed()
    });
    let (context, overtaken_by) = (&context, &mut overtaken);
    let enqueue = flush.enqueue.map(|Batch { items, parts, may_create }| {
        let call = async move {
            let (answer, created) = enqueue_or_create(context, shard, items, may_create).await;
            *overtaken_by = created;
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
    let (complete, release, extend, cancel, enqueue, dequeue) = futures::join!(
        OptionFuture::from(complete),
        OptionFuture::from(release),
        OptionFuture::from(extend),
        OptionFuture::from(cancel),
        OptionFuture::from(enqueue),
        OptionFuture::from(dequeue),
    );
    Outcome { complete, release, extend, cancel, enqueue, dequeue, overtaken }
}

/// Enqueues; the first Enqueue creates the queue from its template (Q1). Returns whether it came after the dequeue of its
/// flush, because it had to create the queue.
async fn enqueue_or_create<S: Store>(
    context: &Context<S>,
    shard: &Shard,
    messages: Vec<NewMessage>,
    may_create: bool,
) -> (Items<Enqueued>, bool) {
    // The store consumes the messages, and only the store knows whether the queue (still) exists.
    let again = messages.clone();
    let not_found = match context.store.enqueue(shard, messages).await {
        Err(refusal @ Refusal::QueueNotFound { .. }) => refusal,
        answer => return (answer, false),
    };
    let config = match config_of_new(context, &shard.queue, may_create).await {
        Ok(Some(config)) => config,
        Ok(None) => return (Err(not_found), false),
        Err(refusal) => return (Err(refusal), false),
    };
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
