//! Messages by state, of all that match or by groups.

use super::plan::{self, Driver};
use super::rows::matching_queues;
use super::sql::Sql;
use crate::{DepthQuery, GroupBy, Grouping, SearchQuery};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::collections::BTreeMap;
use tallystone_model::State;

pub(super) fn depth(connection: &Connection, query: &DepthQuery) -> rusqlite::Result<[u64; 6]> {
    let mut depth = [0; 6];
    for (number, name) in matching_queues(connection, &query.queues)? {
        for (total, count) in depth.iter_mut().zip(depth_of(connection, number, &name, query)?) {
            *total += count;
        }
    }
    Ok(depth)
}

/// A query, and its groups.
pub(super) fn depth_by(
    connection: &Connection,
    (query, grouping): &(DepthQuery, Grouping),
) -> rusqlite::Result<Vec<(String, [u64; 6])>> {
    match &grouping.by {
        GroupBy::Queue => by_queue(connection, query, grouping),
        GroupBy::Key(key) => by_value(connection, query, key, grouping),
    }
}

fn by_queue(
    connection: &Connection,
    query: &DepthQuery,
    grouping: &Grouping,
) -> rusqlite::Result<Vec<(String, [u64; 6])>> {
    let mut groups = Vec::new();
    for (number, name) in matching_queues(connection, &query.queues)? {
        if grouping.after.as_ref().is_some_and(|after| name <= *after) {
            continue;
        }
        if groups.len() == grouping.limit {
            break;
        }
        let depth = depth_of(connection, number, &name, query)?;
        if depth != [0; 6] {
            groups.push((name, depth));
        }
    }
    Ok(groups)
}

fn by_value(
    connection: &Connection,
    query: &DepthQuery,
    key: &str,
    grouping: &Grouping,
) -> rusqlite::Result<Vec<(String, [u64; 6])>> {
    let mut groups: BTreeMap<String, [u64; 6]> = BTreeMap::new();
    let after = grouping.after.clone().unwrap_or_default();
    for (number, name) in matching_queues(connection, &query.queues)? {
        let sql = Sql::of_key(number, key, "d.value, c.state").and("d.value > ?", [after.clone().into()]);
        let sql = conditions(sql, &name, query).other_pairs(&pairs_of(query)).end("ORDER BY d.value");
        let mut select = connection.prepare_cached(&sql.text)?;
        let mut rows = select.query(sql.params())?;
        let (mut values, mut last) = (0, String::new());
        while let Some(row) = rows.next()? {
            let value = row.get_ref(0)?.as_str()?;
            if value != last {
                values += 1;
                // Further values of this queue are not among the first ones of all queues.
                if values > grouping.limit {
                    break;
                }
                last = value.to_owned();
            }
            if let Some(state) = State::from_code(row.get(1)?) {
                groups.entry(last.clone()).or_default()[state as usize - 1] += 1;
            }
        }
    }
    Ok(groups.into_iter().take(grouping.limit).collect())
}

/// The messages of one queue.
fn depth_of(connection: &Connection, queue: i64, name: &str, query: &DepthQuery) -> rusqlite::Result<[u64; 6]> {
    let search = pairs_of(query);
    let sql = match plan::choose(connection, queue, &search)? {
        Driver::Pair(at) => Sql::of_pair(queue, &search, at, "c.state, count(*)"),
        _ => Sql::of_states(queue, "c.state, count(*)"),
    };
    let sql = conditions(sql, name, query).other_pairs(&search).end("GROUP BY c.state");
    let mut select = connection.prepare_cached(&sql.text)?;
    let mut depth = [0; 6];
    for row in select.query_map(sql.params(), |row| Ok((row.get(0)?, row.get(1)?)))? {
        let (state, count): (u8, i64) = row?;
        if let Some(state) = State::from_code(state) {
            depth[state as usize - 1] = count as u64;
        }
    }
    Ok(depth)
}

/// The pairs of a query as a search has them.
fn pairs_of(query: &DepthQuery) -> SearchQuery {
    SearchQuery { metadata: query.metadata.clone(), ..SearchQuery::default() }
}

/// The conditions other than pairs. `name` is the name of the queue.
fn conditions(sql: Sql, name: &str, query: &DepthQuery) -> Sql {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let mut sql = sql.and("c.gone = 0", []);
    for (condition, value) in [
        ("c.priority >= ?", query.priority_min),
        ("c.priority <= ?", query.priority_max),
        ("c.enqueued_at_ms >= ?", query.enqueued_from_ms.map(signed)),
        ("c.enqueued_at_ms < ?", query.enqueued_to_ms.map(signed)),
    ] {
        if let Some(value) = value {
            sql = sql.and(condition, [value.into()]);
        }
    }
    let Some(losses) = &query.uncertain_by else { return sql };
    let mut any = vec!["0".to_owned()];
    let mut values: Vec<Value> = Vec::new();
    for loss in losses.iter().filter(|loss| loss.shard.queue.as_str() == name) {
        any.push("(c.shard = ? AND c.changed_at_ms <= ?)".to_owned());
        values.extend([i64::from(loss.shard.number).into(), signed(loss.lost_to_ms).into()]);
    }
    sql.and(&format!("({})", any.join(" OR ")), values)
}
