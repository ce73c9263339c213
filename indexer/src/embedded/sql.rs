//! The statements of searches and depths, built from conditions. Values are always bound as parameters.

use crate::SearchQuery;
use rusqlite::types::Value;

/// A statement over `current AS c`, possibly incomplete, and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Sql {
    pub(super) text: String,
    values: Vec<Value>,
    /// The alias of the table whose columns give the order of a search: the one that the statement walks.
    order: &'static str,
    /// The number of the metadata pair that the statement walks, if it walks one.
    driving_pair: Option<usize>,
}

const ORDER: [&str; 3] = ["enqueued_at_ms", "sequence", "shard"];

impl Sql {
    fn new(queue: i64, columns: &str, from: &str, order: &'static str) -> Sql {
        let text = format!("SELECT {columns} FROM {from} WHERE {order}.queue = ?");
        Sql { text, values: vec![queue.into()], order, driving_pair: None }
    }

    /// Walks the messages of a queue in the order of a search.
    pub(super) fn of_queue(queue: i64, columns: &str) -> Sql {
        Sql::new(queue, columns, "current AS c", "c")
    }

    /// Walks the messages with an id.
    pub(super) fn of_id(queue: i64, id: &str, columns: &str) -> Sql {
        Sql::new(queue, columns, "current AS c INDEXED BY current_by_id", "c").and("c.id = ?", [id.to_owned().into()])
    }

    /// Walks the messages that changed in the span of the query.
    pub(super) fn of_change(queue: i64, query: &SearchQuery, columns: &str) -> Sql {
        let from = "current AS c INDEXED BY current_by_change";
        Sql::new(queue, columns, from, "c").and(gone(query), []).changed(query)
    }

    /// Walks the messages of a queue by `gone` and state.
    pub(super) fn of_states(queue: i64, columns: &str) -> Sql {
        Sql::new(queue, columns, "current AS c INDEXED BY current_by_state", "c")
    }

    /// Walks the messages with one of the query's pairs in the order of a search.
    pub(super) fn of_pair(queue: i64, query: &SearchQuery, at: usize, columns: &str) -> Sql {
        let mut sql = Sql::new(queue, columns, "pairs AS d CROSS JOIN current AS c", "d").with_pair(query, at);
        sql.driving_pair = Some(at);
        sql.joined()
    }

    /// Walks the messages with this metadata key, in the order of its values.
    pub(super) fn of_key(queue: i64, key: &str, columns: &str) -> Sql {
        let sql = Sql::new(queue, columns, "pairs AS d CROSS JOIN current AS c", "d");
        sql.and("d.key = ?", [key.to_owned().into()]).joined()
    }

    /// Adds the condition that the message is the one of the pair.
    fn joined(self) -> Sql {
        let same = ORDER.map(|column| format!("c.{column} = d.{column}")).join(" AND ");
        self.and(&format!("c.queue = d.queue AND {same}"), [])
    }

    /// Walks only the rows of one pair, to count them.
    pub(super) fn of_pair_alone(queue: i64, query: &SearchQuery, at: usize, columns: &str) -> Sql {
        Sql::new(queue, columns, "pairs AS d", "d").with_pair(query, at)
    }

    fn with_pair(self, query: &SearchQuery, at: usize) -> Sql {
        match query.metadata.iter().nth(at) {
            Some((key, value)) => self.and("d.key = ? AND d.value = ?", [key.clone().into(), value.clone().into()]),
            None => self,
        }
    }

    /// Adds a condition.
    pub(super) fn and(mut self, condition: &str, values: impl IntoIterator<Item = Value>) -> Sql {
        self.text += " AND ";
        self.text += condition;
        self.values.extend(values);
        self
    }

    /// Adds the end of the statement.
    pub(super) fn end(mut self, text: &str) -> Sql {
        self.text += " ";
        self.text += text;
        self
    }

