//! Many items as NDJSON, one JSON object a line: read ([`reader`]), gathered into batches ([`batch`]), sent and told of
//! ([`send`]). What may not: what an item is; that its verb knows.

mod batch;
mod reader;
mod send;

pub(crate) use reader::Reader;
#[cfg(test)]
pub(crate) use reader::{LINE_BYTES_MAX, Numbered};
pub(crate) use send::{Sending, open, unreadable};

use serde::de::DeserializeOwned;

/// What a line stands for.
pub(crate) trait Item: Sized + Send + 'static {
    /// The fields of a line.
    type Line: DeserializeOwned;

    /// The item, or what is wrong with the line.
    fn of_line(line: Self::Line) -> Result<Self, String>;

    /// What it takes of a request, roughly.
    fn bytes(&self) -> usize;
}
