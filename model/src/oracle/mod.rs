//! The oracle: an in-memory [`Store`], the executable meaning of the contract. It is written to be obviously right,
//! not fast: each shard is one map of records by message id, and every order, count and lock is computed from all of
//! them. What lives here: one file for each group of verbs. What may not: indexes, caches, any redundant state.

mod background;
mod dequeue;
mod enqueue;
mod lease;
mod operator;
mod record;
mod selection;
mod shard;
mod views;

use crate::config::{QueueConfig, QueuePatch};
use crate::event::Event;
use crate::explain::Facts;
use crate::filter::Filter;
use crate::invariants::Violation;
use crate::limits::NUMBERS_LEFT_OUT;
use crate::message::{Enqueued, Message, NewMessage};
use crate::names::{MessageId, QueueName};
use crate::refusal::Refusal;
use crate::selection::{ChangeRequest, ChangedPage};
use crate::shard::{Shard, Spread};
use crate::state::State;
use crate::store::*;
use shard::QueueShard;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Listener = dyn Fn(&Shard) + Send + Sync;
type RevocationListener = dyn Fn(&Shard, &LeaseRef) + Send + Sync;
type LightFlowListener = dyn Fn(&str) + Send + Sync;

/// All queues in memory, behind one lock: each call is one atomic step, and its future is ready at once.
pub struct Oracle {
    clock: Arc<AtomicU64>,
    world: Mutex<World>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    revocation_listeners: Mutex<Vec<Arc<RevocationListener>>>,
    light_flow_listeners: Mutex<Vec<Arc<LightFlowListener>>>,
}

#[derive(Default)]
struct World {
    shards: BTreeMap<Shard, QueueShard>,
    /// Separate from the shards, because the events of a deleted queue stay.
    outboxes: BTreeMap<Shard, Vec<Event>>,
    /// Queues that were deleted and not created again.
    deleted: BTreeMap<Shard, Deleted>,
}

impl World {
    fn create_shard(&mut self, queue: &Queue, shard: Shard, now_ms: u64) {
        let deleted = self.deleted.remove(&shard);
        let sequence = deleted.map_or(0, |deleted| deleted.sequence).max(now_ms * 1_000);
        let state = QueueShard::new(queue.clone(), shard.number, sequence);
        self.shards.insert(shard, state);
    }

    fn delete_shard(&mut self, shard: Shard, now_ms: u64) {
        let Some(mut state) = self.shards.remove(&shard) else { return };
        state.now_ms = now_ms;
        state.collect_all();
        self.outboxes.entry(shard.clone()).or_default().append(&mut state.events);
        let is_exclusive = state.queue.config.queue_type.key().is_some();
        self.deleted.insert(shard, Deleted { is_exclusive, sequence: state.sequence + NUMBERS_LEFT_OUT });
    }
}

/// What stays of a deleted queue.
struct Deleted {
    is_exclusive: bool,
    /// The sequence of the next queue of its name begins here, if not later (Q11).
    sequence: u64,
}

impl Oracle {
    /// A store without queues. `clock` is Unix ms; the test moves it.
    pub fn new(clock: Arc<AtomicU64>) -> Self {
        Oracle {
            clock,
            world: Mutex::default(),
            listeners: Mutex::default(),
            revocation_listeners: Mutex::default(),
            light_flow_listeners: Mutex::default(),
        }
    }

    /// Takes the events of a shard since the last take, in order (Q15).
    pub fn take_events(&self, shard: &Shard) -> Vec<Event> {
        self.world().outboxes.remove(shard).unwrap_or_default()
    }

    /// The events of a shard since the last take, in order, without taking them.
    pub fn events(&self, shard: &Shard) -> Vec<Event> {
        self.world().outboxes.get(shard).cloned().unwrap_or_default()
    }

