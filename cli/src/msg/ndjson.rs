//! Reads messages from NDJSON lines.

use crate::ndjson::Item;
use base64::Engine;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use tallystone_client::NewMessage;

/// One line. Its fields are those of the proto message `NewMessage`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// If absent, the message gets a new id, and the same line sent twice is two messages.
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    payload: Option<String>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default)]
    priority: i64,
    #[serde(default)]
    priority_class: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    lease_ms: Option<u64>,
    #[serde(default)]
    invisibility_ms: Option<u64>,
    #[serde(default)]
    max_attempts: Option<u32>,
    #[serde(default)]
    coalesce: bool,
}

impl Item for NewMessage {
    type Line = Line;

    fn of_line(line: Line) -> Result<NewMessage, String> {
        let payload = match (line.payload, line.payload_base64) {
            (Some(_), Some(_)) => return Err("give payload or payload_base64, not both".to_owned()),
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => base64::prelude::BASE64_STANDARD
                .decode(base64)
                .map_err(|error| format!("payload_base64: {error}"))?
                .into(),
            (None, None) => Bytes::new(),
        };
        let message = match line.id {
            // In the proto an empty id means a new id, which the sender of `"id": ""` surely did not mean.
            Some(id) if id.is_empty() => return Err("id is empty; leave it out for a new id".to_owned()),
            Some(id) => NewMessage::new(id, payload),
            None => NewMessage::unnamed(payload),
        };
        Ok(NewMessage {
            priority: line.priority,
            priority_class: line.priority_class,
            metadata: line.metadata,
            lease_ms: line.lease_ms,
            invisibility_ms: line.invisibility_ms,
            max_attempts: line.max_attempts,
            coalesce: line.coalesce,
            ..message
        })
    }

    fn bytes(&self) -> usize {
        let pairs: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.payload.len() + self.id.len() + pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndjson::{LINE_BYTES_MAX, Numbered, Reader};

    fn read(text: &str) -> Vec<Numbered<NewMessage>> {
        let mut reader = Reader::new(text.as_bytes());
        let lines = std::iter::from_fn(|| reader.next().unwrap()).collect();
        assert_eq!(reader.bytes, text.len() as u64);
        lines
    }

    #[test]
    fn q3_every_field_is_read() {
        let lines = read(
            r#"{"id":"a","payload":"hi","priority":-9223372036854775808,"metadata":{"k":"v"},"lease_ms":5000,"invisibility_ms":0,"max_attempts":2,"coalesce":true}

{"id":"b","payload_base64":"AP8="}
{"priority":9223372036854775807}"#,
        );
        let message = NewMessage::new("a", "hi").priority(i64::MIN).metadata("k", "v").lease_ms(5_000);
        assert_eq!(lines[0], (1, Ok(message.invisibility_ms(0).max_attempts(2).coalesce())));
        assert_eq!(lines[1], (3, Ok(NewMessage::new("b", &[0, 255][..]))));
        let (number, drawn) = &lines[2];
        let drawn = drawn.as_ref().unwrap();
        assert_eq!((*number, drawn.priority), (4, i64::MAX));
        assert!(!drawn.id.is_empty());
    }

    #[test]
    fn bad_lines_are_refused_one_by_one_with_their_number() {
        let lines = read(concat!(
            "{\"id\":\"a\"}\n",
            "{\"id\":\"a\",\"prioritty\":1}\n",
            "not json\n",
            "{\"id\":\"a\",\"priority\":1.5}\n",
            "{\"id\":\"a\",\"priority\":9223372036854775808}\n",
            "{\"payload\":\"x\",\"payload_base64\":\"eA==\"}\n",
            "{\"payload_base64\":\"?\"}\n",
            "{\"id\":\"\"}\n",
            "[]\n",
            "[\"a\",\"payload\"]\n",
            "{\"id\":\"z\"}"
        ));
        let said: Vec<(u64, bool)> = lines.iter().map(|(number, line)| (*number, line.is_ok())).collect();
        let expected = [true, false, false, false, false, false, false, false, false, false, true];
        assert_eq!(said, (1..).zip(expected).collect::<Vec<_>>());
        let error = |index: usize| lines[index].1.clone().unwrap_err();
        assert!(error(1).contains("unknown field `prioritty`") && error(1).contains("column"), "{}", error(1));
        assert!(!error(2).contains("line 1"), "{}", error(2));
    }

    #[test]
    fn an_endless_line_takes_bounded_memory() {
        let text = format!("{}\n{{\"id\":\"b\"}}\n", "x".repeat(3 * LINE_BYTES_MAX));
        let lines = read(&text);
        assert!(lines[0].1.as_ref().unwrap_err().contains("longer than"));
        assert_eq!(lines[1], (2, Ok(NewMessage::new("b", ""))));
    }
}
