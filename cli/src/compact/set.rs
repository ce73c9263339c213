//! What a verb knows of a counter set: its fields, and what `CT.INFO` and `CT.TABLES` show.

use super::session::CompactSession;
use crate::error::CliError;
use redis::{Value, cmd};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tallystone_client::compact::ids_per_reply;

/// Names and figures in the order of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures(pub(super) Vec<(String, Figure)>);

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Figure {
    Number(i64),
    Text(String),
}

impl Figures {
    /// Reads a map of RESP3, or names and values in turns as RESP2 has them.
    pub(super) fn of_reply(reply: Value) -> Figures {
        let figure = |value: Value| match value {
            Value::Int(number) => Figure::Number(number),
            other => Figure::Text(text(other)),
        };
        let pairs: Vec<(Value, Value)> = match reply {
            Value::Map(pairs) => pairs,
            Value::Array(values) => {
                let mut values = values.into_iter();
                std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect()
            }
            _ => Vec::new(),
        };
        Figures(pairs.into_iter().map(|(name, value)| (text(name), figure(value))).collect())
    }

    /// A number; 0 if there is none of this name.
    pub(super) fn number(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Figure::Number(number)) => u64::try_from(*number).unwrap_or(0),
            // A greater one than the protocol has comes as a text.
            Some(Figure::Text(text)) => text.parse().unwrap_or(0),
            None => 0,
        }
    }

    /// A text; empty if there is none of this name.
    pub(super) fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Figure::Text(text)) => text,
            _ => "",
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Figure> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, figure)| figure)
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, figure) in &self.0 {
            map.serialize_entry(&name.to_ascii_lowercase(), figure)?;
        }
        map.end()
    }
}

fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::SimpleString(text) => text,
        Value::VerbatimString { text, .. } => text,
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A counter set.
pub(super) struct Set {
    pub(super) key: String,
    /// The names of its live fields, in the order of replies.
    pub(super) fields: Vec<String>,
    pub(super) info: Figures,
}

impl Set {
    /// Reads what there is to know of a key.
    pub(super) async fn read(key: &str, session: &mut CompactSession) -> Result<Set, CliError> {
        let info = Figures::of_reply(session.call(key, cmd("CT.INFO").arg(key)).await?);
        // Names and widths in turns.
        let fields = info.text("schema").split(' ').step_by(2).map(str::to_owned).collect();
        Ok(Set { key: key.to_owned(), fields, info })
    }

    /// Ids that one command has room for.
    pub(super) fn ids_per_command(&self) -> usize {
        ids_per_reply(self.fields.len())
    }
}

/// The tables of a key.
pub(super) async fn tables(key: &str, session: &mut CompactSession) -> Result<Vec<Figures>, CliError> {
    let mut found: Vec<Figures> = Vec::new();
    // A reply has a page of them.
    loop {
        let from = found.last().map_or(0, |last| last.number("serial") + 1);
        let page: Vec<Value> = session.call(key, cmd("CT.TABLES").arg(key).arg("FROM").arg(from)).await?;
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page.into_iter().map(Figures::of_reply));
    }
}

/// The values of fields, by their names and in their order.
pub(super) struct Values<'a> {
    pub(super) fields: &'a [String],
    pub(super) values: &'a [i64],
}

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields.iter().zip(self.values))
    }
}

/// An id with its values.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    pub(super) id: u64,
    pub(super) values: Values<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_both_protocols_have_the_same_figures() {
        let bytes = |text: &str| Value::BulkString(text.into());
        let flat = Value::Array(vec![bytes("ids"), Value::Int(7), bytes("order"), bytes("RISING")]);
        let map = Value::Map(vec![(bytes("ids"), Value::Int(7)), (bytes("order"), bytes("RISING"))]);
        let figures = Figures::of_reply(flat);
        assert_eq!(figures, Figures::of_reply(map));
        assert_eq!((figures.number("IDS"), figures.text("order"), figures.number("none")), (7, "RISING", 0));
        assert_eq!(serde_json::to_string(&figures).unwrap(), r#"{"ids":7,"order":"RISING"}"#);
    }
}
