//! One run of one program: `bench VERB --only FIGURE --json`, and the rows that it printed.

use crate::child;
use crate::report::Better;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;

/// The exit status of a program that refuses its arguments.
const USAGE: i32 = 2;

/// What the comparison needs of a program's output.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Measured {
    pub(super) settings: Value,
    pub(super) rows: Vec<MeasuredRow>,
}

/// A row as a program printed it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MeasuredRow {
    pub(super) figure: String,
    pub(super) what: String,
    pub(super) unit: String,
    /// Builds before the first `--against` do not print it.
    pub(super) better: Option<Better>,
    #[serde(rename = "ours")]
    pub(super) value: Option<f64>,
}

impl Measured {
    /// Runs the program; its stderr is shown only when it fails. `None`: it does not know one of the arguments.
    pub(super) async fn by(program: &Path, arguments: &[String]) -> Result<Option<Measured>> {
        let name = program.display();
        let mut command = child::command(program, &std::env::current_dir()?);
        command.args(arguments).stdin(Stdio::null());
        let output = command.output().await.with_context(|| format!("cannot start {name}"))?;
        if output.status.code() == Some(USAGE) {
            return Ok(None);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name} {} failed: {}", arguments.join(" "), stderr.trim());
        let measured = Measured::parse(&output.stdout);
        measured.map(Some).with_context(|| format!("{name} printed no result of a bench"))
    }

    /// Keeps one row of those that differ only in their reference.
    fn parse(json: &[u8]) -> Result<Measured> {
        let mut measured: Measured = serde_json::from_slice(json)?;
        let mut seen = HashSet::new();
        measured.rows.retain(|row| seen.insert((row.figure.clone(), row.what.clone())));
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_an_older_build_are_read_and_repeated_ones_dropped() {
        let row = r#"{"figure":"unary","what":"w","unit":"/s","ours":7.5,"reference":null}"#;
        let json = format!(r#"{{"machine":{{}},"settings":{{"runs":1}},"rows":[{row},{row}]}}"#);
        let measured = Measured::parse(json.as_bytes()).unwrap();
        assert_eq!((measured.rows.len(), measured.rows[0].value, measured.rows[0].better), (1, Some(7.5), None));
        assert_eq!(measured.settings["runs"], 1);
    }
}
