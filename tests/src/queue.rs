//! One queue under test: every verb for one item, refusals of the call and of the item alike, and whole-queue views.

use crate::build::{id, request};
use crate::clock::Clock;
use crate::probe::Probe;
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_model::explain::{Facts, Hindrance, hindrances};
use tallystone_model::message::Enqueued;
use tallystone_model::state::is_arrow;
use tallystone_model::store::*;
use tallystone_model::*;

/// How often a call is repeated while its filter index is being built.
const INDEX_STEPS_MAX: usize = 10_000;

/// A queue and the store it is in.
pub struct TestQueue<S> {
    /// The store.
    pub store: Arc<S>,
    /// Its clock.
    pub clock: Clock,
    /// The queue's only shard.
    pub shard: Shard,
}

impl<S> Clone for TestQueue<S> {
    fn clone(&self) -> Self {
        TestQueue { store: self.store.clone(), clock: self.clock.clone(), shard: self.shard.clone() }
    }
}

/// All that can be seen of a queue: equal before and after whatever changes nothing.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    queue: Queue,
    depth: Depth,
    messages: BTreeMap<MessageId, Message>,
    events: usize,
}

/// The lease of a message with this token, living or not.
pub fn lease_ref(id: &str, fencing_token: u64) -> LeaseRef {
    LeaseRef { id: crate::build::id(id), fencing_token }
}

/// What names this lease in later calls.
pub fn to(lease: &Lease) -> LeaseRef {
    LeaseRef::from(lease)
}

fn only<T>(items: Items<T>) -> Result<T, Refusal> {
    let mut items = items?;
    assert_eq!(items.len(), 1, "one item in, one out");
    items.remove(0)
}

impl<S: Probe> TestQueue<S> {
    /// Its name.
    pub fn name(&self) -> &QueueName {
        &self.shard.queue
    }

    /// The same queue through another store.
    pub fn through(&self, store: &Arc<S>) -> Self {
        TestQueue { store: store.clone(), ..self.clone() }
    }

    /// Its configuration and revision.
    pub async fn describe(&self) -> Result<Queue, Refusal> {
        self.store.get_queue(self.name()).await
    }

    /// Changes its configuration.
    pub async fn reconfigure(&self, patch: QueuePatch) -> Queue {
        self.store.update_queue(self.name(), patch).await.expect("a valid patch")
    }

    /// Enqueues one message.
    pub async fn try_put(&self, message: NewMessage) -> Result<Enqueued, Refusal> {
        only(self.store.enqueue(&self.shard, vec![message]).await)
    }

    /// Enqueues messages, one batch, none refused.
    pub async fn put(&self, messages: impl IntoIterator<Item = NewMessage>) -> Vec<Enqueued> {
        let messages: Vec<NewMessage> = messages.into_iter().collect();
        let results = self.store.enqueue(&self.shard, messages).await.expect("an open queue");
        results.into_iter().collect::<Result<_, _>>().expect("no message refused")
    }

    /// A Dequeue of several requests, repeated while an index is being built.
    pub async fn dequeue(&self, requests: Vec<DequeueRequest>) -> Result<Dequeued, Refusal> {
        for _ in 0..INDEX_STEPS_MAX {
            let answer = self.store.dequeue(&self.shard, &requests, false, None).await?;
            if !answer.leases.iter().any(|leases| matches!(leases, Err(Refusal::IndexBuilding { .. }))) {
                return Ok(answer);
            }
            assert_eq!(requests.len(), 1, "a repeated call must not repeat other requests");
        }
        panic!("an index is not built after {INDEX_STEPS_MAX} calls");
    }

    /// A Dequeue with a ticket.
    pub async fn take_with(&self, ticket: Ticket, requests: &[DequeueRequest]) -> Result<Vec<Vec<Lease>>, Refusal> {
        self.store.dequeue(&self.shard, requests, false, Some(ticket)).await?.leases.into_iter().collect()
    }

    /// A Dequeue of one request.
    pub async fn try_take(&self, request: DequeueRequest) -> Result<Vec<Lease>, Refusal> {
        self.dequeue(vec![request]).await?.leases.remove(0)
    }

