//! Chooses the index that a search walks: the one of the condition that the fewest rows meet, counted up to a limit.

use super::sql::Sql;
use crate::SearchQuery;
use rusqlite::Connection;
use tallystone_model::State;

/// Counting stops here; conditions that more rows meet are equally unselective.
const COUNT_MAX: usize = 10_000;

/// What a search walks. The other conditions are checked row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// The messages with the id.
    Id,
    /// The messages with this one of the pairs, in the order of the search.
    Pair(usize),
    /// The messages changed in the span of the query; then they are sorted.
    Change,
    /// The messages in each requested state, in the order of the search; then they are merged.
    States,
    /// All messages, in the order of the search.
    Queue,
}

/// The driver for this query.
pub(super) fn choose(connection: &Connection, queue: i64, query: &SearchQuery) -> rusqlite::Result<Driver> {
    if query.id.is_some() {
        return Ok(Driver::Id);
    }
    let by_order = if query.include_gone && query.states.is_empty() { Driver::Queue } else { Driver::States };
    let has_span = query.changed_from_ms.is_some() || query.changed_to_ms.is_some();
    if query.metadata.is_empty() && !has_span {
        return Ok(by_order);
    }
    let mut choices = Vec::new();
    for at in 0..query.metadata.len() {
        choices.push((Driver::Pair(at), count(connection, [Sql::of_pair_alone(queue, query, at, "1")])?));
    }
    choices.push((by_order, count(connection, walks(by_order, queue, query, "1"))?));
    if has_span {
        choices.push((Driver::Change, count(connection, [Sql::of_change(queue, query, "1")])?));
    }
    // Of equal counts the first: a walk in order can stop early, a walk through a span must be sorted.
    Ok(choices.into_iter().min_by_key(|(_, rows)| *rows).map_or(by_order, |(driver, _)| driver))
}

/// The statements that walk a driver's rows, without other conditions.
pub(super) fn walks(driver: Driver, queue: i64, query: &SearchQuery, columns: &str) -> Vec<Sql> {
    match driver {
        Driver::Id => query.id.iter().map(|id| Sql::of_id(queue, id.as_str(), columns)).collect(),
        Driver::Pair(at) => vec![Sql::of_pair(queue, query, at, columns)],
        Driver::Change => vec![Sql::of_change(queue, query, columns)],
        Driver::Queue => vec![Sql::of_queue(queue, columns)],
        Driver::States => {
            let gone: &[i64] = if query.include_gone { &[0, 1] } else { &[0] };
            let states = State::ALL.iter().filter(|state| query.states.is_empty() || query.states.contains(state));
            let one = |(state, gone): (&State, &i64)| {
                let values = [(*gone).into(), i64::from(*state as u8).into()];
                Sql::of_states(queue, columns).and("c.gone = ? AND c.state = ?", values)
            };
            states.flat_map(|state| gone.iter().map(move |gone| (state, gone))).map(one).collect()
        }
    }
}

/// The rows of these walks, at most [`COUNT_MAX`].
fn count(connection: &Connection, walks: impl IntoIterator<Item = Sql>) -> rusqlite::Result<usize> {
    let mut rows = 0;
    for walk in walks {
        if rows < COUNT_MAX {
            let text = format!("SELECT count(*) FROM ({} LIMIT {COUNT_MAX})", walk.text);
            let counted: i64 = connection.prepare_cached(&text)?.query_row(walk.params(), |row| row.get(0))?;
            rows += counted as usize;
        }
    }
    Ok(rows.min(COUNT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::rows::MESSAGE_COLUMNS;
    use rusqlite::params_from_iter;
    use tallystone_model::MessageId;

    /// SQLite's query plan.
    fn explained(connection: &Connection, sql: &Sql) -> Vec<String> {
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.text)).expect("valid SQL");
        let rows = explain.query_map(sql.params(), |row| row.get("detail")).expect("a plan");
        rows.collect::<Result<_, _>>().expect("lines of a plan")
    }

    fn every_condition() -> SearchQuery {
        SearchQuery {
            states: [State::Pending, State::Errored].into(),
            metadata: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into(),
            worker: "w".to_owned(),
            reason_contains: "r".to_owned(),
            changed_from_ms: Some(1),
            changed_to_ms: Some(2),
            id: Some(MessageId::parse("id", "m").expect("an id")),
            limit: 10,
            after: Some(crate::SearchPosition { enqueued_at_ms: 5, sequence: 5, queue: "q".to_owned(), shard: 0 }),
            ..SearchQuery::default()
        }
    }

    #[test]
    fn q20_every_driver_uses_its_index_and_no_table_is_scanned() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(include_str!("schema.sql")).expect("the schema");
        for include_gone in [false, true] {
            let query = SearchQuery { include_gone, ..every_condition() };
            for (driver, index) in [
                (Driver::Id, "SEARCH c USING INDEX current_by_id (queue=? AND id=?)"),
                (Driver::Pair(0), "SEARCH d USING PRIMARY KEY (queue=? AND key=? AND value=?"),
                (Driver::Change, "SEARCH c USING INDEX current_by_change (queue=? AND gone=? AND changed_at_ms>?"),
                (Driver::States, "SEARCH c USING INDEX current_by_state (queue=? AND gone=? AND state=? AND "),
                (Driver::Queue, "SEARCH c USING PRIMARY KEY (queue=? AND "),
            ] {
                for name in ["a", "q", "z"] {
                    for walk in walks(driver, 1, &query, MESSAGE_COLUMNS) {
                        let plan = explained(&connection, &walk.other_conditions(&query).in_order(&query, name));
                        assert!(plan[0].starts_with(index), "{driver:?}: {plan:?}");
                        assert!(!plan.iter().any(|line| line.starts_with("SCAN")), "{driver:?}: {plan:?}");
                        let sorted = plan.iter().any(|line| line == "USE TEMP B-TREE FOR ORDER BY");
                        assert_eq!(sorted, matches!(driver, Driver::Change | Driver::Id), "{driver:?}: {plan:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn q20_the_most_selective_condition_drives() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(include_str!("schema.sql")).expect("the schema");
        // 1,000 pending messages; every tenth has the pair, and the last three changed late.
        for n in 0..1_000_i64 {
            let at_ms = if n < 997 { 1 } else { 1_000 };
            connection
                .execute(
                    "INSERT INTO current VALUES (1, ?1, ?1, 0, 'm', 1, 0, 2, ?2, 0, 0, 0, 0, 0, 0, '', '', '{}', 0, NULL)",
                    [n, at_ms],
                )
                .expect("a row");
            if n % 10 == 0 {
                connection
                    .execute("INSERT INTO pairs VALUES (1, 'a', '1', ?, ?, 0)", params_from_iter([n, n]))
                    .expect("a pair");
            }
        }
        let driver = |query: &SearchQuery| choose(&connection, 1, query).expect("a driver");
        let any = SearchQuery { limit: 10, ..SearchQuery::default() };
        let pair = SearchQuery { metadata: [("a".to_owned(), "1".to_owned())].into(), ..any.clone() };
        assert_eq!(driver(&any), Driver::States);
        assert_eq!(driver(&SearchQuery { include_gone: true, ..any.clone() }), Driver::Queue);
        assert_eq!(driver(&pair), Driver::Pair(0));
        assert_eq!(driver(&SearchQuery { changed_from_ms: Some(500), ..pair.clone() }), Driver::Change);
        assert_eq!(driver(&SearchQuery { changed_from_ms: Some(1), ..pair.clone() }), Driver::Pair(0));
        assert_eq!(driver(&SearchQuery { states: [State::Running].into(), ..pair }), Driver::States);
    }
}