    /// Adds the span of the query.
    pub(super) fn changed(mut self, query: &SearchQuery) -> Sql {
        // Times beyond the range of a row become the largest one.
        let signed = |ms: u64| Value::from(i64::try_from(ms).unwrap_or(i64::MAX));
        if let Some(from_ms) = query.changed_from_ms {
            self = self.and("c.changed_at_ms >= ?", [signed(from_ms)]);
        }
        if let Some(to_ms) = query.changed_to_ms {
            self = self.and("c.changed_at_ms < ?", [signed(to_ms)]);
        }
        self
    }

    /// Adds the query's pairs, except the one that the statement walks.
    pub(super) fn other_pairs(mut self, query: &SearchQuery) -> Sql {
        let same = ORDER.map(|column| format!("p.{column} = c.{column}")).join(" AND ");
        let has = format!(
            "EXISTS (SELECT 1 FROM pairs AS p WHERE p.queue = c.queue AND p.key = ? AND p.value = ? AND {same})"
        );
        let driving_pair = self.driving_pair;
        for (_, (key, value)) in query.metadata.iter().enumerate().filter(|(at, _)| Some(*at) != driving_pair) {
            self = self.and(&has, [key.clone().into(), value.clone().into()]);
        }
        self
    }

    /// Adds the other conditions of the query.
    pub(super) fn other_conditions(self, query: &SearchQuery) -> Sql {
        let mut sql = self.changed(query).other_pairs(query);
        if !query.include_gone {
            sql = sql.and("c.gone = 0", []);
        }
        if !query.states.is_empty() {
            let states: Vec<String> = query.states.iter().map(|state| (*state as u8).to_string()).collect();
            // The plus keeps SQLite from choosing another index.
            sql = sql.and(&format!("+c.state IN ({})", states.join(", ")), []);
        }
        if !query.worker.is_empty() {
            sql = sql.and("c.worker = ?", [query.worker.clone().into()]);
        }
        if !query.reason_contains.is_empty() {
            // SQLite's `lower` folds only ASCII, and `instr` has no wildcards.
            let part = query.reason_contains.to_ascii_lowercase();
            sql = sql.and("instr(lower(c.reason), ?) > 0", [part.into()]);
        }
        sql
    }

    /// Adds the condition "after the query's position" for the queue of this name, the order and the limit.
    pub(super) fn in_order(mut self, query: &SearchQuery, queue: &str) -> Sql {
        let [enqueued_at_ms, sequence, shard] = ORDER.map(|column| format!("{}.{column}", self.order));
        if let Some(after) = &query.after {
            let signed = |value: u64| Value::from(i64::try_from(value).unwrap_or(i64::MAX));
            let at = || [signed(after.enqueued_at_ms), signed(after.sequence)];
            // Messages of equal time and sequence are ordered by queue name, then by shard.
            let (last_shard, is_before) = match queue.cmp(after.queue.as_str()) {
                std::cmp::Ordering::Less => (0, true),
                std::cmp::Ordering::Equal => (i64::from(after.shard), false),
                std::cmp::Ordering::Greater => (-1, false),
            };
            let place = format!("({enqueued_at_ms}, {sequence})");
            match is_before {
                true => self = self.and(&format!("{place} < (?, ?)"), at()),
                false => {
                    self = self.and(&format!("{place} <= (?, ?)"), at());
                    let later = format!("({place} < (?, ?) OR {shard} > ?)");
                    self = self.and(&later, at().into_iter().chain([last_shard.into()]));
                }
            }
        }
        let end = format!("ORDER BY {enqueued_at_ms} DESC, {sequence} DESC, {shard} LIMIT {}", query.limit);
        self.end(&end)
    }

    /// Its parameters.
    pub(super) fn params(&self) -> impl rusqlite::Params + use<'_> {
        rusqlite::params_from_iter(&self.values)
    }
}

/// The condition on `gone`, in a form that uses an index.
fn gone(query: &SearchQuery) -> &'static str {
    if query.include_gone { "c.gone IN (0, 1)" } else { "c.gone = 0" }
}
