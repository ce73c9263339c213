//! Structured logs, on stderr.

use crate::error::CliError;
use std::io::IsTerminal;
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
    let stderr = std::io::stderr;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match format {
        LogFormat::Text => builder.with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
