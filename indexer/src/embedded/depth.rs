//! Messages by state.

use super::plan::{self, Driver};
use super::rows::queue_number;
use super::sql::Sql;
use crate::{DepthQuery, SearchQuery};
use rusqlite::Connection;
use tallystone_model::State;

pub(super) fn depth(connection: &Connection, query: &DepthQuery) -> rusqlite::Result<[u64; 6]> {
    let mut depth = [0; 6];
    let Some(queue) = queue_number(connection, &query.queue)? else { return Ok(depth) };
    let search = SearchQuery { metadata: query.metadata.clone(), ..SearchQuery::default() };
    let sql = match plan::choose(connection, queue, &search)? {
        Driver::Pair(at) => Sql::of_pair(queue, &search, at, "c.state, count(*)"),
        _ => Sql::of_states(queue, "c.state, count(*)"),
    };
    let sql = sql.and("c.gone = 0", []).other_pairs(&search).end("GROUP BY c.state");
    let mut select = connection.prepare_cached(&sql.text)?;
    for row in select.query_map(sql.params(), |row| Ok((row.get(0)?, row.get(1)?)))? {
        let (state, count): (u8, i64) = row?;
        if let Some(state) = State::from_code(state) {
            depth[state as usize - 1] = count as u64;
        }
    }
    Ok(depth)
}
