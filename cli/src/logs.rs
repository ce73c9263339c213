//! Structured logs, on stderr.

use crate::error::CliError;
use crate::text::{harmless, visible};
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
    // A reader of stderr that has gone loses lines. By default the subscriber reports that on stderr, too, and panics in the task that logs.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    match format {
        LogFormat::Text => {
            let colors = stderr().is_terminal();
            builder.with_writer(move || Lines { to: stderr(), colors }).with_ansi(colors).init();
        }
        LogFormat::Json => builder.with_writer(stderr).json().init(),
    }
    Ok(())
}

/// Writes each event on one line: what comes from a message cannot look like an event.
struct Lines<W> {
    to: W,
    /// Whether events have colours.
    colors: bool,
}

impl<W: Write> Write for Lines<W> {
    /// `event` is a whole one: the subscriber writes each at once.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.trim_end_matches('\n');
        let line = if self.colors { harmless(line).replace('\n', "\\n") } else { visible(line) };
        self.to.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_an_event_is_one_line() {
        let written = |colors, event: &str| {
            let mut to = Vec::new();
            Lines { to: &mut to, colors }.write_all(event.as_bytes()).unwrap();
            String::from_utf8(to).unwrap()
        };
        for colors in [true, false] {
            let shown = written(colors, "WARN why=a\n2026 INFO forged\u{1b}[2J\u{202e}\n");
            assert_eq!(shown, "WARN why=a\\n2026 INFO forged\\u{1b}[2J\\u{202e}\n");
        }
        assert_eq!(written(true, "\u{1b}[33mWARN\u{1b}[0m\n"), "\u{1b}[33mWARN\u{1b}[0m\n");
        assert_eq!(written(false, "\u{1b}[8mhidden\n"), "\\u{1b}[8mhidden\n");
    }
}
