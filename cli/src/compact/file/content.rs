//! What a file has, in whichever form.

use super::super::set::{Figure, Figures};
use crate::error::CliError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What a set is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// Names and widths in turns: `likes u24 balance i40`.
    pub(crate) schema: String,
    /// Options as commands have them.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

impl Header {
    /// What `CT.INFO` shows of a set.
    pub(crate) fn of(info: &Figures) -> Header {
        let is_option = |name: &str| name == "order" || name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let option = |(name, figure): &(String, Figure)| {
            let value = match figure {
                Figure::Number(number) => number.to_string(),
                Figure::Text(text) => text.clone(),
            };
            (name.to_ascii_uppercase(), value)
        };
        let options = info.0.iter().filter(|(name, _)| is_option(name)).map(option).collect();
        Header { schema: info.text("schema").to_owned(), options }
    }

    /// The names of the fields.
    pub(crate) fn fields(&self) -> Vec<String> {
        self.schema.split(' ').step_by(2).map(str::to_owned).collect()
    }
}

/// An id and values of some fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) values: Vec<(String, i64)>,
}

/// Why a file cannot be read.
#[derive(Debug)]
pub(crate) enum FileError {
    /// The error of the system.
    Io(io::Error),
    /// The file is not what it should be.
    Content(String),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> FileError {
        FileError::Io(error)
    }
}

impl FileError {
    pub(super) fn content(what: impl Into<String>) -> FileError {
        FileError::Content(what.into())
    }

    /// For the user. `path`: the file.
    pub(crate) fn in_file(self, path: &Path) -> CliError {
        match self {
            FileError::Io(error) => CliError::usage(format!("cannot read {}: {error}", path.display())),
            FileError::Content(what) => CliError::usage(format!("{}: {what}", path.display())),
        }
    }
}
