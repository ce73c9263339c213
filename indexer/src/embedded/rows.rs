//! Rows of the tables as messages of the wire.

use crate::Queues;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeMap;
use tallystone_model::QueueName;
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};

/// The columns of `current AS c` in the order of [`message`].
pub(super) const MESSAGE_COLUMNS: &str = "c.shard, c.id, c.sequence, c.state, c.gone, c.version, c.priority, \
     c.metadata, c.attempts, c.fence, c.worker, c.reason, c.enqueued_at_ms, c.since_ms, c.changed_at_ms, c.due_ms, \
     c.coalesced, c.repaired, c.result";

/// The columns of `historic` in the order of [`transition`].
pub(super) const TRANSITION_COLUMNS: &str = "sequence, version, from_state, to_state, by, at_ms, spent_ms, worker, \
     fence, attempt, reason, due_ms, priority";

/// A row of `current`, without payload.
pub(super) fn message(queue: &str, row: &Row) -> rusqlite::Result<IndexedMessage> {
    Ok(IndexedMessage {
        queue: queue.to_owned(),
        shard: row.get(0)?,
        id: row.get(1)?,
        sequence: unsigned(row, 2)?,
        state: row.get(3)?,
        gone: row.get(4)?,
        version: row.get(5)?,
        priority: row.get(6)?,
        metadata: metadata(row, 7)?,
        attempts: row.get(8)?,
        fencing_token: unsigned(row, 9)?,
        worker: row.get(10)?,
        reason: row.get(11)?,
        enqueued_at_ms: row.get(12)?,
        state_since_ms: row.get(13)?,
        changed_at_ms: row.get(14)?,
        due_ms: row.get(15)?,
        coalesced: row.get(16)?,
        repaired: row.get(17)?,
        uncertain: false,
        payload: None,
        result: row.get::<_, Option<Vec<u8>>>(18)?.unwrap_or_default().into(),
    })
}

/// A row of `historic`.
pub(super) fn transition(row: &Row) -> rusqlite::Result<TracedTransition> {
    Ok(TracedTransition {
        sequence: unsigned(row, 0)?,
        version: row.get(1)?,
        from_state: row.get(2)?,
        to_state: row.get(3)?,
        cause: row.get(4)?,
        at_ms: row.get(5)?,
        spent_ms: row.get(6)?,
        worker: row.get(7)?,
        fencing_token: unsigned(row, 8)?,
        attempt: row.get(9)?,
        reason: row.get(10)?,
        due_ms: row.get(11)?,
        priority: row.get(12)?,
    })
}

/// A number that is stored as the signed number of the same bits.
fn unsigned(row: &Row, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

/// The metadata of a row.
pub(super) fn metadata(row: &Row, column: usize) -> rusqlite::Result<BTreeMap<String, String>> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

/// The number of a queue; `None`: it has no rows.
pub(super) fn queue_number(connection: &Connection, queue: &QueueName) -> rusqlite::Result<Option<i64>> {
    let mut select = connection.prepare_cached("SELECT number FROM queues WHERE name = ?")?;
    select.query_row([queue.as_str()], |row| row.get(0)).optional()
}

/// The numbers and names of these queues, in the order of their names.
pub(super) fn matching_queues(connection: &Connection, queues: &Queues) -> rusqlite::Result<Vec<(i64, String)>> {
    let prefix = match queues {
        Queues::One(queue) => {
            let number = queue_number(connection, queue)?;
            return Ok(number.into_iter().map(|number| (number, queue.to_string())).collect());
        }
        Queues::WithPrefix(prefix) | Queues::NotInternal(prefix) => prefix,
    };
    let mut select = connection.prepare_cached("SELECT number, name FROM queues WHERE name >= ? ORDER BY name")?;
    let mut rows = select.query([prefix])?;
    let mut matching = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(1)?;
        if !name.starts_with(prefix.as_str()) {
            break;
        }
        if queues.contains(&name) {
            matching.push((row.get(0)?, name));
        }
    }
    Ok(matching)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_internal_queues_are_left_out() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(include_str!("schema.sql")).expect("the schema");
        for (number, name) in [(1, "q"), (2, "rollup"), (3, "rollup/views/0of1"), (4, "s")] {
            connection
                .execute("INSERT INTO queues (number, name) VALUES (?, ?)", rusqlite::params![number, name])
                .expect("a row");
        }
        let names = |queues: Queues| {
            let matching = matching_queues(&connection, &queues).expect("rows");
            matching.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(Queues::WithPrefix(String::new())), ["q", "rollup", "rollup/views/0of1", "s"]);
        assert_eq!(names(Queues::NotInternal(String::new())), ["q", "rollup", "s"]);
        assert_eq!(names(Queues::NotInternal("r".to_owned())), ["rollup"]);
    }
}
