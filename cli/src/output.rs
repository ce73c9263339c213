//! What a verb says on stdout: text for people, JSON for programs.

use crate::error::CliError;
use crate::terminal::{fitted, note, width};
use crate::text::harmless;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether nothing reads stdout any more.
static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Which of the two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    /// Whether the verb is of no use without a reader. The others continue, and their exit status says what they did.
    pub(crate) only_shows: bool,
}

impl Output {
    /// One value: a JSON object on one line, or what `people` makes of it.
    pub(crate) fn one<T: Serialize>(self, value: &T, people: impl FnOnce(&T) -> String) -> Result<(), CliError> {
        if self.json { self.line(&json(value)?) } else { self.line(people(value).trim_end()) }
    }

    /// Many values: a JSON object per line, or what `people` makes of them all.
    pub(crate) fn many<T: Serialize>(self, values: &[T], people: impl FnOnce(&[T]) -> String) -> Result<(), CliError> {
        if self.json {
            return values.iter().try_for_each(|value| self.line(&json(value)?));
        }
        self.line(people(values).trim_end())
    }

    /// A remark on what was shown: with --json it goes to stderr.
    pub(crate) fn remark(self, line: &str) -> Result<(), CliError> {
        if self.json {
            note(&harmless(line));
            return Ok(());
        }
        self.line(line)
    }

    /// Lines; in a terminal they break between words. Those for people have no control characters but line breaks and
    /// colours: who puts them together makes each part [`visible`](crate::text::visible).
    pub(crate) fn line(self, line: &str) -> Result<(), CliError> {
        let line = match (self.json, width()) {
            (true, _) => line.to_owned(),
            (false, Some(width)) => fitted(&harmless(line), width),
            (false, None) => harmless(line),
        };
        if reader_is_gone() {
            return Ok(());
        }
        let mut stdout = std::io::stdout().lock();
        match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            // The reader has seen enough: `tallystone msg ls … | head`.
            Err(error) if error.kind() == ErrorKind::BrokenPipe && self.only_shows => std::process::exit(0),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                READER_IS_GONE.store(true, Relaxed);
                Ok(())
            }
            Err(error) => Err(CliError::usage(format!("cannot write the output: {error}"))),
        }
    }
}

/// Whether nothing reads stdout any more, as a line before has found.
pub(crate) fn reader_is_gone() -> bool {
    READER_IS_GONE.load(Relaxed)
}

fn json<T: Serialize>(value: &T) -> Result<String, CliError> {
    serde_json::to_string(value).map_err(|error| CliError::usage(format!("cannot write the output as JSON: {error}")))
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let texts: Vec<String> = [0, 999, 1_000, 27_004, 1_234_567].map(grouped).into();
        assert_eq!(texts, ["0", "999", "1,000", "27,004", "1,234,567"]);
    }
}
