//! One queue shard: its records, and the one function that makes every transition.

use super::record::{Ended, Record};
use crate::config::{QueueConfig, QueuePatch};
use crate::event::Event;
use crate::filter::{Filter, IndexKeys};
use crate::limits::INDEXES_MAX;
use crate::message::NewMessage;
use crate::names::MessageId;
use crate::refusal::Refusal;
use crate::shard::Spread;
use crate::state::{Cause, State, is_arrow};
use crate::store::{LeaseRef, Queue, Transition};
use std::collections::{BTreeMap, BTreeSet};

/// A message that was collected, and whose id is still remembered (Q26).
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) content: NewMessage,
    pub(super) enqueued_at_ms: u64,
    pub(super) until_ms: u64,
}

/// What one ticket gave.
#[derive(Clone, Debug, Default)]
pub(super) struct TicketMemory {
    /// The number of its last try.
    pub(super) number: u64,
    /// The leases of its requests without an id, and when each ended at first (Unix ms), by their positions.
    pub(super) leases: BTreeMap<usize, Vec<(LeaseRef, u64)>>,
}

pub(super) struct QueueShard {
    pub(super) queue: Queue,
    pub(super) number: u16,
    /// The time of the current call.
    pub(super) now_ms: u64,
    /// The last number of the sequence, of a message or a fencing token.
    pub(super) sequence: u64,
    pub(super) messages: BTreeMap<MessageId, Record>,
    /// The ids of collected messages. An entry that has ended counts as none.
    pub(super) remembered: BTreeMap<MessageId, Remembered>,
    /// The leases that each request id got (Q10).
    pub(super) requests: BTreeMap<String, Vec<LeaseRef>>,
    /// What the last ticket of each server's slot gave (Q10).
    pub(super) tickets: BTreeMap<(u64, u8), TicketMemory>,
    /// Filter indexes that filters created, without being declared.
    pub(super) on_demand: Vec<IndexKeys>,
    /// The events of the current call.
    pub(super) events: Vec<Event>,
    /// A caller got no message and waits.
    pub(super) waiting: bool,
    /// Leases that the current call has ended, and that their workers still believe to hold.
    pub(super) revoked: Vec<LeaseRef>,
    /// The current call may have made a message runnable.
    woken: bool,
}

impl QueueShard {
    /// `sequence`: where its sequence begins, if not at its creation.
    pub(super) fn new(queue: Queue, number: u16, sequence: u64) -> Self {
        QueueShard {
            number,
            now_ms: queue.created_at_ms,
            sequence: sequence.max(queue.created_at_ms * 1_000),
            queue,
            messages: BTreeMap::new(),
            remembered: BTreeMap::new(),
            requests: BTreeMap::new(),
            tickets: BTreeMap::new(),
            on_demand: Vec::new(),
            events: Vec::new(),
            waiting: false,
            revoked: Vec::new(),
            woken: false,
        }
    }

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn record(&self, id: &MessageId) -> Result<&Record, Refusal> {
        self.messages.get(id).ok_or_else(|| Refusal::MessageNotFound { id: id.to_string() })
    }

    /// Adds a new message at version 1.
    pub(super) fn accept(&mut self, record: Record) {
        self.leave_event(&record, None, Some(record.state), Cause::Enqueue, "");
        self.messages.insert(record.content.id.clone(), record);
    }

    /// One transition: applies `change` to the record, raises the version, sets the state, leaves the event. `reason` goes
    /// into the event and, unless empty, into the message.
    pub(super) fn step(
        &mut self,
        id: &MessageId,
        to: State,
        by: Cause,
        reason: &str,
        change: impl FnOnce(&mut Record),
    ) -> Transition {
        let mut record = self.messages.remove(id).expect("the caller has looked the message up");
        let from = record.state;
        let from_since_ms = record.state_since_ms;
        change(&mut record);
        record.version += 1;
        if !reason.is_empty() {
            record.reason = reason.to_owned();
        }
        if to != from {
            record.state = to;
            record.state_since_ms = self.now_ms;
        }
        if !matches!(to, State::Invisible | State::Running) {
            record.due_ms = 0;
        }
        self.leave_event(&record, Some((from, from_since_ms)), Some(to), by, reason);
        let transition = record.transition();
        self.messages.insert(id.clone(), record);
        transition
    }

