//! Messages by their fields.

use super::plan::{choose, walks};
use super::rows::{MESSAGE_COLUMNS, matching_queues, message};
use crate::{SearchPosition, SearchQuery};
use rusqlite::Connection;
use std::cmp::Reverse;
use tallystone_proto::history::v1::IndexedMessage;

pub(super) fn search(connection: &Connection, query: &SearchQuery) -> rusqlite::Result<Vec<IndexedMessage>> {
    let mut found = Vec::new();
    for (queue, name) in matching_queues(connection, &query.queues)? {
        let driver = choose(connection, queue, query)?;
        for walk in walks(driver, queue, query, MESSAGE_COLUMNS) {
            let sql = walk.other_conditions(query).in_order(query, &name);
            let mut select = connection.prepare_cached(&sql.text)?;
            for row in select.query_map(sql.params(), |row| message(&name, row))? {
                found.push(row?);
            }
            // Each walk returns its first rows in order; the result is the first of all of them.
            found.sort_by_cached_key(rank);
            found.truncate(query.limit);
        }
    }
    Ok(found)
}

/// The order of [`SearchPosition`].
fn rank(message: &IndexedMessage) -> (Reverse<u64>, Reverse<u64>, String, u16) {
    let SearchPosition { enqueued_at_ms, sequence, queue, shard } = SearchPosition::of(message);
    (Reverse(enqueued_at_ms), Reverse(sequence), queue, shard)
}
