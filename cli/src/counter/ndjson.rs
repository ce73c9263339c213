//! Reads adds from NDJSON lines.

use crate::ndjson::Item;
use serde::{Deserialize, Deserializer};
use tallystone_client::{IdempotencyToken, NewAdd};

/// One line. Its fields are those of the proto message `AddCountRequest` and of its token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    counter: String,
    #[serde(default = "one")]
    delta: i64,
    /// If absent, the add gets a new token when it is sent, and the same line sent twice is two events.
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    generation_time_ms: Option<u64>,
    /// Absent, or a number: not null, so that no bound vanishes.
    #[serde(default, deserialize_with = "present")]
    min: Option<i64>,
    #[serde(default, deserialize_with = "present")]
    max: Option<i64>,
    #[serde(default)]
    source: String,
    #[serde(default)]
    event_item_key: String,
}

fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<i64>, D::Error> {
    i64::deserialize(field).map(Some)
}

fn one() -> i64 {
    1
}

impl Item for NewAdd {
    type Line = Line;

    fn of_line(line: Line) -> Result<NewAdd, String> {
        let token = match (line.token, line.generation_time_ms) {
            (Some(token), Some(time_ms)) => Some(IdempotencyToken::new(token, time_ms)),
            (None, Some(time_ms)) => Some(IdempotencyToken::drawn_for(time_ms)),
            (None, None) => None,
            (Some(_), None) => return Err("token needs generation_time_ms too".to_owned()),
        };
        let Line { counter, delta, min, max, source, event_item_key, .. } = line;
        Ok(NewAdd { token, min, max, source, event_item_key, ..NewAdd::new(counter, delta) })
    }

    fn bytes(&self) -> usize {
        // A new token has 32 characters.
        let token = self.token.as_ref().map_or(32, |token| token.token.len());
        self.counter.len() + token + self.source.len() + self.event_item_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndjson::{Numbered, Reader};

    #[test]
    fn lines_are_adds() {
        let text = concat!(
            "{\"counter\":\"a\"}\n",
            "{\"counter\":\"a\",\"delta\":-9223372036854775808,\"token\":\"t\",\"generation_time_ms\":5}\n",
            "{\"counter\":\"a\",\"generation_time_ms\":5}\n",
            "{\"counter\":\"a\",\"delta\":-1,\"min\":0,\"max\":7}\n",
            "{\"counter\":\"a\",\"source\":\"s\",\"event_item_key\":\"k\"}\n",
            "{\"counter\":\"a\",\"token\":\"t\"}\n",
            "{\"counter\":\"a\",\"source\":null}\n",
            "{\"delta\":1}\n",
            "{\"counter\":\"a\",\"min\":null}\n",
            "{\"counter\":\"a\",\"delta\":9223372036854775808}\n",
            "{\"counter\":\"a\",\"deltaa\":1}\n",
        );
        let mut reader = Reader::new(text.as_bytes());
        let lines: Vec<Numbered<NewAdd>> = std::iter::from_fn(|| reader.next().unwrap()).collect();
        assert_eq!(lines[0].1, Ok(NewAdd::new("a", 1)));
        assert_eq!(lines[1].1, Ok(NewAdd::new("a", i64::MIN).token(IdempotencyToken::new("t", 5))));
        let drawn = lines[2].1.as_ref().unwrap().token.as_ref().unwrap();
        assert_eq!((drawn.generation_time_ms, drawn.token.len()), (5, 32));
        assert_eq!(lines[3].1.as_ref().map(|add| (add.min, add.max)), Ok((Some(0), Some(7))));
        assert_eq!(lines[4].1, Ok(NewAdd::new("a", 1).source("s").event_item_key("k")));
        for (number, line) in &lines[5..] {
            assert!(line.is_err(), "line {number}");
        }
        assert_eq!(lines.len(), 11);
    }
}