    /// A transition that ends the lease, and with it a coalesced mark.
    pub(super) fn end_lease(
        &mut self,
        id: &MessageId,
        (to, due_ms): (State, u64),
        by: Cause,
        reason: &str,
    ) -> Transition {
        let runs_again = by == Cause::Complete && to.is_live();
        let now_ms = self.now_ms;
        let transition = self.step(id, to, by, reason, |record| {
            if !runs_again {
                let attempt = record.attempt(to, now_ms, reason);
                record.ended_attempts.push(attempt);
            }
            record.due_ms = due_ms;
            if record.coalesced && to.is_live() {
                record.attempts = 0;
            }
            record.coalesced = false;
        });
        self.remember_end(id, by, transition)
    }

    /// A transition that ends a lease that no worker has got: it was no attempt.
    pub(super) fn take_lease_back(&mut self, id: &MessageId, reason: &str) -> Transition {
        let transition = self.step(id, State::Pending, Cause::Release, reason, |record| {
            record.attempts = if record.coalesced { 0 } else { record.attempts - 1 };
            record.coalesced = false;
        });
        self.remember_end(id, Cause::Release, transition)
    }

    /// Keeps how the lease has ended, for its repeated calls.
    fn remember_end(&mut self, id: &MessageId, by: Cause, transition: Transition) -> Transition {
        if let Some(record) = self.messages.get_mut(id) {
            record.ended = Some(Ended { fencing_token: record.fencing_token, by, transition });
        }
        transition
    }

    /// Collects a message, for this reason if it is not empty.
    pub(super) fn collect(&mut self, id: &MessageId, reason: &str) {
        if let Some(mut record) = self.messages.remove(id) {
            record.version += 1;
            self.leave_event(&record, Some((record.state, record.state_since_ms)), None, Cause::Collect, reason);
        }
    }

    /// Collects a message because its time is over or there are too many, and remembers its id.
    pub(super) fn collect_and_remember(&mut self, id: &MessageId, reason: &str) {
        if let Some(record) = self.messages.get(id) {
            let until_ms = record.state_since_ms + self.queue.config.id_window_ms;
            if until_ms > self.now_ms {
                let (content, enqueued_at_ms) = (record.content.clone(), record.enqueued_at_ms);
                self.remembered.insert(id.clone(), Remembered { content, enqueued_at_ms, until_ms });
            }
        }
        self.collect(id, reason);
    }

    /// Collects all messages, for the deletion of the queue.
    pub(super) fn collect_all(&mut self) {
        for id in self.messages.keys().cloned().collect::<Vec<_>>() {
            self.collect(&id, "");
        }
    }

    /// `left`: the previous state, and when it was entered.
    fn leave_event(&mut self, record: &Record, left: Option<(State, u64)>, to: Option<State>, by: Cause, reason: &str) {
        let (from, from_since_ms) = (left.map(|(state, _)| state), left.map_or(0, |(_, since_ms)| since_ms));
        assert!(is_arrow(from, to, by), "{from:?} to {to:?} by {by:?} is in the table");
        // A message that becomes pending may be runnable; one that leaves running may free the value of others.
        self.woken |= to == Some(State::Pending) || (from == Some(State::Running) && to != from);
        self.events.push(Event {
            id: record.content.id.clone(),
            version: record.version,
            from,
            to,
            by,
            at_ms: self.now_ms,
            from_since_ms,
            since_ms: record.state_since_ms,
            sequence: record.sequence,
            enqueued_at_ms: record.enqueued_at_ms,
            priority: record.priority,
            metadata: record.content.metadata.clone(),
            attempts: record.attempts,
            fencing_token: record.fencing_token,
            worker: record.worker.clone(),
            due_ms: record.due_ms,
            reason: reason.to_owned(),
            last_reason: record.reason.clone(),
            coalesced: record.coalesced,
            payload: None,
            // A message gets its result when it completes, and never leaves completed but by its collection.
            result: record.result.clone(),
        });
    }

    /// Whether to notify the waiting callers: a message became runnable in this call and was not leased.
    pub(super) fn take_wakeup(&mut self) -> bool {
        let wake = std::mem::take(&mut self.woken) && self.waiting && self.runnable(&[]).next().is_some();
        self.waiting &= !wake;
        wake
    }

    pub(super) fn update_queue(&mut self, patch: &QueuePatch) -> Result<Queue, Refusal> {
        let (config, before) = (self.queue.config.patched(patch)?, &self.queue);
        let spread = match config.shards == before.config.shards {
            true => before.spread.clone(),
            false => Some(Spread::changed(&before.config, before.spread.as_ref(), config.shards)?),
        };
        self.configure(config, spread)?;
        Ok(self.queue.clone())
    }

