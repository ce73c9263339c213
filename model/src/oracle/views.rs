//! The verbs that only read: GetMessage, ListMessages, Explain, Depth, check (Q7, Q9).

use super::record::Record;
use super::shard::QueueShard;
use crate::explain::{Facts, Holder};
use crate::invariants::Violation;
use crate::limits::{AGE_LEASES_MAX, AGE_PRIORITIES_MAX};
use crate::message::Message;
use crate::names::MessageId;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::{Ages, Depth, Page};
use std::collections::{BTreeMap, BTreeSet};

impl QueueShard {
    pub(super) fn get_message(&self, id: &MessageId) -> Result<Message, Refusal> {
        let record = self.record(id)?;
        Ok(Message { last_attempts: record.last_attempts(), ..record.message(&self.queue.config) })
    }

    /// The cursor is the number of messages on earlier pages.
    pub(super) fn list_messages(&self, state: State, cursor: &str, limit: usize) -> Result<Page<Message>, Refusal> {
        let shown: usize = match cursor {
            "" => 0,
            cursor => cursor.parse().map_err(|_| Refusal::invalid("page_token", "was not made by this list"))?,
        };
        let config = &self.queue.config;
        let mut records: Vec<&Record> = self.messages.values().filter(|record| record.state == state).collect();
        match state {
            State::Pending => {
                let heads: BTreeSet<&MessageId> = self.heads().into_iter().map(|head| &head.content.id).collect();
                records.sort_by_key(|record| match heads.contains(&record.content.id) {
                    true => (0, None, record.urgency()),
                    false => (1, record.value(config), record.urgency()),
                });
            }
            State::Invisible | State::Running => records.sort_by_key(|record| (record.due_ms, record.sequence)),
            _ => records.sort_by_key(|record| (record.state_since_ms, record.sequence)),
        }
        let end = records.len().min(shown.saturating_add(limit));
        let items = records[shown.min(end)..end].iter().map(|record| record.message(config)).collect();
        let next_cursor = if end < records.len() { end.to_string() } else { String::new() };
        Ok(Page { items, next_cursor })
    }

    /// The messages from which the next Dequeue without filters chooses, by urgency: in a simple queue every pending
    /// message, in an exclusive one the most urgent of each free value.
    pub(super) fn heads(&self) -> Vec<&Record> {
        let config = &self.queue.config;
        let mut runnable: Vec<&Record> = self.runnable(&[]).collect();
        runnable.sort_by_key(|record| record.urgency());
        let mut seen = BTreeSet::new();
        runnable.retain(|record| record.value(config).is_none_or(|value| seen.insert(value)));
        runnable
    }

    pub(super) fn explain(&self, id: &MessageId) -> Result<Facts, Refusal> {
        let record = self.record(id)?;
        let config = &self.queue.config;
        let mut facts = Facts {
            message: record.message(config),
            dequeue_blocked: config.dequeue_blocked,
            holder: None,
            key_head: None,
            ahead: 0,
        };
        if record.state != State::Pending {
            return Ok(facts);
        }
        if let Some(holder) = self.holder(record) {
            let id = holder.content.id.clone();
            facts.holder = Some(Holder { id, worker: holder.worker.clone(), expires_at_ms: holder.due_ms });
            return Ok(facts);
        }
        let heads = self.heads();
        match heads.iter().position(|head| head.content.id == *id) {
            Some(ahead) => facts.ahead = ahead as u64,
            None => {
                let head = heads.iter().find(|head| head.value(config) == record.value(config));
                facts.key_head = head.map(|head| head.content.id.clone());
            }
        }
        Ok(facts)
    }

    pub(super) fn depth(&self, passes: impl Fn(&Record) -> bool) -> Depth {
        let mut depth = Depth::default();
        for record in self.messages.values().filter(|record| passes(record)) {
            *depth.of_mut(record.state) += 1;
        }
        depth
    }

    pub(super) fn ages(&self) -> Ages {
        // The most urgent message of each priority came first.
        let mut oldest = self.heads();
        oldest.dedup_by_key(|record| record.priority);
        oldest.truncate(AGE_PRIORITIES_MAX);
        let oldest = oldest.into_iter().min_by_key(|record| record.sequence);
        let mut running: Vec<&Record> =
            self.messages.values().filter(|record| record.state == State::Running).collect();
        running.sort_by_key(|record| (record.due_ms, &record.content.id));
        running.truncate(AGE_LEASES_MAX);
        let leased_at_ms = running.into_iter().map(|record| record.state_since_ms).min();
        let age_ms = |at_ms: u64| self.now_ms.saturating_sub(at_ms);
        Ages { pending_ms: oldest.map(|record| age_ms(record.enqueued_at_ms)), lease_ms: leased_at_ms.map(age_ms) }
    }

    /// The oracle has no redundant state that could disagree: it only checks the locks.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut running: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for record in self.messages.values().filter(|record| record.state == State::Running) {
            if let Some(value) = record.value(&self.queue.config) {
                running.entry(value).or_default().push(record.content.id.as_str());
            }
        }
        running.retain(|_, ids| ids.len() > 1);
        let violation = |(value, ids): (&str, Vec<&str>)| Violation {
            invariant: "I3",
            detail: format!("value '{value}' is run by {}", ids.join(", ")),
        };
        running.into_iter().map(violation).collect()
    }
}
