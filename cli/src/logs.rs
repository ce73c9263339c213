//! Structured logs, on stderr.

use crate::error::CliError;
use crate::text::harmless;
use std::io::{IsTerminal, Write, stderr};
use tracing_subscriber::EnvFilter;

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. The filter is in the syntax of `RUST_LOG`: `info`, `tallystone_server=debug,warn`.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| CliError::usage(format!("--log {filter:?}: {error}")).hint("for example --log debug"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match format {
        LogFormat::Text => {
            builder.with_writer(|| Lines(stderr())).with_ansi(stderr().is_terminal()).init();
        }
        LogFormat::Json => builder.with_writer(stderr).json().init(),
    }
    Ok(())
}

/// Writes each event on one line: what comes from a message cannot look like an event.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    /// `event` is a whole one: the subscriber writes each at once.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = harmless(text.trim_end_matches('\n')).replace('\n', "\\n");
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_an_event_is_one_line() {
        let mut written = Vec::new();
        Lines(&mut written).write_all(b"WARN why=a\n2026 INFO forged\x1b[2J\n").unwrap();
        assert_eq!(written, b"WARN why=a\\n2026 INFO forged\\u{1b}[2J\n");
    }
}
