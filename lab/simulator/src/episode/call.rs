//! One call of a store, which can be made again.

use std::time::Duration;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, Completion, DequeueRequest, Dequeued, Extension, LeaseRef, MessagePatch, Queue, Release, Ticket,
    Transition,
};
use tallystone_model::{MessageId, NewMessage, QueuePatch, Refusal, Shard, Store};
use tallystone_server::store::RedisStore;

/// What a caller wants of one shard.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Enqueue(Vec<NewMessage>),
    Dequeue(DequeueRequest, Option<Ticket>),
    Complete(LeaseRef),
    Extend(Extension),
    Release(Release),
    Cancel(Cancellation),
    Redrive(MessageId),
    Configure(QueuePatch),
    Describe,
    Update(MessageId, MessagePatch),
    Sweep,
    /// One step of it.
    Purge,
    /// Reads the outbox and acknowledges what it has read.
    Relay,
}

/// What it got.
#[derive(Debug)]
pub(super) enum CallAnswer {
    Enqueued(Vec<Result<Enqueued, Refusal>>),
    Dequeued(Dequeued),
    Went(MessageId, Result<Transition, Refusal>),
    /// By the holder of the lease.
    Ended(LeaseRef, Result<Transition, Refusal>),
    Queue(Queue),
    /// Nothing that a judge needs.
    Done,
}

fn only<T>(mut items: Vec<Result<T, Refusal>>) -> Result<T, Refusal> {
    items.pop().unwrap_or_else(|| Err(Refusal::Internal("no item for an item".to_owned())))
}

impl Call {
    pub(super) async fn on(self, store: &RedisStore, shard: &Shard) -> Result<CallAnswer, Refusal> {
        Ok(match self {
            Call::Enqueue(messages) => CallAnswer::Enqueued(store.enqueue(shard, messages).await?),
            Call::Dequeue(request, ticket) => {
                CallAnswer::Dequeued(store.dequeue(shard, &[request], false, ticket).await?)
            }
            Call::Complete(lease) => {
                let ended = only(store.complete(shard, vec![Completion::from(lease.clone())]).await?);
                CallAnswer::Ended(lease, ended)
            }
            Call::Extend(extension) => {
                store.extend_lease(shard, vec![extension]).await?;
                CallAnswer::Done
            }
            Call::Release(release) => {
                let lease = release.lease.clone();
                CallAnswer::Ended(lease, only(store.release(shard, vec![release]).await?))
            }
            Call::Cancel(cancellation) => {
                let id = cancellation.id.clone();
                CallAnswer::Went(id, only(store.cancel(shard, vec![cancellation]).await?))
            }
            Call::Redrive(id) => CallAnswer::Went(id.clone(), only(store.redrive(shard, vec![id]).await?)),
            Call::Configure(patch) => CallAnswer::Queue(store.update_queue(&shard.queue, patch).await?),
            Call::Describe => CallAnswer::Queue(store.get_queue(&shard.queue).await?),
            Call::Update(id, patch) => {
                let went = store.update_message(shard, &id, patch).await;
                // As the items of a batch: only a refusal of the whole call is repeated.
                match went {
                    Err(refusal) if refusal.is_unavailable() => return Err(refusal),
                    went => CallAnswer::Went(id, went),
                }
            }
            Call::Purge => {
                store.purge(shard, false, "").await?;
                CallAnswer::Done
            }
            Call::Relay => {
                let mut reader = store.outbox_reader();
                reader.watch(shard.clone()).await?;
                reader.read(Duration::from_millis(1)).await?;
                reader.ack(&[shard.clone()].into()).await?;
                CallAnswer::Done
            }
            Call::Sweep => {
                store.sweep(shard).await?;
                CallAnswer::Done
            }
        })
    }
}
