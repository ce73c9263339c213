//! Reads a stream line by line, in bounded memory.

use super::Item;
use std::io::{self, BufRead, BufReader, Read};

/// Enough for the largest payload (32 KiB), every byte escaped as `\u0000`, with the largest metadata.
pub(crate) const LINE_BYTES_MAX: usize = 256 * 1024;

/// The number of a line, from 1, and its item or what is wrong with it.
pub(crate) type Numbered<T> = (u64, Result<T, String>);

/// Bytes of one read, at most.
const BUFFER_BYTES: usize = 1024 * 1024;

/// Reads a stream line by line and skips empty lines.
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

    /// Whether [`Reader::next`] would wait for input. What was read should be sent before that.
    pub(crate) fn is_drained(&self) -> bool {
        self.input.buffer().is_empty()
    }

    /// The next item, or what is wrong with its line; `None` at the end.
    pub(crate) fn next<T: Item>(&mut self) -> io::Result<Option<Numbered<T>>> {
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
            // serde would accept a list as the fields in their order.
            if !line.starts_with(b"{") {
                return Ok(Some((self.number, Err("is not a JSON object".to_owned()))));
            }
            let fields = serde_json::from_slice::<T::Line>(line).map_err(|error| plain(&error));
            return Ok(Some((self.number, fields.and_then(T::of_line))));
        }
    }
}

/// The error without serde's "at line 1": each line is parsed on its own.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}
