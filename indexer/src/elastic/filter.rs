//! Conditions in the server's query language. They are built as JSON values, never as text, so a caller's text
//! cannot change the query.

use super::document::pair;
use crate::store::Queues;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tallystone_model::Loss;
use tallystone_model::names::INTERNAL_QUEUES;

/// Conditions that must all be true.
#[derive(Clone, Default)]
pub(super) struct Filter(Vec<Value>);

impl Filter {
    /// The field equals this value.
    pub(super) fn term(mut self, field: &str, value: impl Into<Value>) -> Filter {
        self.0.push(json!({ "term": { field: value.into() } }));
        self
    }

    /// The field equals one of these values.
    pub(super) fn any_of(mut self, field: &str, values: impl IntoIterator<Item = impl Into<Value>>) -> Filter {
        let values: Vec<Value> = values.into_iter().map(Into::into).collect();
        self.0.push(json!({ "terms": { field: values } }));
        self
    }

    /// `from <= field < to`.
    pub(super) fn range(mut self, field: &str, from: Option<u64>, to: Option<u64>) -> Filter {
        let mut range = serde_json::Map::new();
        range.extend(from.map(|from| ("gte".to_owned(), from.into())));
        range.extend(to.map(|to| ("lt".to_owned(), to.into())));
        if !range.is_empty() {
            self.0.push(json!({ "range": { field: range } }));
        }
        self
    }

    /// `min <= field <= max`.
    pub(super) fn within(mut self, field: &str, min: Option<i64>, max: Option<i64>) -> Filter {
        let mut range = serde_json::Map::new();
        range.extend(min.map(|min| ("gte".to_owned(), min.into())));
        range.extend(max.map(|max| ("lte".to_owned(), max.into())));
        if !range.is_empty() {
            self.0.push(json!({ "range": { field: range } }));
        }
        self
    }

    /// The condition is false.
    pub(super) fn unless(mut self, condition: Value) -> Filter {
        self.0.push(json!({ "bool": { "must_not": [condition] } }));
        self
    }

    /// The message is of one of these queues.
    pub(super) fn queues(mut self, queues: &Queues) -> Filter {
        match queues {
            Queues::One(queue) => self.term("queue", queue.as_str()),
            Queues::WithPrefix(prefix) if prefix.is_empty() => self,
            Queues::WithPrefix(prefix) => {
                self.0.push(begins_with(prefix));
                self
            }
            Queues::NotInternal(prefix) => {
                self.queues(&Queues::WithPrefix(prefix.clone())).unless(begins_with(INTERNAL_QUEUES))
            }
        }
    }

    /// One of these losses makes the message uncertain.
    pub(super) fn uncertain_by(mut self, losses: &[Loss]) -> Filter {
        let one = |loss: &Loss| {
            let shard = Filter::default().term("queue", loss.shard.queue.as_str()).term("shard", loss.shard.number);
            shard.range("changed_at_ms", None, Some(loss.lost_to_ms.saturating_add(1))).query()
        };
        let any: Vec<Value> = losses.iter().map(one).collect();
        self.0.push(json!({ "bool": { "should": any, "minimum_should_match": 1 } }));
        self
    }

    /// The field contains the text. ASCII letters match in either case; the server folds no others.
    pub(super) fn contains(mut self, field: &str, text: &str) -> Filter {
        let pattern = format!("*{}*", escape(text));
        self.0.push(json!({ "wildcard": { field: { "value": pattern, "case_insensitive": true } } }));
        self
    }

    /// The metadata has every one of these pairs.
    pub(super) fn pairs(self, metadata: &BTreeMap<String, String>) -> Filter {
        metadata.iter().fold(self, |filter, (key, value)| filter.term("metadata_pairs", pair(key, value)))
    }

    /// The query. It computes no scores.
    pub(super) fn query(self) -> Value {
        json!({ "bool": { "filter": self.0 } })
    }
}

/// The name of the message's queue begins so.
pub(super) fn begins_with(prefix: &str) -> Value {
    json!({ "prefix": { "queue": { "value": prefix } } })
}

/// A wildcard pattern that matches only this text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_change_the_query() {
        let text = r#""}},{"match_all":{}}"#;
        let query = Filter::default().term("worker", text).query();
        assert_eq!(query, json!({ "bool": { "filter": [{ "term": { "worker": text } }] } }));
        let read: Value = serde_json::from_str(&query.to_string()).unwrap();
        assert_eq!(read["bool"]["filter"][0]["term"]["worker"], text);
    }

    #[test]
    fn wildcards_in_the_text_are_escaped() {
        assert_eq!(escape(r"a*b?c\d [x]"), r"a\*b\?c\\d [x]");
        let query = Filter::default().contains("reason", "*").query();
        assert_eq!(query["bool"]["filter"][0]["wildcard"]["reason"]["value"], r"*\**");
    }

    #[test]
    fn a_range_without_bounds_adds_no_condition() {
        assert_eq!(Filter::default().range("at_ms", None, None).query(), Filter::default().query());
        let query = Filter::default().range("at_ms", Some(1), Some(2)).query();
        assert_eq!(query["bool"]["filter"][0], json!({ "range": { "at_ms": { "gte": 1, "lt": 2 } } }));
    }

    #[test]
    fn s4_internal_queues_are_left_out() {
        let conditions = |prefix: &str| {
            let query = Filter::default().queues(&Queues::NotInternal(prefix.to_owned())).query();
            query["bool"]["filter"].as_array().cloned().unwrap_or_default()
        };
        let not_internal = json!({ "bool": { "must_not": [{ "prefix": { "queue": { "value": "rollup/" } } }] } });
        assert_eq!(conditions(""), std::slice::from_ref(&not_internal));
        assert_eq!(conditions("r"), [json!({ "prefix": { "queue": { "value": "r" } } }), not_internal]);
    }

    #[test]
    fn a_pair_is_one_term() {
        let metadata = BTreeMap::from([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())]);
        let query = Filter::default().pairs(&metadata).query();
        assert_eq!(query["bool"]["filter"][1], json!({ "term": { "metadata_pairs": "c\u{1f}d" } }));
    }
}