    /// Leases up to `limit` messages to worker "w".
    pub async fn take(&self, limit: usize) -> Vec<Lease> {
        self.try_take(request(limit)).await.expect("an open queue")
    }

    /// Leases the most urgent message, which must be there.
    pub async fn take_one(&self) -> Lease {
        self.take(1).await.pop().expect("a runnable message")
    }

    /// Leases up to `limit` messages and answers their ids.
    pub async fn take_ids(&self, limit: usize) -> Vec<String> {
        ids(&self.take(limit).await)
    }

    /// Leases all that is runnable: one Dequeue requests each shard once, for a part of its limit.
    pub async fn take_all(&self) -> Vec<Lease> {
        let mut all = Vec::new();
        loop {
            let leases = self.take(30).await;
            if leases.is_empty() {
                return all;
            }
            all.extend(leases);
        }
    }

    /// Enqueues one message through a server that may not know the shards: it refuses at most twice, certainly without effect.
    pub async fn put_late(&self, message: NewMessage) {
        let mut refusals = 0;
        while let Err(refusal) = self.try_put(message.clone()).await {
            assert!(matches!(refusal, Refusal::Unavailable { applied: Applied::No, .. }), "{refusal:?}");
            refusals += 1;
            assert!(refusals < 3, "{}: the server does not learn the shards", message.id);
        }
    }

    /// Leases up to `limit` messages that pass any of the filters and answers their ids.
    pub async fn take_where(&self, limit: usize, filters: &[Filter]) -> Vec<String> {
        let request = DequeueRequest { filters: filters.to_vec(), ..request(limit) };
        ids(&self.try_take(request).await.expect("filters with an index"))
    }

    /// Completes a lease.
    pub async fn complete(&self, lease: LeaseRef) -> Result<Transition, Refusal> {
        only(self.store.complete(&self.shard, vec![lease.into()]).await)
    }

    /// Extends a lease and answers its new end.
    pub async fn extend(&self, lease: LeaseRef, lease_ms: Option<u64>, request_id: &str) -> Result<u64, Refusal> {
        let extension = Extension { lease, lease_ms, request_id: request_id.to_owned() };
        only(self.store.extend_lease(&self.shard, vec![extension]).await).map(|extended| extended.expires_at_ms)
    }

    /// Ends a lease, and its message for good.
    pub async fn release_for_good(
        &self,
        lease: LeaseRef,
        verdict: Verdict,
        reason: &str,
    ) -> Result<Transition, Refusal> {
        self.release_as(Release { lease, delay_ms: None, reason: reason.to_owned(), verdict }).await
    }

    /// Releases a lease, as this says.
    pub async fn release_as(&self, release: Release) -> Result<Transition, Refusal> {
        only(self.store.release(&self.shard, vec![release]).await)
    }

    /// Completes a lease with a result.
    pub async fn complete_with(&self, lease: LeaseRef, result: &[u8]) -> Result<Transition, Refusal> {
        let completion = Completion { lease, result: result.to_vec().into() };
        only(self.store.complete(&self.shard, vec![completion]).await)
    }

    /// Releases a lease.
    pub async fn release(&self, lease: LeaseRef, delay_ms: Option<u64>, reason: &str) -> Result<Transition, Refusal> {
        self.release_as(Release { lease, delay_ms, reason: reason.to_owned(), verdict: Verdict::Retry }).await
    }

    /// Cancels a message by token, without force.
    pub async fn cancel(&self, lease: LeaseRef, reason: &str) -> Result<Transition, Refusal> {
        self.cancel_as(lease, false, reason).await
    }

    /// Cancels a message, forced or not.
    pub async fn cancel_as(&self, lease: LeaseRef, force: bool, reason: &str) -> Result<Transition, Refusal> {
        let LeaseRef { id, fencing_token } = lease;
        only(
            self.store
                .cancel(&self.shard, vec![Cancellation { id, fencing_token, force, reason: reason.to_owned() }])
                .await,
        )
    }

    /// Redrives a message.
    pub async fn redrive(&self, id: &str) -> Result<Transition, Refusal> {
        only(self.store.redrive(&self.shard, vec![crate::build::id(id)]).await)
    }

    /// Changes the priority of a message.
    pub async fn reprioritize(&self, id: &str, priority: i64) -> Result<Transition, Refusal> {
        self.update(id, MessagePatch { priority: Some(priority), ..MessagePatch::default() }).await
    }

