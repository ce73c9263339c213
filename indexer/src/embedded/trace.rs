//! The transitions of one id, and its newest message.

use super::rows::{MESSAGE_COLUMNS, TRANSITION_COLUMNS, message, queue_number, transition};
use crate::{Trace, TraceQuery};
use rusqlite::{Connection, OptionalExtension, params};

/// The messages that had the id, oldest first. Each shard of a queue counts its own sequences, so the shard breaks a
/// tie.
const MESSAGES_OF_ID: &str = "SELECT sequence, shard FROM current INDEXED BY current_by_id \
     WHERE queue = ?1 AND id = ?2 AND sequence BETWEEN ?3 AND ?4 ORDER BY sequence, shard";

pub(super) fn trace(connection: &Connection, query: &TraceQuery) -> rusqlite::Result<Trace> {
    let Some(queue) = queue_number(connection, &query.queue)? else { return Ok(Trace::default()) };
    let (first, last) = match query.sequence {
        Some(sequence) => (signed(sequence), signed(sequence)),
        None => (0, i64::MAX),
    };
    let (after_sequence, after_version) =
        query.after.map_or((-1, 0), |(sequence, version)| (signed(sequence), version));
    let mut messages = connection.prepare_cached(MESSAGES_OF_ID)?;
    let mut messages = messages.query(params![queue, query.id.as_str(), first.max(after_sequence), last])?;
    let historic = format!(
        "SELECT {TRANSITION_COLUMNS} FROM historic \
         WHERE queue = ?1 AND sequence = ?2 AND shard = ?3 AND version > ?4 ORDER BY version LIMIT ?5"
    );
    let mut historic = connection.prepare_cached(&historic)?;
    let mut transitions = Vec::new();
    while transitions.len() <= query.limit {
        let Some(row) = messages.next()? else { break };
        let (sequence, shard): (i64, u16) = (row.get(0)?, row.get(1)?);
        let after = if sequence == after_sequence { after_version } else { 0 };
        let room = query.limit + 1 - transitions.len();
        let rows = historic.query_map(params![queue, sequence, shard, after, room as i64], transition)?;
        for row in rows {
            transitions.push(row?);
        }
    }
    let more = transitions.len() > query.limit;
    transitions.truncate(query.limit);
    let newest = format!(
        "SELECT {MESSAGE_COLUMNS}, (SELECT payload FROM payloads AS p \
             WHERE p.queue = c.queue AND p.sequence = c.sequence AND p.shard = c.shard) \
         FROM current AS c INDEXED BY current_by_id \
         WHERE c.queue = ?1 AND c.id = ?2 AND c.sequence BETWEEN ?3 AND ?4 ORDER BY c.sequence DESC, c.shard LIMIT 1"
    );
    let mut newest = connection.prepare_cached(&newest)?;
    let message = newest.query_row(params![queue, query.id.as_str(), first, last], |row| {
        let payload: Option<Vec<u8>> = row.get(19)?;
        let mut message = message(query.queue.as_str(), row)?;
        message.payload = payload.map(Into::into);
        Ok(message)
    });
    Ok(Trace { transitions, more, message: message.optional()? })
}

/// The sequence as it is stored. One beyond the range matches no row.
fn signed(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}
