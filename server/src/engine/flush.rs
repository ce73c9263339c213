//! One flush: what has gathered in a lane, one store call per verb, all on their way at once.

use super::Context;
use super::gather::{Batch, Parts};
use super::waiting::Asks;
use futures::future::OptionFuture;
use std::sync::Arc;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{Cancellation, Dequeued, Extended, Extension, Items, LeaseRef, Release, Transition};
use tallystone_model::{NewMessage, Refusal, Shard, Store};

/// The calls of one flush.
#[derive(Default)]
pub(super) struct Flush {
    pub(super) complete: Option<Batch<LeaseRef, Transition>>,
    pub(super) release: Option<Batch<Release, Transition>>,
    pub(super) extend: Option<Batch<Extension, Extended>>,
    pub(super) cancel: Option<Batch<Cancellation, Transition>>,
    pub(super) enqueue: Option<Batch<NewMessage, Enqueued>>,
    pub(super) dequeue: Option<Asks>,
}

/// Their answers.
pub(super) struct Outcome {
    pub(super) complete: Option<(Parts<Transition>, Items<Transition>)>,
    pub(super) release: Option<(Parts<Transition>, Items<Transition>)>,
    pub(super) extend: Option<(Parts<Extended>, Items<Extended>)>,
    pub(super) cancel: Option<(Parts<Transition>, Items<Transition>)>,
    pub(super) enqueue: Option<(Parts<Enqueued>, Items<Enqueued>)>,
    pub(super) dequeue: Option<(Asks, Result<Dequeued, Refusal>)>,
    /// The enqueue had to make its queue first, so the dequeue overtook it.
    pub(super) overtaken: bool,
}

impl Flush {
    /// What is in it, each request of the dequeue one.
    pub(super) fn items(&self) -> usize {
        fn of<I, O>(batch: &Option<Batch<I, O>>) -> usize {
            batch.as_ref().map_or(0, |batch| batch.items.len())
        }
        of(&self.complete)
            + of(&self.release)
            + of(&self.extend)
            + of(&self.cancel)
            + of(&self.enqueue)
            + self.dequeue.as_ref().map_or(0, |asks| asks.requests.len())
    }

    /// Whether there is anything to send.
    pub(super) fn is_empty(&self) -> bool {
        !self.writes() && self.dequeue.is_none()
    }

    /// Whether anything but the dequeue is in it.
    pub(super) fn writes(&self) -> bool {
        self.complete.is_some()
            || self.release.is_some()
            || self.extend.is_some()
            || self.cancel.is_some()
            || self.enqueue.is_some()
    }
}

/// Sends a flush. The calls do not wait for each other: they are polled in this order, so they reach the store's
/// connection in this order, the dequeue behind what may make messages runnable.
pub(super) async fn perform<S: Store>(context: Arc<Context<S>>, shard: Shard, flush: Flush) -> Outcome {
    let (store, shard) = (&*context.store, &shard);
    let mut overtaken = false;
    let complete = flush.complete.map(|batch| async {
        let answer = store.complete(shard, batch.items).await;
        (batch.parts, answer)
    });
    let release = flush.release.map(|batch| async {
        let answer = store.release(shard, batch.items).await;
        (batch.parts, answer)
    });
    let extend = flush.extend.map(|batch| async {
        let answer = store.extend_lease(shard, batch.items).await;
        (batch.parts, answer)
    });
    let cancel = flush.cancel.map(|batch| async {
        let answer = store.cancel(shard, batch.items).await;
        (batch.parts, answer)
    });
    let enqueue = flush.enqueue.map(|batch| async {
        let (answer, late) = enqueue_or_create(&context, shard, batch.items).await;
        overtaken = late;
        (batch.parts, answer)
    });
    let dequeue = flush.dequeue.map(|mut asks| async {
        let requests = std::mem::take(&mut asks.requests);
        let answer = store.dequeue(shard, requests, asks.wait).await;
        (asks, answer)
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

/// Q1: the first Enqueue makes the queue, by its template. Answers whether it had to.
async fn enqueue_or_create<S: Store>(
    context: &Context<S>,
    shard: &Shard,
    messages: Vec<NewMessage>,
) -> (Items<Enqueued>, bool) {
    // The store takes the messages, and only it knows whether the queue is (still) there.
    let again = messages.clone();
    match context.store.enqueue(shard, messages).await {
        Err(Refusal::QueueNotFound { .. }) => {
            let config = context.templates.config_of(&shard.queue);
            let answer = match context.store.create_queue(&shard.queue, config).await {
                // Another server has made it at the same moment, perhaps otherwise.
                Ok(_) | Err(Refusal::QueueExists { .. }) => context.store.enqueue(shard, again).await,
                Err(refusal) => Err(refusal),
            };
            (answer, true)
        }
        answer => (answer, false),
    }
}