    /// Changes when a message becomes visible.
    pub async fn show_at(&self, id: &str, visible_at_ms: u64) -> Result<Transition, Refusal> {
        self.update(id, MessagePatch { visible_at_ms: Some(visible_at_ms), ..MessagePatch::default() }).await
    }

    /// Changes a message.
    pub async fn update(&self, id: &str, patch: MessagePatch) -> Result<Transition, Refusal> {
        self.store.update_message(&self.shard, &crate::build::id(id), patch).await
    }

    /// A message, refused if it is not there.
    pub async fn try_get(&self, id: &str) -> Result<Message, Refusal> {
        only(self.store.get_messages(&self.shard, vec![crate::build::id(id)]).await)
    }

    /// A message, which must be there.
    pub async fn get(&self, id: &str) -> Message {
        self.try_get(id).await.expect("a known message")
    }

    /// The state of a message, which must be there.
    pub async fn state(&self, id: &str) -> State {
        self.get(id).await.state
    }

    /// All messages of a state, by pages of `page_items`.
    pub async fn list_by(&self, state: State, page_items: usize) -> Vec<Message> {
        let (mut messages, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.store.list_messages(&self.shard, state, &cursor, page_items).await.expect("a page");
            assert!(page.items.len() <= page_items, "{} on a page of {page_items}", page.items.len());
            messages.extend(page.items);
            if page.next_cursor.is_empty() {
                return messages;
            }
            cursor = page.next_cursor;
        }
    }

    /// The ids of all messages of a state, in the order of the list.
    pub async fn list(&self, state: State) -> Vec<String> {
        self.list_by(state, 1_000).await.iter().map(|message| message.id.to_string()).collect()
    }

    /// The facts about a message.
    pub async fn facts(&self, id: &str) -> Facts {
        self.store.explain(&self.shard, &crate::build::id(id)).await.expect("a known message")
    }

    /// Why a message is not running.
    pub async fn explain(&self, id: &str) -> Vec<Hindrance> {
        hindrances(&self.facts(id).await)
    }

    /// Counts by state.
    pub async fn depth(&self) -> Depth {
        self.store.depth(&self.shard, None).await.expect("a queue")
    }

    /// Counts by state of what passes a filter, repeated while its index is being built.
    pub async fn try_depth_of(&self, filter: &Filter) -> Result<Depth, Refusal> {
        for _ in 0..INDEX_STEPS_MAX {
            match self.store.depth(&self.shard, Some(filter)).await {
                Err(Refusal::IndexBuilding { .. }) => {}
                answer => return answer,
            }
        }
        panic!("the index for {filter:?} is not built after {INDEX_STEPS_MAX} calls");
    }

    /// Counts by state of what passes a filter.
    pub async fn depth_of(&self, filter: &Filter) -> Depth {
        self.try_depth_of(filter).await.expect("a filter with an index")
    }

    /// One step of the background work.
    pub async fn sweep(&self) -> Swept {
        self.store.sweep(&self.shard).await.expect("a queue")
    }

    /// Lets time pass, and the background work of a small queue be done.
    pub async fn pass(&self, ms: u64) -> Swept {
        self.clock.advance(ms);
        self.sweep().await
    }

    /// Purges in as many steps as it takes and answers how many messages went.
    pub async fn purge(&self, include_running: bool) -> u64 {
        let (mut purged, mut cursor) = (0, String::new());
        loop {
            let step = self.store.purge(&self.shard, include_running, &cursor).await.expect("a step of a purge");
            purged += step.purged;
            if step.next_cursor.is_empty() {
                return purged;
            }
            cursor = step.next_cursor;
        }
    }

    /// Changes what a selection has, by pages, and answers how many messages matched.
    pub async fn change_all(&self, request: &ChangeRequest, page_items: usize) -> u64 {
        let (mut matched, mut cursor) = (0, String::new());
        loop {
            let page = self.store.change_messages(&self.shard, request, &cursor, page_items).await.expect("a page");
            matched += page.matched;
            if page.next_cursor.is_empty() {
                return matched;
            }
            cursor = page.next_cursor;
        }
    }