    /// Removes the closed shards of the oldest change of this queue if they are empty: a background job of a store does that now and
    /// then. Returns how many; 0: there are none, or some have messages.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn finish(&self, name: &QueueName) -> Result<u16, Refusal> {
        let (now_ms, first) = (self.now_ms(), Shard::first(name));
        let (queue, oldest) = {
            let world = &mut *self.world();
            let queue = world.shards.get(&first).ok_or_else(|| not_found(name))?.queue.clone();
            let Some(oldest) = queue.spread.as_ref().and_then(|spread| spread.old.first()).copied() else {
                return Ok(0);
            };
            let numbers = || oldest.numbers().map(|number| first.sibling(number));
            if !numbers().all(|shard| world.shards.get(&shard).is_some_and(|state| state.is_drained(now_ms))) {
                return Ok(0);
            }
            numbers().filter(|shard| shard.number > 0).for_each(|shard| world.delete_shard(shard, now_ms));
            (queue, oldest)
        };
        let finished = self.on(&first, |state| {
            state.configure(queue.config.clone(), queue.spread.as_ref().map(Spread::finished))?;
            Ok(state.queue.clone())
        })?;
        self.follow(&finished)?;
        Ok(oldest.count)
    }

    /// All shards but the first one get the configuration of their queue, and those that are missing are created.
    fn follow(&self, queue: &Queue) -> Result<(), Refusal> {
        for shard in queue.shards().skip(1) {
            if !self.world().shards.contains_key(&shard) {
                let now_ms = self.now_ms();
                self.world().create_shard(queue, shard.clone(), now_ms);
            }
            self.on(&shard, |state| state.configure(queue.config.clone(), queue.spread.clone()))?;
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One atomic step of one shard: sets its clock, keeps its events, notifies the waiting callers.
    fn on<T>(&self, shard: &Shard, act: impl FnOnce(&mut QueueShard) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let (answer, wake, revoked) = {
            let world = &mut *self.world();
            let state = world.shards.get_mut(shard).ok_or_else(|| not_found(&shard.queue))?;
            state.now_ms = self.now_ms();
            let answer = act(state);
            world.outboxes.entry(shard.clone()).or_default().append(&mut state.events);
            (answer, state.take_wakeup(), std::mem::take(&mut state.revoked))
        };
        if !revoked.is_empty() {
            let listeners = self.revocation_listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
            listeners.iter().for_each(|notify| revoked.iter().for_each(|lease| notify(shard, lease)));
        }
        if wake {
            let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
            listeners.iter().for_each(|notify| notify(shard));
        }
        answer
    }

    /// The items of a batch in order; each is an atomic step that sees the effects of the earlier ones.
    fn on_each<I, T>(
        &self,
        shard: &Shard,
        items: Vec<I>,
        mut act: impl FnMut(&mut QueueShard, I) -> Result<T, Refusal>,
    ) -> Items<T> {
        self.on(shard, |state| Ok(items.into_iter().map(|item| act(state, item)).collect()))
    }
}

fn not_found(queue: &QueueName) -> Refusal {
    Refusal::QueueNotFound { queue: queue.to_string() }
}

impl Store for Oracle {
    async fn create_queue(&self, name: &QueueName, mut config: QueueConfig) -> Result<Queue, Refusal> {
        config.indexes.sort();
        config.indexes.dedup();
        config.check()?;
        let now_ms = self.now_ms();
        let world = &mut *self.world();
        let first = Shard::first(name);
        if let Some(known) = world.shards.get(&first) {
            return match known.queue.config == config {
                true => Ok(known.queue.clone()),
                false => Err(Refusal::QueueExists { queue: name.to_string() }),
            };
        }
        let queue = Queue { name: name.clone(), config, revision: 1, created_at_ms: now_ms, spread: None };
        queue.shards().for_each(|shard| world.create_shard(&queue, shard, now_ms));
        Ok(queue)
    }

    async fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        let first = Shard::first(name);
        let before = self.on(&first, |state| Ok(state.queue.clone()))?;
        let shards = before.config.patched(&patch)?.shards;
        if shards != before.config.shards {
            Spread::changed(&before.config, before.spread.as_ref(), shards)?;
            for number in before.layout().current().numbers() {
                self.on(&first.sibling(number), QueueShard::index_values)?;
            }
        }
        let queue = self.on(&first, |state| state.update_queue(&patch))?;
        self.follow(&queue)?;
        Ok(queue)
    }

    async fn get_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        self.on(&Shard::first(name), |state| Ok(state.queue.clone()))
    }

    async fn list_queues(&self, prefix: &str, cursor: &str, limit: usize) -> Result<Page<Queue>, Refusal> {
        let world = self.world();
        let firsts = world.shards.iter().filter(|(shard, _)| shard.number == 0);
        let mut rest = firsts.map(|(_, shard)| &shard.queue).filter(|queue| {
            let name = queue.name.as_str();
            name.starts_with(prefix) && name > cursor
        });
        let items: Vec<Queue> = rest.by_ref().take(limit).cloned().collect();
        let next_cursor = match (rest.next(), items.last()) {
            (Some(_), Some(last)) => last.name.to_string(),
            _ => String::new(),
        };
        Ok(Page { items, next_cursor })
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<(), Refusal> {
        let now_ms = self.now_ms();
        let world = &mut *self.world();
        let first = Shard::first(name);
        let Some(queue) = world.shards.get(&first).map(|state| state.queue.clone()) else {
            return if world.deleted.contains_key(&first) { Ok(()) } else { Err(not_found(name)) };
        };
        let is_live = |shard: Shard| world.shards.get(&shard).is_some_and(|state| state.depth(|_| true).live() > 0);
        if queue.shards().any(is_live) {
            return Err(Refusal::QueueNotEmpty { queue: name.to_string() });
        }
        queue.shards().for_each(|shard| world.delete_shard(shard, now_ms));
        Ok(())
    }

    async fn was_exclusive(&self, name: &QueueName) -> Result<bool, Refusal> {
        Ok(self.world().deleted.get(&Shard::first(name)).is_some_and(|deleted| deleted.is_exclusive))
    }

    async fn purge(&self, shard: &Shard, include_running: bool, cursor: &str) -> Result<Purged, Refusal> {
        self.on(shard, |state| state.purge(include_running, cursor))
    }

    async fn enqueue(&self, shard: &Shard, messages: Vec<NewMessage>) -> Items<Enqueued> {
        self.on(shard, |state| {
            if state.queue.config.enqueue_blocked {
                return Err(Refusal::EnqueueBlocked { queue: shard.queue.to_string() });
            }
            Ok(messages.into_iter().map(|message| state.enqueue(message)).collect())
        })
    }

    async fn dequeue(
        &self,
        shard: &Shard,
        requests: &[DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<Dequeued, Refusal> {
        self.on(shard, |state| state.dequeue(requests, wait, ticket))
    }

    async fn complete(&self, shard: &Shard, completions: Vec<Completion>) -> Items<Transition> {
        self.on_each(shard, completions, |state, completion| state.complete(completion))
    }

    async fn extend_lease(&self, shard: &Shard, extensions: Vec<Extension>) -> Items<Extended> {
        self.on_each(shard, extensions, |state, extension| state.extend_lease(&extension))
    }

    async fn release(&self, shard: &Shard, releases: Vec<Release>) -> Items<Transition> {
        self.on_each(shard, releases, |state, release| state.release(&release))
    }

    async fn cancel(&self, shard: &Shard, cancellations: Vec<Cancellation>) -> Items<Transition> {
        self.on_each(shard, cancellations, |state, cancellation| state.cancel(&cancellation))
    }

    async fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Transition> {
        self.on_each(shard, ids, |state, id| state.redrive(&id))
    }

    async fn update_message(&self, shard: &Shard, id: &MessageId, patch: MessagePatch) -> Result<Transition, Refusal> {
        self.on(shard, |state| state.update_message(id, &patch))
    }

    async fn change_messages(
        &self,
        shard: &Shard,
        request: &ChangeRequest,
        cursor: &str,
        limit: usize,
    ) -> Result<ChangedPage, Refusal> {
        request.check()?;
        self.on(shard, |state| state.change_messages(request, cursor, limit))
    }

    async fn get_messages(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Message> {
        self.on_each(shard, ids, |state, id| state.get_message(&id))
    }

    async fn list_messages(
        &self,
        shard: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> Result<Page<Message>, Refusal> {
        self.on(shard, |queue| queue.list_messages(state, cursor, limit))
    }

    async fn explain(&self, shard: &Shard, id: &MessageId) -> Result<Facts, Refusal> {
        self.on(shard, |state| state.explain(id))
    }

    async fn depth(&self, shard: &Shard, filter: Option<&Filter>) -> Result<Depth, Refusal> {
        self.on(shard, |state| match filter {
            None => Ok(state.depth(|_| true)),
            Some(filter) => {
                state.admit_indexes(std::slice::from_ref(filter))?;
                Ok(state.depth(|record| filter.matches(&record.content.metadata)))
            }
        })
    }

    async fn ages(&self, shard: &Shard) -> Result<Ages, Refusal> {
        self.on(shard, |state| Ok(state.ages()))
    }

    async fn sweep(&self, shard: &Shard) -> Result<Swept, Refusal> {
        self.on(shard, |state| Ok(state.sweep()))
    }

    async fn check(&self, shard: &Shard, _cursor: &str) -> Result<(u64, Page<Violation>), Refusal> {
        self.on(shard, |state| {
            let page = Page { items: state.violations(), next_cursor: String::new() };
            Ok((state.messages.len() as u64, page))
        })
    }

    fn on_ready(&self, notify: Box<dyn Fn(&Shard) + Send + Sync>) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(notify.into());
    }

    fn on_revoked(&self, notify: NotifyRevoked) {
        self.revocation_listeners.lock().unwrap_or_else(PoisonError::into_inner).push(notify.into());
    }

    async fn notify_light_flow(&self, _shard: &Shard, flow: &str) -> Result<(), Refusal> {
        let listeners = self.light_flow_listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        listeners.iter().for_each(|notify| notify(flow));
        Ok(())
    }

    fn on_light_flow(&self, notify: NotifyLightFlow) {
        self.light_flow_listeners.lock().unwrap_or_else(PoisonError::into_inner).push(notify.into());
    }
}

#[cfg(test)]
mod tests;