    /// Takes over what the queue has now.
    pub(super) fn configure(&mut self, config: QueueConfig, spread: Option<Spread>) -> Result<(), Refusal> {
        if !config.has_room_for_indexes(spread.as_ref()) {
            return Err(self.too_many_indexes());
        }
        // A declared index takes the place of one that is not.
        let needed = config.needed_index(spread.as_ref());
        while self.indexes_with(&config).len() > INDEXES_MAX {
            self.evict_index(&config, needed.as_ref())?;
        }
        let is_spread = spread != self.queue.spread;
        if config != self.queue.config || is_spread {
            if config.id_window_ms == 0 {
                self.remembered.clear();
            }
            (self.queue.config, self.queue.spread) = (config, spread);
            self.queue.revision += 1;
            let (is_first, revision) = (self.number == 0, self.queue.revision);
            if let Some(spread) = self.queue.spread.as_mut().filter(|_| is_spread && is_first) {
                spread.version = spread.version.max(revision);
            }
        }
        Ok(())
    }

    /// The shard can be closed from now on: it has the index of the exclusivity values of its messages.
    pub(super) fn index_values(&mut self) -> Result<(), Refusal> {
        let config = self.queue.config.clone();
        let keys = config.queue_type.index_of_values();
        let Some(keys) = keys.filter(|keys| !self.indexes_with(&config).contains(keys)) else { return Ok(()) };
        if self.indexes_with(&config).len() == INDEXES_MAX {
            self.evict_index(&config, None)?;
        }
        self.on_demand.push(keys);
        Ok(())
    }

    /// All indexes with such a configuration.
    fn indexes_with<'a>(&'a self, config: &'a QueueConfig) -> BTreeSet<&'a IndexKeys> {
        config.indexes.iter().chain(&self.on_demand).collect()
    }

    /// Drops an index that is not declared, and not needed.
    fn evict_index(&mut self, config: &QueueConfig, needed: Option<&IndexKeys>) -> Result<(), Refusal> {
        let is_evicted = |keys: &IndexKeys| !config.indexes.contains(keys) && Some(keys) != needed;
        let evicted = self.on_demand.iter().position(is_evicted);
        self.on_demand.remove(evicted.ok_or_else(|| self.too_many_indexes())?);
        Ok(())
    }

    /// Whether the shard is closed, see [`Store::enqueue`](crate::store::Store::enqueue).
    pub(super) fn is_closed(&self) -> bool {
        self.queue.spread.as_ref().is_some_and(|spread| spread.closes(self.number))
    }

    /// Whether nothing is left in a closed shard.
    pub(super) fn is_drained(&self, now_ms: u64) -> bool {
        let has_ids = self.remembered.values().any(|remembered| remembered.until_ms > now_ms);
        self.is_closed() && self.messages.is_empty() && !has_ids
    }

    /// What the shard has of a bound of the whole queue; no bound (0) stays none.
    pub(super) fn share(&self, bound: u64) -> u64 {
        self.queue.generation_of(self.number).share(bound)
    }

    /// Creates the indexes that these filters need: all of them or none.
    pub(super) fn admit_indexes(&mut self, filters: &[Filter]) -> Result<(), Refusal> {
        let wanted = filters.iter().map(Filter::index_keys).filter(|keys| !self.queue.config.indexes.contains(keys));
        let mut on_demand = self.on_demand.clone();
        for keys in wanted {
            if !on_demand.contains(&keys) {
                let needed = self.queue.config.needed_index(self.queue.spread.as_ref());
                let counts =
                    |keys: &&IndexKeys| !self.queue.config.indexes.contains(keys) && Some(*keys) != needed.as_ref();
                let undeclared = on_demand.iter().filter(counts).count();
                if !self
                    .queue
                    .generation_of(self.number)
                    .admits_undeclared_index(undeclared, self.messages.len() as u64)
                {
                    return Err(self.too_many_indexes());
                }
                on_demand.push(keys);
            }
        }
        let all: BTreeSet<&IndexKeys> = self.queue.config.indexes.iter().chain(&on_demand).collect();
        if all.len() > INDEXES_MAX {
            return Err(self.too_many_indexes());
        }
        self.on_demand = on_demand;
        Ok(())
    }

    fn too_many_indexes(&self) -> Refusal {
        Refusal::TooManyIndexes { queue: self.queue.name.to_string() }
    }
}
