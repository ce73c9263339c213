//! The verbs of whole queues.

use super::all_known::Notify;
use super::batch::{divide, send};
use super::cursor::Cursor;
use super::dequeue::Dequeue;
use super::layouts::says_not_there;
use super::one_queue::OneQueue;
use super::store::Sharded;
use crate::again;
use std::sync::Arc;
use tallystone_model::config::{QueueConfig, QueuePatch};
use tallystone_model::explain::Facts;
use tallystone_model::invariants::Violation;
use tallystone_model::message::{Enqueued, Message, NewMessage};
use tallystone_model::store::*;
use tallystone_model::{
    ChangeRequest, ChangedPage, Filter, Layout, MessageId, QueueName, Refusal, Shard, State, Store,
};

/// Calls that name leases or ids. `$note`: notes that a part is sent to a shard. `$is_exempt`: its script may make messages runnable, and
/// wakes no caller of this server, because the Dequeue of the same flush is sent behind it.
macro_rules! of_leases {
    ($verb:ident, $note:expr, $is_exempt:expr, $item:ty, $answer:ty, $lease:expr) => {
        async fn $verb(&self, first: &Shard, items: Vec<$item>) -> Items<$answer> {
            let is_exempt: bool = $is_exempt;
            let call = async |layout: &Layout, items: Vec<$item>, is_again: bool| {
                if layout.is_plain() {
                    let answer = self.inner.$verb(first, items).await;
                    if is_exempt && is_again {
                        self.known.wakes(first);
                    }
                    return answer;
                }
                let queue = self.queue(first, layout);
                let leases: Vec<LeaseRef> = items.iter().map($lease).collect();
                let (numbers, has_searched) = queue.numbers_of_leases(&leases).await;
                let (count, parts) = (items.len(), divide(items, numbers));
                let note: fn(&OneQueue<'_, S>, u16) = $note;
                let called: Vec<u16> = parts.0.keys().copied().collect();
                called.iter().for_each(|number| note(&queue, *number));
                let store = &*self.inner;
                let sent = send(&queue, count, parts, |shard, items| async move { store.$verb(&shard, items).await });
                let answer = sent.await;
                if is_exempt && (is_again || has_searched) {
                    queue.wakes(called);
                }
                answer
            };
            let layout = self.layout_of(first).await?;
            let again = items.clone();
            let answer = call(&layout, items, false).await;
            if !again::some(&answer, says_not_there) {
                return answer;
            }
            match self.layout_since(first, &layout).await {
                None => answer,
                Some(current) => {
                    let sent = call(&current, again::left(again, &answer, says_not_there), true).await;
                    again::replaced(answer, sent, says_not_there)
                }
            }
        }
    };
}

/// The same for one message.
macro_rules! of_message {
    ($self:ident, $first:ident, |$layout:ident| $call:expr) => {{
        let call = async |$layout: &Layout| $call;
        let layout = $self.layout_of($first).await?;
        let answer = call(&layout).await;
        if !answer.as_ref().is_err_and(says_not_there) {
            return answer;
        }
        match $self.layout_since($first, &layout).await {
            None => answer,
            Some(current) => call(&current).await,
        }
    }};
}

impl<S: Store> Store for Sharded<S> {
    async fn create_queue(&self, name: &QueueName, config: QueueConfig) -> Result<Queue, Refusal> {
        self.inner.create_queue(name, config).await
    }

    async fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        self.inner.update_queue(name, patch).await
    }

    async fn get_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        self.inner.get_queue(name).await
    }

    async fn list_queues(&self, prefix: &str, cursor: &str, limit: usize) -> Result<Page<Queue>, Refusal> {
        self.inner.list_queues(prefix, cursor, limit).await
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<(), Refusal> {
        let deleted = self.inner.delete_queue(name).await;
        if deleted.is_ok() {
            self.known.forget(name);
        }
        deleted
    }

    async fn was_exclusive(&self, name: &QueueName) -> Result<bool, Refusal> {
        self.inner.was_exclusive(name).await
    }

    async fn layout(&self, first: &Shard) -> Result<Layout, Refusal> {
        self.inner.layout(first).await
    }

    async fn mend(&self, shard: &Shard) -> Result<(), Refusal> {
        self.inner.mend(shard).await
    }

    async fn holds(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<bool>, Refusal> {
        self.inner.holds(shard, ids).await
    }

    async fn purge(&self, first: &Shard, include_running: bool, cursor: &str) -> Result<Purged, Refusal> {
        let (layout, store) = (self.layout_of(first).await?, &*self.inner);
        let cursor = Cursor::parse(cursor, "cursor", &layout)?;
        let within = cursor.within.as_str();
        let step = |shard: Shard| async move { store.purge(&shard, include_running, within).await };
        let step = self.step(first, &layout, &cursor, true, step).await?;
        let next_cursor = self.behind(first, layout, &cursor, step.next_cursor).await;
        Ok(Purged { purged: step.purged, next_cursor })
    }

    async fn enqueue(&self, first: &Shard, messages: Vec<NewMessage>) -> Items<Enqueued> {
        let layout = self.layout_of(first).await?;
        if layout.is_plain() {
            return self.inner.enqueue(first, messages).await;
        }
        self.enqueue_over(first, &layout, messages).await
    }

    async fn dequeue(
        &self,
        first: &Shard,
        requests: &[DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<Dequeued, Refusal> {
        let mut layout = self.layout_of(first).await?;
        loop {
            let answer = if layout.is_plain() {
                self.inner.dequeue(first, requests, wait, ticket).await
            } else {
                Dequeue::new(&self.queue(first, &layout), requests, wait, ticket).run().await
            };
            let has_found = match &answer {
                Ok(answer) => answer.leases.iter().flatten().any(|leases| !leases.is_empty()),
                Err(refusal) => *refusal != Refusal::earlier_layout(),
            };
            if has_found {
                return answer;
            }
            // The queue was created again with another number of shards, or it was changed; the call has found that out from the first one.
            let current = self.layout_of(first).await?;
            if current == layout {
                return answer;
            }
            layout = current;
        }
    }

    of_leases!(complete, |queue, number| queue.changes(number), true, Completion, Transition, |item: &Completion| item
        .lease
        .clone());
    of_leases!(extend_lease, |queue, number| queue.touch(number), false, Extension, Extended, |item: &Extension| item
        .lease
        .clone());
    of_leases!(release, |queue, number| queue.changes(number), true, Release, Transition, |item: &Release| item
        .lease
        .clone());
    of_leases!(cancel, |queue, number| queue.changes(number), true, Cancellation, Transition, |item: &Cancellation| {
        LeaseRef { id: item.id.clone(), fencing_token: item.fencing_token }
    });
    of_leases!(redrive, |queue, number| queue.changes(number), false, MessageId, Transition, no_lease);
    of_leases!(get_messages, |_, _| {}, false, MessageId, Message, no_lease);

    async fn update_message(&self, first: &Shard, id: &MessageId, patch: MessagePatch) -> Result<Transition, Refusal> {
        of_message!(self, first, |layout| {
            if layout.is_plain() {
                return self.inner.update_message(first, id, patch.clone()).await;
            }
            let (queue, store) = (self.queue(first, layout), &*self.inner);
            let number = number_of(&queue, id).await?;
            queue.changes(number);
            let update = |shard: Shard| {
                let patch = patch.clone();
                async move { store.update_message(&shard, id, patch).await }
            };
            queue.on_time(number, update).await
        })
    }

    async fn change_messages(
        &self,
        first: &Shard,
        request: &ChangeRequest,
        cursor: &str,
        limit: usize,
    ) -> Result<ChangedPage, Refusal> {
        // Before the layout, which may be cached: the same error whether or not this server knows of a deletion.
        request.check()?;
        let (layout, store) = (self.layout_of(first).await?, &*self.inner);
        let cursor = Cursor::parse(cursor, "page_token", &layout)?;
        let within = cursor.within.as_str();
        let step = |shard: Shard| async move { store.change_messages(&shard, request, within, limit).await };
        let mut page = self.step(first, &layout, &cursor, true, step).await?;
        page.next_cursor = self.behind(first, layout, &cursor, page.next_cursor).await;
        Ok(page)
    }

    async fn list_messages(
        &self,
        first: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> Result<Page<Message>, Refusal> {
        let store = &*self.inner;
        let (mut items, mut next_cursor) = (Vec::new(), cursor.to_owned());
        loop {
            let layout = self.layout_of(first).await?;
            let cursor = Cursor::parse(&next_cursor, "page_token", &layout)?;
            let (is_plain, within, left) = (layout.is_plain(), cursor.within.as_str(), limit - items.len());
            let page = |shard: Shard| async move { store.list_messages(&shard, state, within, left).await };
            let page = self.step(first, &layout, &cursor, false, page).await?;
            items.extend(page.items);
            next_cursor = self.behind(first, layout, &cursor, page.next_cursor).await;
            if is_plain || next_cursor.is_empty() || items.len() >= limit {
                return Ok(Page { items, next_cursor });
            }
        }
    }

    async fn explain(&self, first: &Shard, id: &MessageId) -> Result<Facts, Refusal> {
        of_message!(self, first, |layout| {
            if layout.is_plain() {
                return self.inner.explain(first, id).await;
            }
            let (queue, store) = (self.queue(first, layout), &*self.inner);
            let number = number_of(&queue, id).await?;
            queue.on_time(number, |shard| async move { store.explain(&shard, id).await }).await
        })
    }

    async fn depth(&self, first: &Shard, filter: Option<&Filter>) -> Result<Depth, Refusal> {
        let store = &*self.inner;
        let depths = self.of_all(first, |shard| async move { store.depth(&shard, filter).await }).await?;
        let mut whole = Depth::default();
        depths.iter().for_each(|depth| whole.add(depth));
        Ok(whole)
    }

    async fn ages(&self, first: &Shard) -> Result<Ages, Refusal> {
        let store = &*self.inner;
        let ages = self.of_all(first, |shard| async move { store.ages(&shard).await }).await?;
        Ok(Ages {
            pending_ms: ages.iter().filter_map(|ages| ages.pending_ms).max(),
            lease_ms: ages.iter().filter_map(|ages| ages.lease_ms).max(),
        })
    }

    /// Of this shard alone, also if it is the first.
    async fn sweep(&self, shard: &Shard) -> Result<Swept, Refusal> {
        self.inner.sweep(shard).await
    }

    async fn check(&self, first: &Shard, cursor: &str) -> Result<(u64, Page<Violation>), Refusal> {
        let (layout, store) = (self.layout_of(first).await?, &*self.inner);
        let cursor = Cursor::parse(cursor, "cursor", &layout)?;
        let within = cursor.within.as_str();
        let step = |shard: Shard| async move { store.check(&shard, within).await };
        let (checked, page) = self.step(first, &layout, &cursor, false, step).await?;
        let next_cursor = self.behind(first, layout, &cursor, page.next_cursor).await;
        Ok((checked, Page { items: page.items, next_cursor }))
    }

    /// `notify` gets the shard itself.
    fn on_ready(&self, notify: Box<dyn Fn(&Shard) + Send + Sync>) {
        let known = self.known.clone();
        let notify: Notify = Arc::from(notify);
        known.set_notify(notify.clone());
        self.inner.on_ready(Box::new(move |shard| {
            known.changes(shard);
            notify(shard);
        }));
    }

    fn on_revoked(&self, notify: NotifyRevoked) {
        let known = self.known.clone();
        self.inner.on_revoked(Box::new(move |shard, lease| {
            known.revokes(shard, lease);
            notify(shard, lease);
        }));
    }

    async fn notify_light_flow(&self, shard: &Shard, flow: &str) -> Result<(), Refusal> {
        self.inner.notify_light_flow(shard, flow).await
    }

    fn on_light_flow(&self, notify: NotifyLightFlow) {
        self.inner.on_light_flow(notify);
    }

    fn is_spread(&self, first: &Shard) -> bool {
        self.known.has(&first.queue)
    }
}

/// What names a message by its id alone.
fn no_lease(id: &MessageId) -> LeaseRef {
    LeaseRef { id: id.clone(), fencing_token: 0 }
}

async fn number_of<S: Store>(queue: &OneQueue<'_, S>, id: &MessageId) -> Result<u16, Refusal> {
    queue.numbers_of(&[id]).await.pop().unwrap_or(Ok(0))
}
