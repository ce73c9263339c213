//! Replies of the engine, counted without being kept: a generator that parsed them into values would be the limit itself.

use anyhow::{Result, bail, ensure};

/// Counts complete replies in a stream of bytes, and fails on an error reply, a missing value, or a reply of another size.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Elements of the reply that is being read: yet to come, and seen.
    open: u64,
    seen: u64,
    /// Bytes of a string and its line end that are yet to come.
    skip: usize,
    /// The start of a line whose end has not come.
    partial: Vec<u8>,
}

impl Replies {
    /// Takes bytes, and returns how many replies they complete. `elements`: what each reply has, arrays and their items counted; 0:
    /// anything.
    pub(super) fn take(&mut self, mut bytes: &[u8], elements: u64) -> Result<u64> {
        let mut complete = 0;
        loop {
            let skipped = self.skip.min(bytes.len());
            bytes = &bytes[skipped..];
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(complete);
            }
            if self.seen > 0 && self.open == 0 {
                ensure!(
                    elements == 0 || self.seen == elements,
                    "a reply of {} elements instead of {elements}",
                    self.seen
                );
                self.seen = 0;
                complete += 1;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.partial.extend_from_slice(bytes);
                return Ok(complete);
            };
            let (line, rest) = bytes.split_at(end + 1);
            bytes = rest;
            if self.partial.is_empty() {
                self.line(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole)?;
                whole.clear();
                self.partial = whole;
            }
        }
    }

    /// One line with its end.
    fn line(&mut self, line: &[u8]) -> Result<()> {
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        let (kind, number) = text.split_first().map_or((0, text), |(kind, number)| (*kind, number));
        self.open = if self.seen == 0 { 0 } else { self.open - 1 };
        self.seen += 1;
        match kind {
            b':' | b'+' => {}
            b'$' if number != b"-1" => self.skip = length(number)? + 2,
            b'*' => self.open += length(number)? as u64,
            _ => bail!("the engine answered {}", String::from_utf8_lossy(text)),
        }
        Ok(())
    }
}

fn length(digits: &[u8]) -> Result<usize> {
    ensure!(!digits.is_empty() && digits.iter().all(u8::is_ascii_digit), "a length that is no number");
    Ok(digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b":12\r\n*2\r\n$3\r\na\nb\r\n:7\r\n$0\r\n\r\n+OK\r\n*2\r\n*1\r\n:1\r\n*0\r\n";

    #[test]
    fn w1_replies_are_counted_wherever_the_stream_is_cut() {
        for cut in 0..=STREAM.len() {
            let mut replies = Replies::default();
            let (head, tail) = STREAM.split_at(cut);
            let complete = replies.take(head, 0).unwrap() + replies.take(tail, 0).unwrap();
            assert_eq!(complete, 5, "cut at {cut}");
        }
    }

    #[test]
    fn w1_errors_missing_values_and_other_sizes_fail() {
        for bytes in [&b"-ERR no\r\n"[..], b"*2\r\n:1\r\n-ERR no\r\n", b"$-1\r\n", b"*2\r\n:1\r\n$-1\r\n"] {
            assert!(Replies::default().take(bytes, 0).is_err());
        }
        assert_eq!(Replies::default().take(b"*2\r\n:1\r\n:2\r\n", 3).unwrap(), 1);
        assert!(Replies::default().take(b"*1\r\n:1\r\n", 3).is_err());
    }
}
