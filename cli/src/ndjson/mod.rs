//! Many items as NDJSON, one JSON object per line: `reader.rs` reads lines, `batch.rs` groups them, `send.rs` sends them
//! and reports the outcome. What an item is belongs to its verb (`msg/ndjson.rs`, `counter/ndjson.rs`).

mod batch;
mod reader;
mod send;

pub(crate) use reader::Reader;
#[cfg(test)]
pub(crate) use reader::{LINE_BYTES_MAX, Numbered};
pub(crate) use send::{Sending, open, unreadable};

use serde::de::DeserializeOwned;

/// An item that a line describes.
pub(crate) trait Item: Sized + Send + 'static {
    /// The JSON fields of a line.
    type Line: DeserializeOwned;

    /// The item of a line, or what is wrong with the line.
    fn of_line(line: Self::Line) -> Result<Self, String>;

    /// Its approximate size in a request.
    fn bytes(&self) -> usize;
}
