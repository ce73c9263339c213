//! Keeps the rows of a slice as its objects are: for each shard and time, what the object says that was written last.
//!
//! A row is written only after an object with its event is durable. Before a new object is written, the rows go that earlier
//! objects have of its spans and it has not. After it was written, the objects are compared again: of two processes that write
//! at the same time, at least one sees the object of the other. No later merge hides an earlier object too soon: it hides one only
//! after the later one is durable.

use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, NewObject, ShardSpan};
use crate::reader::{Opened, Reader, TRIES};
use crate::rows::{RowKey, SliceKey, Tables};
use object_store::path::Path;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// The rows of an object that is being written.
pub(crate) struct NewRows {
    tables: Arc<dyn Tables>,
    reader: Reader,
    namespace: String,
    slice_ms: u64,
    written_ms: u64,
    spans: Vec<ShardSpan>,
    /// Those of the object.
    keys: HashSet<RowKey>,
    /// Those of the object that earlier objects have, too.
    repeated: HashSet<RowKey>,
    /// Earlier objects that were compared.
    compared: HashSet<Path>,
    /// What later objects say instead.
    later: Vec<ShardSpan>,
}

impl NewRows {
    pub(crate) fn of(tables: Arc<dyn Tables>, reader: &Reader, namespace: &str, object: &NewObject) -> NewRows {
        NewRows {
            tables,
            reader: reader.clone(),
            namespace: namespace.to_owned(),
            slice_ms: object.slice_ms,
            written_ms: object.written_ms,
            spans: object.spans.clone(),
            keys: object.events.iter().map(ArchivedEvent::row_key).collect(),
            repeated: HashSet::new(),
            compared: HashSet::new(),
            later: Vec::new(),
        }
    }

    /// Deletes the rows that earlier objects have of its spans, and it has not.
    pub(crate) async fn retract(&mut self) -> Result<(), ArchiveError> {
        let mut tries_left = TRIES;
        loop {
            tries_left -= 1;
            match self.compare().await {
                // A merge has replaced one: the merged object says the same.
                Err(ArchiveError::Gone { .. }) if tries_left > 0 => {}
                compared => return compared,
            }
        }
    }

    /// Writes its rows. It must be durable.
    pub(crate) async fn put(&self, events: &[ArchivedEvent]) -> Result<(), ArchiveError> {
        let is_right = |event: &&ArchivedEvent| !self.later.iter().any(|span| span.has(event.shard, event.time_ms));
        let events = events.iter().filter(is_right).collect();
        self.tables.put_events(self.slice(), self.written_ms, events, &self.repeated).await
    }

    async fn compare(&mut self) -> Result<(), ArchiveError> {
        let times_ms: HashSet<Range<u64>> = self.spans.iter().map(|span| span.from_ms..span.to_ms).collect();
        let times_ms: Vec<Range<u64>> = times_ms.into_iter().collect();
        let view = self.reader.open(&self.namespace, self.slice_ms, |_| &times_ms).await?;
        for unread in view.unread {
            // What a damaged object has cannot be known, and it must not hold up the archive. The log names it.
            if !matches!(unread.error, ArchiveError::Damaged { .. }) {
                return Err(unread.error);
            }
        }
        for object in view.objects {
            let common: Vec<ShardSpan> = object
                .footer
                .spans
                .iter()
                .filter(|span| self.spans.iter().any(|own| own.overlaps(span)))
                .copied()
                .collect();
            if common.is_empty() || self.compared.contains(&object.path) {
                continue;
            }
            // One of the same time is this one, or says the same.
            if object.name.written_ms > self.written_ms {
                self.later.extend(common);
            } else if object.name.written_ms < self.written_ms {
                self.compare_with(&object).await?;
                self.compared.insert(object.path);
            }
        }
        Ok(())
    }

    async fn compare_with(&mut self, earlier: &Opened) -> Result<(), ArchiveError> {
        for group in 0..earlier.footer.groups.len() {
            let mut events = match self.reader.events(earlier, group, |_| true).await {
                Err(ArchiveError::Damaged { path, why }) => {
                    tracing::warn!(path, why, "rows of what it has may stay");
                    continue;
                }
                events => events?,
            };
            events.retain(|event| self.spans.iter().any(|span| span.has(event.shard, event.time_ms)));
            let (kept, gone): (Vec<_>, Vec<_>) = events.iter().partition(|event| self.keys.contains(&event.row_key()));
            self.repeated.extend(kept.into_iter().map(ArchivedEvent::row_key));
            self.tables.delete_events(self.slice(), self.written_ms, gone).await?;
        }
        Ok(())
    }

    fn slice(&self) -> SliceKey<'_> {
        SliceKey { namespace: &self.namespace, slice_ms: self.slice_ms }
    }
}
