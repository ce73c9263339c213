//! Enqueue (Q1, Q3, Q10, Q12).

use super::record::Record;
use super::shard::QueueShard;
use crate::message::{Enqueued, NewMessage};
use crate::refusal::Refusal;
use crate::state::{Cause, State};

impl QueueShard {
    pub(super) fn enqueue(&mut self, mut message: NewMessage) -> Result<Enqueued, Refusal> {
        let coalesce = std::mem::take(&mut message.coalesce);
        if let Some(key) = self.queue.config.queue_type.key()
            && message.metadata.get(key).is_none()
        {
            return Err(Refusal::invalid("metadata", format!("lacks the exclusivity key '{key}' of the queue")));
        }
        // The deadline of a class is not part of the content: a repetition comes later.
        let class = self.queue.config.priority_classes.of(&message)?;
        let mut priority = message.priority;
        if let Some(class) = class {
            priority = class.priority_at(self.now_ms);
            message = NewMessage { priority: 0, priority_class: Some(class.name.to_owned()), ..message };
        }
        let Some(known) = self.messages.get(&message.id) else {
            if let Some(remembered) = self.remembered.get(&message.id)
                && remembered.until_ms > self.now_ms
                && !coalesce
            {
                return match remembered.content.is_repeated_by(&message, self.queue.config.queue_type.key()) {
                    true => {
                        let enqueued_at_ms = remembered.enqueued_at_ms;
                        Ok(Enqueued { id: message.id, enqueued_at_ms, queue_created: false })
                    }
                    false => Err(Refusal::IdConflict { id: message.id.to_string() }),
                };
            }
            if self.moves(&message) {
                self.remembered.remove(&message.id);
                return Err(Refusal::moved());
            }
            self.has_room()?;
            self.remembered.remove(&message.id);
            return Ok(self.accept_new(message, priority));
        };
        let first = Enqueued { id: message.id.clone(), enqueued_at_ms: known.enqueued_at_ms, queue_created: false };
        let conflict = Refusal::IdConflict { id: message.id.to_string() };
        if !coalesce {
            let is_repeated = known.content.is_repeated_by(&message, self.queue.config.queue_type.key());
            return if is_repeated { Ok(first) } else { Err(conflict) };
        }
        if known.state.is_terminal() {
            if self.moves(&message) {
                self.collect(&message.id, "");
                return Err(Refusal::moved());
            }
            self.has_room()?;
            self.collect(&message.id, "");
            return Ok(self.accept_new(message, priority));
        }
        if known.value(&self.queue.config) != self.queue.config.queue_type.value_of(&message.metadata) {
            return Err(conflict);
        }
        let marks = known.state == State::Running && !known.coalesced;
        if marks || priority < known.priority {
            let state = known.state;
            self.step(&message.id, state, Cause::Coalesce, "", |record| {
                record.priority = record.priority.min(priority);
                record.coalesced |= marks;
            });
        }
        Ok(first)
    }

    /// Whether a message that is not here is for a later shard: this one is closed, and does not keep its exclusivity value.
    fn moves(&self, message: &NewMessage) -> bool {
        let config = &self.queue.config;
        let value = config.queue_type.value_of(&message.metadata);
        let has = |record: &Record| record.state != State::Completed && record.value(config) == value;
        self.is_closed() && !(value.is_some() && self.messages.values().any(has))
    }

    /// Refuses a live message above the shard's share of max_depth.
    pub(super) fn has_room(&self) -> Result<(), Refusal> {
        let max_depth = self.queue.config.max_depth;
        if max_depth > 0 && self.depth(|_| true).live() >= self.share(max_depth) {
            return Err(Refusal::QueueFull { queue: self.queue.name.to_string(), max_depth });
        }
        Ok(())
    }

    fn accept_new(&mut self, content: NewMessage, priority: i64) -> Enqueued {
        let invisibility_ms = content.invisibility_ms.unwrap_or(self.queue.config.invisibility_ms);
        let (state, due_ms) = self.after(invisibility_ms);
        let accepted = Enqueued { id: content.id.clone(), enqueued_at_ms: self.now_ms, queue_created: false };
        let record = Record {
            sequence: self.next_sequence(),
            enqueued_at_ms: self.now_ms,
            state,
            version: 1,
            state_since_ms: self.now_ms,
            due_ms,
            priority,
            attempts: 0,
            fencing_token: 0,
            worker: String::new(),
            granted_ms: 0,
            extension_id: String::new(),
            reason: String::new(),
            coalesced: false,
            redriven: false,
            ended: None,
            result: Default::default(),
            ended_attempts: Vec::new(),
            content,
        };
        self.accept(record);
        accepted
    }

    /// The state of a message that will run after a delay, and when the delay ends.
    pub(super) fn after(&self, delay_ms: u64) -> (State, u64) {
        match delay_ms {
            0 => (State::Pending, 0),
            delay_ms => (State::Invisible, self.now_ms + delay_ms),
        }
    }
}