    /// Every event so far.
    pub async fn events(&self) -> Vec<Event> {
        self.store.outbox(&self.shard).await
    }

    /// Every event so far of one message.
    pub async fn events_of(&self, id: &str) -> Vec<Event> {
        let id = crate::build::id(id);
        self.events().await.into_iter().filter(|event| event.id == id).collect()
    }

    /// All that can be seen of it.
    pub async fn snapshot(&self) -> Snapshot {
        let mut messages = BTreeMap::new();
        for state in State::ALL {
            for message in self.list_by(state, 1_000).await {
                assert_eq!(message.state, state, "listed where it belongs: {message:?}");
                let twice = messages.insert(message.id.clone(), message);
                assert_eq!(twice, None, "a message is in one place");
            }
        }
        let queue = self.describe().await.expect("a queue");
        Snapshot { queue, depth: self.depth().await, messages, events: self.events().await.len() }
    }

    /// Walks the scrubber, compares counts with lists, and follows every message's events arrow by arrow (Q5, Q6).
    pub async fn assert_sound(&self) {
        if matches!(self.describe().await, Err(Refusal::QueueNotFound { .. })) {
            return;
        }
        let mut cursor = String::new();
        loop {
            let (_, page) = self.store.check(&self.shard, &cursor).await.expect("a step of the scrubber");
            assert_eq!(page.items, [], "{} breaks its invariants", self.name());
            if page.next_cursor.is_empty() {
                break;
            }
            cursor = page.next_cursor;
        }
        let snapshot = self.snapshot().await;
        for state in State::ALL {
            let listed = snapshot.messages.values().filter(|message| message.state == state).count();
            assert_eq!(snapshot.depth.of(state), listed as u64, "the count of {state}");
        }
        let last = follow(&self.events().await);
        for (id, message) in &snapshot.messages {
            assert_eq!(last.get(id), Some(&(message.version, Some(message.state))), "the last event of {id}");
        }
        for (id, (_, state)) in last {
            assert!(state.is_none() || snapshot.messages.contains_key(&id), "{id} is {state:?} by its events");
        }
    }
}

/// Follows the events of each message: known arrows, no version left out, each from where the last one led.
/// Answers the version and state where each id ended.
pub fn follow(events: &[Event]) -> BTreeMap<MessageId, (u32, Option<State>)> {
    let mut at: BTreeMap<MessageId, (u64, u32, Option<State>)> = BTreeMap::new();
    for event in events {
        assert!(is_arrow(event.from, event.to, event.by), "not in the table: {event:?}");
        let (sequence, version, state) = at.get(&event.id).copied().unwrap_or((event.sequence, 0, None));
        if event.from.is_none() {
            assert_eq!((state, event.version), (None, 1), "a new life begins at version 1: {event:?}");
        } else {
            assert_eq!((event.sequence, event.version, event.from), (sequence, version + 1, state), "{event:?}");
        }
        at.insert(event.id.clone(), (event.sequence, event.version, event.to));
    }
    at.into_iter().map(|(id, (_, version, state))| (id, (version, state))).collect()
}

/// The ids of leases, in order.
pub fn ids(leases: &[Lease]) -> Vec<String> {
    leases.iter().map(|lease| lease.id.to_string()).collect()
}

/// The message `id` is `state`: the refusal of a dead lease.
pub fn lost<T>(id: &str, state: State) -> Result<T, Refusal> {
    Err(Refusal::LeaseLost { id: id.to_owned(), state })
}

/// The message `id` is `state`: the refusal of a verb that does not apply.
pub fn wrong<T>(id: &str, state: State) -> Result<T, Refusal> {
    Err(Refusal::WrongState { id: id.to_owned(), state })
}

/// There is no message `id`.
pub fn missing<T>(id: &str) -> Result<T, Refusal> {
    Err(Refusal::MessageNotFound { id: id.to_owned() })
}

/// It went there.
pub fn went<T>(state: State, version: u32) -> Result<Transition, T> {
    Ok(Transition { state, version })
}

/// Sorts away what the contract leaves open, the order of ids: for tests that compare sets.
pub fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

/// A token that no lease has.
pub fn no_lease(id: &str) -> LeaseRef {
    LeaseRef { id: self::id(id), fencing_token: 0 }
}
