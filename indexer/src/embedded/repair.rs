//! Repairs of messages whose later events are lost.

use super::connections::WriteTransaction;
use super::record::stored_result;
use rusqlite::{OptionalExtension, params};
use tallystone_proto::history::v1::IndexedMessage;

const REPAIR: &str = "UPDATE current SET version = ?5, gone = ?6, state = ?7, changed_at_ms = ?8, since_ms = ?9, \
     due_ms = ?10, priority = ?11, attempts = ?12, fence = ?13, coalesced = ?14, worker = ?15, reason = ?16, \
     repaired = 1, result = ?17 \
     WHERE queue = ?1 AND enqueued_at_ms = ?2 AND sequence = ?3 AND shard = ?4 AND version < ?5";

const IS_REPAIRED: &str = "SELECT repaired = 1 AND version = ?5 FROM current \
     WHERE queue = ?1 AND enqueued_at_ms = ?2 AND sequence = ?3 AND shard = ?4";

pub(super) fn repair(write: &mut WriteTransaction, messages: &[IndexedMessage]) -> rusqlite::Result<Vec<bool>> {
    let transaction = &write.transaction;
    let mut number = transaction.prepare_cached("SELECT number FROM queues WHERE name = ?")?;
    let mut repair = transaction.prepare_cached(REPAIR)?;
    let mut is_repaired = transaction.prepare_cached(IS_REPAIRED)?;
    let mut written = Vec::with_capacity(messages.len());
    for message in messages {
        let queue: Option<i64> = number.query_row([&message.queue], |row| row.get(0)).optional()?;
        let Some(queue) = queue else {
            written.push(false);
            continue;
        };
        let (sequence, shard) = (message.sequence as i64, message.shard);
        repair.execute(params![
            queue,
            message.enqueued_at_ms,
            sequence,
            shard,
            message.version,
            message.gone,
            message.state,
            message.changed_at_ms,
            message.state_since_ms,
            message.due_ms,
            message.priority,
            message.attempts,
            message.fencing_token as i64,
            message.coalesced,
            message.worker,
            message.reason,
            stored_result(&message.result),
        ])?;
        let key = params![queue, message.enqueued_at_ms, sequence, shard, message.version];
        written.push(is_repaired.query_row(key, |row| row.get(0)).optional()?.unwrap_or(false));
    }
    Ok(written)
}
