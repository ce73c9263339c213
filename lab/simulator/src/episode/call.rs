//! One call of a server about one queue, which can be made again.

use super::servers::ServerStore;
use std::time::Duration;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, Completion, DequeueRequest, Dequeued, Extension, LeaseRef, MessagePatch, Queue, Release, Ticket,
    Transition,
};
use tallystone_model::{MessageId, NewMessage, QueuePatch, Refusal, Shard, Store};

/// What a caller wants of one queue.
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
    /// Of each shard.
    Sweep,
    /// Of each shard.
    Purge {
        include_running: bool,
    },
    /// Reads the outbox of each shard and acknowledges what it has read.
    Relay,
    /// What a server does every minute: it brings the shards of all queues up to date, and ends changes of their numbers.
    CheckShards,
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

/// Steps of a purge.
const STEPS_MAX: usize = 1_000;

/// Purges each shard of a queue.
pub(super) async fn purge(store: &ServerStore, first: &Shard, include_running: bool) -> Result<(), Refusal> {
    let mut cursor = String::new();
    for _ in 0..STEPS_MAX {
        cursor = store.purge(first, include_running, &cursor).await?.next_cursor;
        if cursor.is_empty() {
            return Ok(());
        }
    }
    Err(Refusal::Internal("the purge does not end".to_owned()))
}

/// Sweeps each shard of a queue. One that another server has removed is not there.
pub(super) async fn sweep(store: &ServerStore, first: &Shard) -> Result<(), Refusal> {
    for shard in store.layout(first).await?.shards(&first.queue) {
        match store.sweep(&shard).await {
            Err(Refusal::QueueNotFound { .. }) if shard.number > 0 => {}
            swept => drop(swept?),
        }
    }
    Ok(())
}

impl Call {
    /// The messages of an Enqueue that were refused because Redis, or the right shard, could not be reached.
    pub(super) fn left_of(&self, answer: &CallAnswer) -> Option<Call> {
        let (Call::Enqueue(messages), CallAnswer::Enqueued(items)) = (self, answer) else { return None };
        let is_left = |item: &Result<Enqueued, Refusal>| item.as_ref().is_err_and(Refusal::is_unavailable);
        let left = messages.iter().zip(items).filter(|(_, item)| is_left(item)).map(|(message, _)| message.clone());
        let left: Vec<NewMessage> = left.collect();
        (!left.is_empty()).then_some(Call::Enqueue(left))
    }

    pub(super) async fn on(self, store: &ServerStore, shard: &Shard) -> Result<CallAnswer, Refusal> {
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
            Call::Purge { include_running } => {
                purge(store, shard, include_running).await?;
                CallAnswer::Done
            }
            Call::Relay => {
                for shard in store.layout(shard).await?.shards(&shard.queue) {
                    let mut reader = store.inner().outbox_reader();
                    reader.watch(shard.clone()).await?;
                    reader.read(Duration::from_millis(1)).await?;
                    reader.ack(&[shard].into()).await?;
                }
                CallAnswer::Done
            }
            Call::Sweep => {
                sweep(store, shard).await?;
                CallAnswer::Done
            }
            Call::CheckShards => {
                store.inner().check_shards().await?;
                CallAnswer::Done
            }
        })
    }
}
