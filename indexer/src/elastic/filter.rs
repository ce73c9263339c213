//! What is looked for, in the server's query language. Always built of values, never of text, so that nothing a
//! caller writes can be anything but a value.

use super::document::pair;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Conditions that all hold.
#[derive(Default)]
pub(super) struct Filter(Vec<Value>);

impl Filter {
    /// The field has this value.
    pub(super) fn term(mut self, field: &str, value: impl Into<Value>) -> Filter {
        self.0.push(json!({ "term": { field: value.into() } }));
        self
    }

    /// The field has one of these values.
    pub(super) fn any_of(mut self, field: &str, values: impl IntoIterator<Item = impl Into<Value>>) -> Filter {
        let values: Vec<Value> = values.into_iter().map(Into::into).collect();
        self.0.push(json!({ "terms": { field: values } }));
        self
    }

    /// The field is at least `from`, and below `to`.
    pub(super) fn range(mut self, field: &str, from: Option<u64>, to: Option<u64>) -> Filter {
        let mut range = serde_json::Map::new();
        range.extend(from.map(|from| ("gte".to_owned(), from.into())));
        range.extend(to.map(|to| ("lt".to_owned(), to.into())));
        if !range.is_empty() {
            self.0.push(json!({ "range": { field: range } }));
        }
        self
    }

    /// The field contains the text; ASCII letters match in either case (the server folds no others).
    pub(super) fn contains(mut self, field: &str, text: &str) -> Filter {
        let pattern = format!("*{}*", escape(text));
        self.0.push(json!({ "wildcard": { field: { "value": pattern, "case_insensitive": true } } }));
        self
    }

    /// Every pair is in the metadata.
    pub(super) fn has(self, metadata: &BTreeMap<String, String>) -> Filter {
        metadata.iter().fold(self, |filter, (key, value)| filter.term("metadata_pairs", pair(key, value)))
    }

    /// The query. It ranks nothing.
    pub(super) fn query(self) -> Value {
        json!({ "bool": { "filter": self.0 } })
    }
}

/// As a wildcard that matches only this text.
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
    fn hostile_text_stays_a_value() {
        let text = r#""}},{"match_all":{}}"#;
        let query = Filter::default().term("worker", text).query();
        assert_eq!(query, json!({ "bool": { "filter": [{ "term": { "worker": text } }] } }));
        let read: Value = serde_json::from_str(&query.to_string()).unwrap();
        assert_eq!(read["bool"]["filter"][0]["term"]["worker"], text);
    }

    #[test]
    fn a_wildcard_matches_only_the_text() {
        assert_eq!(escape(r"a*b?c\d [x]"), r"a\*b\?c\\d [x]");
        let query = Filter::default().contains("reason", "*").query();
        assert_eq!(query["bool"]["filter"][0]["wildcard"]["reason"]["value"], r"*\**");
    }

    #[test]
    fn a_range_without_bounds_is_no_condition() {
        assert_eq!(Filter::default().range("at_ms", None, None).query(), Filter::default().query());
        let query = Filter::default().range("at_ms", Some(1), Some(2)).query();
        assert_eq!(query["bool"]["filter"][0], json!({ "range": { "at_ms": { "gte": 1, "lt": 2 } } }));
    }

    #[test]
    fn a_pair_is_one_word() {
        let metadata = BTreeMap::from([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())]);
        let query = Filter::default().has(&metadata).query();
        assert_eq!(query["bool"]["filter"][1], json!({ "term": { "metadata_pairs": "c\u{1f}d" } }));
    }
}
