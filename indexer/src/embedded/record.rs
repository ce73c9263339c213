//! Writes events as rows. A row of `historic` is written once, and a row of `current` is replaced only by a higher
//! version, or by the event of a version that a repair wrote. So the rows do not depend on the order of the events, nor on repetitions.

use super::connections::WriteTransaction;
use crate::{Rejected, fold};
use rusqlite::{CachedStatement, OptionalExtension, Transaction, params};
use std::collections::HashMap;
use tallystone_model::Recorded;

const HISTORIC: &str = "INSERT OR IGNORE INTO historic (queue, shard, sequence, version, from_state, to_state, by, \
     at_ms, spent_ms, worker, fence, attempt, reason, due_ms, priority) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

const NEW: &str = "INSERT OR IGNORE INTO current (queue, enqueued_at_ms, sequence, shard, version, gone, state, \
     changed_at_ms, since_ms, due_ms, priority, attempts, fence, coalesced, worker, reason, metadata, id, result) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

const NEWER: &str = "UPDATE current SET version = ?5, gone = ?6, state = ?7, changed_at_ms = ?8, since_ms = ?9, \
     due_ms = ?10, priority = ?11, attempts = ?12, fence = ?13, coalesced = ?14, worker = ?15, reason = ?16, \
     repaired = 0, result = ?17 WHERE queue = ?1 AND enqueued_at_ms = ?2 AND sequence = ?3 AND shard = ?4 \
     AND (version < ?5 OR (version = ?5 AND repaired = 1))";

const PAIR: &str = "INSERT OR IGNORE INTO pairs (queue, key, value, enqueued_at_ms, sequence, shard) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// An errored message may keep more of its payload than others: the longest part stays, whichever comes first.
const PAYLOAD: &str = "INSERT INTO payloads (queue, sequence, shard, payload) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET payload = excluded.payload WHERE length(excluded.payload) > length(payload)";

/// Writes the events. Returns those that no row can hold.
pub(super) fn record(write: &mut WriteTransaction, events: &[Recorded]) -> rusqlite::Result<Vec<Rejected>> {
    let mut rejected = Vec::new();
    let mut accepted = Vec::with_capacity(events.len());
    for (index, recorded) in events.iter().enumerate() {
        match out_of_range(recorded) {
            None => accepted.push(recorded),
            Some(field) => rejected.push(Rejected { index, why: format!("{field} is beyond the range of a row") }),
        }
    }
    // In the order of the file, the newest event of each message last.
    accepted.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    let WriteTransaction { transaction, queues } = write;
    let mut statements = Statements::prepare(transaction)?;
    let mut has_first = false;
    for (index, recorded) in accepted.iter().enumerate() {
        let queue = queue_of_write(transaction, queues, recorded.shard.queue.as_str())?;
        statements.transition(queue, recorded)?;
        has_first |= recorded.event.version == 1;
        let is_newest = accepted.get(index + 1).is_none_or(|next| message_key(next) != message_key(recorded));
        if is_newest {
            statements.message(queue, recorded, has_first)?;
            has_first = false;
        }
    }
    Ok(rejected)
}

/// The field that is sorted by and does not fit a signed number.
fn out_of_range(recorded: &Recorded) -> Option<&'static str> {
    let event = &recorded.event;
    [("sequence", event.sequence), ("at_ms", event.at_ms), ("enqueued_at_ms", event.enqueued_at_ms)]
        .into_iter()
        .find_map(|(field, value)| i64::try_from(value).is_err().then_some(field))
}

fn message_key(recorded: &Recorded) -> (&str, u64, u16) {
    (recorded.shard.queue.as_str(), recorded.event.sequence, recorded.shard.number)
}

fn key(recorded: &Recorded) -> ((&str, u64, u16), u32) {
    (message_key(recorded), recorded.event.version)
}

/// Most messages have no result: theirs takes no room.
pub(super) fn stored_result(result: &[u8]) -> Option<&[u8]> {
    Some(result).filter(|result| !result.is_empty())
}

