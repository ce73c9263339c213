//! What an archive in a database has in addition to its objects: each event as a row to query.

use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, COUNTER_ID_BYTES};
use async_trait::async_trait;
use object_store::path::Path;
use std::borrow::Cow;
use std::collections::HashSet;

/// A slice of a namespace.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cassandra"), expect(dead_code, reason = "no other archive has tables"))]
pub(crate) struct SliceKey<'a> {
    pub(crate) namespace: &'a str,
    /// When it begins, in Unix ms.
    pub(crate) slice_ms: u64,
}

/// What identifies a row in its slice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    counter: Box<str>,
    counter_id: [u8; COUNTER_ID_BYTES],
    shard: u16,
    time_ms: u64,
    token: Box<str>,
}

impl ArchivedEvent {
    /// The counter by which its row is found: the name; if that is not known, its hash in hex.
    pub(crate) fn counter_key(&self) -> Cow<'_, str> {
        match &self.counter {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(hex::encode(self.counter_id)),
        }
    }

    pub(crate) fn row_key(&self) -> RowKey {
        RowKey {
            counter: self.counter_key().into(),
            counter_id: self.counter_id,
            shard: self.shard,
            time_ms: self.time_ms,
            token: self.token.clone(),
        }
    }
}

/// The tables of such a database. Every call may be repeated. Of two changes of a row, the one whose object was written
/// later (`written_ms`) holds, whichever comes first.
#[async_trait]
pub(crate) trait Tables: Send + Sync {
    /// Writes the rows of events that an object has. `repeated`: those of which earlier objects may have written other columns.
    async fn put_events(
        &self,
        slice: SliceKey<'_>,
        written_ms: u64,
        events: Vec<&ArchivedEvent>,
        repeated: &HashSet<RowKey>,
    ) -> Result<(), ArchiveError>;

    /// Deletes the rows of events that an object does not have any more.
    async fn delete_events(
        &self,
        slice: SliceKey<'_>,
        written_ms: u64,
        events: Vec<&ArchivedEvent>,
    ) -> Result<(), ArchiveError>;

    /// Deletes the rows of all objects of a slice that were written up to a time.
    async fn delete_slice(&self, slice: SliceKey<'_>, written_ms: u64) -> Result<(), ArchiveError>;

    /// Removes a folder whose objects are deleted.
    async fn remove_folder(&self, folder: &Path) -> Result<(), ArchiveError>;
}
