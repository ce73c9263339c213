//! Messages as NDJSON: one JSON object a line, read in bounded memory.

use base64::Engine;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use tallystone_client::NewMessage;

/// The largest payload (32 KiB), every byte of it escaped as `\u0000`, and the largest metadata fit.
pub(crate) const LINE_BYTES_MAX: usize = 256 * 1024;

/// One line. Fields are those of the wire's `NewMessage`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Absent: one is drawn, and the same line given twice is two messages.
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    payload: Option<String>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default)]
    priority: i64,
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

impl Line {
    fn into_message(self) -> Result<NewMessage, String> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(_), Some(_)) => return Err("payload and payload_base64 exclude each other".to_owned()),
            (Some(text), None) => Bytes::from(text),
            (None, Some(base64)) => base64::prelude::BASE64_STANDARD
                .decode(base64)
                .map_err(|error| format!("payload_base64: {error}"))?
                .into(),
            (None, None) => Bytes::new(),
        };
        let message = match self.id {
            // On the wire it would stand for a new id: surely not what the sender meant.
            Some(id) if id.is_empty() => return Err("id: is empty; leave it out for a new one".to_owned()),
            Some(id) => NewMessage::new(id, payload),
            None => NewMessage::unnamed(payload),
        };
        Ok(NewMessage {
            priority: self.priority,
            metadata: self.metadata,
            lease_ms: self.lease_ms,
            invisibility_ms: self.invisibility_ms,
            max_attempts: self.max_attempts,
            coalesce: self.coalesce,
            ..message
        })
    }
}

/// One line read: its number, from 1, and the message or what is wrong with it.
pub(crate) type Numbered = (u64, Result<NewMessage, String>);

/// What one read may bring.
const BUFFER_BYTES: usize = 1024 * 1024;

/// Reads a stream line by line. Empty lines are passed over.
pub(crate) struct Reader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    number: u64,
    /// Bytes read so far.
    pub(crate) bytes: u64,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Reader { input: BufReader::with_capacity(BUFFER_BYTES, input), line: Vec::new(), number: 0, bytes: 0 }
    }

    /// Whether [`Reader::next`] would wait for the input: the moment to send what has been read.
    pub(crate) fn is_drained(&self) -> bool {
        self.input.buffer().is_empty()
    }

    /// The next message, or what is wrong with its line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Numbered>> {
        loop {
            self.line.clear();
            let read = self.input.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += read as u64;
            if read > LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
                self.bytes += self.input.skip_until(b'\n')? as u64;
                return Ok(Some((self.number, Err(format!("longer than {LINE_BYTES_MAX} bytes")))));
            }
            let line = self.line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            // serde would take a list for the fields in their order.
            if !line.starts_with(b"{") {
                return Ok(Some((self.number, Err("is no JSON object: {…}".to_owned()))));
            }
            let message = serde_json::from_slice::<Line>(line).map_err(|error| plain(&error));
            return Ok(Some((self.number, message.and_then(Line::into_message))));
        }
    }
}

/// The error without its "at line 1", which would name the wrong line.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Numbered> {
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
