//! Replies of plain commands, for the checks at the start.

use redis::Value;

/// The value of a name in a reply that is a map or, in the older protocol, a list of names and values; empty: it has none.
pub(crate) fn field(reply: &Value, name: &str) -> String {
    let value = match reply {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == name).map(|(_, value)| value),
        Value::Array(parts) => parts.chunks(2).find(|pair| text(&pair[0]) == name).and_then(|pair| pair.get(1)),
        _ => None,
    };
    value.map(text).unwrap_or_default()
}

/// A string; empty: the reply is something else.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}