/// The number of a queue; a new queue is given one.
pub(super) fn queue_of_write(
    transaction: &Transaction,
    queues: &mut HashMap<String, i64>,
    name: &str,
) -> rusqlite::Result<i64> {
    if let Some(number) = queues.get(name) {
        return Ok(*number);
    }
    let stored: Option<i64> =
        transaction.query_row("SELECT number FROM queues WHERE name = ?", [name], |row| row.get(0)).optional()?;
    let number = match stored {
        Some(number) => number,
        None => {
            transaction.execute("INSERT INTO queues (name) VALUES (?)", [name])?;
            transaction.last_insert_rowid()
        }
    };
    queues.insert(name.to_owned(), number);
    Ok(number)
}

struct Statements<'a> {
    historic: CachedStatement<'a>,
    new: CachedStatement<'a>,
    newer: CachedStatement<'a>,
    pair: CachedStatement<'a>,
    payload: CachedStatement<'a>,
}

impl<'a> Statements<'a> {
    fn prepare(transaction: &'a Transaction) -> rusqlite::Result<Statements<'a>> {
        Ok(Statements {
            historic: transaction.prepare_cached(HISTORIC)?,
            new: transaction.prepare_cached(NEW)?,
            newer: transaction.prepare_cached(NEWER)?,
            pair: transaction.prepare_cached(PAIR)?,
            payload: transaction.prepare_cached(PAYLOAD)?,
        })
    }

    fn transition(&mut self, queue: i64, recorded: &Recorded) -> rusqlite::Result<()> {
        let row = fold::transition(&recorded.event);
        let (shard, sequence) = (recorded.shard.number, row.sequence as i64);
        self.historic.execute(params![
            queue,
            shard,
            sequence,
            row.version,
            row.from_state,
            row.to_state,
            row.cause,
            row.at_ms,
            row.spent_ms,
            row.worker,
            row.fencing_token as i64,
            row.attempt,
            row.reason,
            row.due_ms,
            row.priority,
        ])?;
        if let Some(payload) = &recorded.event.payload {
            self.payload.execute(params![queue, sequence, shard, payload.as_ref()])?;
        }
        Ok(())
    }

    /// Writes the message. `is_new` is a guess that saves a statement.
    fn message(&mut self, queue: i64, newest: &Recorded, is_new: bool) -> rusqlite::Result<()> {
        if is_new {
            if !self.insert(queue, newest)? {
                self.update(queue, newest)?;
            }
        } else if !self.update(queue, newest)? {
            self.insert(queue, newest)?;
        }
        Ok(())
    }

    /// `false`: the message has a row already.
    fn insert(&mut self, queue: i64, newest: &Recorded) -> rusqlite::Result<bool> {
        let row = fold::message(newest);
        let metadata = serde_json::to_string(&row.metadata)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        let sequence = row.sequence as i64;
        let inserted = self.new.execute(params![
            queue,
            row.enqueued_at_ms,
            sequence,
            row.shard,
            row.version,
            row.gone,
            row.state,
            row.changed_at_ms,
            row.state_since_ms,
            row.due_ms,
            row.priority,
            row.attempts,
            row.fencing_token as i64,
            row.coalesced,
            row.worker,
            row.reason,
            metadata,
            row.id,
            stored_result(&row.result),
        ])?;
        if inserted == 0 {
            return Ok(false);
        }
        for (key, value) in &row.metadata {
            self.pair.execute(params![queue, key, value, row.enqueued_at_ms, sequence, row.shard])?;
        }
        Ok(true)
    }

    /// `false`: the message has no row, or one of this or a higher version.
    fn update(&mut self, queue: i64, newest: &Recorded) -> rusqlite::Result<bool> {
        // Most events end here, so fields that never change are not copied.
        let row = fold::changing(&newest.event);
        let updated = self.newer.execute(params![
            queue,
            newest.event.enqueued_at_ms as i64,
            newest.event.sequence as i64,
            newest.shard.number,
            row.version,
            row.gone,
            row.state,
            row.changed_at_ms,
            row.since_ms,
            row.due_ms,
            row.priority,
            row.attempts,
            row.fencing_token as i64,
            row.coalesced,
            row.worker,
            row.reason,
            stored_result(&newest.event.result),
        ])?;
        Ok(updated > 0)
    }
}
