//! How a verb fails: one line, a hint, an exit code.

use crate::terminal::{filled, note, stderr_width};
use crate::text::visible;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use tallystone_model::without_passwords;

/// Shown under `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit status:
  0  done
  1  refused: the server refused the call or some items, or a check failed
  2  wrong arguments or configuration
  3  unavailable: the server, or a store behind it, did not answer
130  interrupted: a second Ctrl-C or SIGTERM did not wait for a clean stop";

/// The exit codes, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    Refused = 1,
    Usage = 2,
    Unavailable = 3,
    Interrupted = crate::shutdown::INTERRUPTED as u8,
}

/// Why a verb failed.
#[derive(Debug, Serialize)]
pub(crate) struct CliError {
    /// One line.
    error: String,
    /// The reason of the wire's ErrorInfo, where the server gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// What the server adds to the reason, such as the count at a bound.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip)]
    code: Code,
}

impl CliError {
    fn new(code: Code, error: impl std::fmt::Display) -> Self {
        // Errors of libraries may span lines; ours do not.
        let error = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        // Texts of libraries may quote an address that they were given.
        let error = without_passwords(&error);
        CliError { error, reason: None, metadata: BTreeMap::new(), hint: None, code }
    }

    /// The queue said no.
    pub(crate) fn refused(error: impl std::fmt::Display) -> Self {
        CliError::new(Code::Refused, error)
    }

    /// Wrong arguments, configuration or files.
    pub(crate) fn usage(error: impl std::fmt::Display) -> Self {
        CliError::new(Code::Usage, error)
    }

    /// No answer.
    pub(crate) fn unavailable(error: impl std::fmt::Display) -> Self {
        CliError::new(Code::Unavailable, error)
    }

    /// A second signal.
    pub(crate) fn interrupted(error: impl std::fmt::Display) -> Self {
        CliError::new(Code::Interrupted, error)
    }

    /// With where it happened before it.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        CliError { error: format!("{place}: {}", self.error), ..self }
    }

    /// With what to do about it.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        CliError { hint: Some(hint.into()), ..self }
    }

    /// With the wire's reason.
    pub(crate) fn reason(self, reason: impl Into<String>) -> Self {
        CliError { reason: Some(reason.into()), ..self }
    }

    /// With what the server adds to the reason.
    pub(crate) fn metadata(self, metadata: BTreeMap<String, String>) -> Self {
        CliError { metadata, ..self }
    }

    /// Prints the error on stderr and returns the exit code.
    pub(crate) fn print(&self, json: bool) -> ExitCode {
        if json {
            note(&serde_json::to_string(self).unwrap_or_else(|error| error.to_string()));
        } else {
            let hint = self.hint.as_ref().map(|hint| format!(" hint: {hint}"));
            for line in [format!("error: {}", self.error)].into_iter().chain(hint) {
                let line = visible(&line);
                note(&stderr_width().map_or(line.clone(), |width| filled(&line, width, " hint: ".len())));
            }
        }
        ExitCode::from(self.code as u8)
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.error)
    }
}
