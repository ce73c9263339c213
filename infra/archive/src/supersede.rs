//! Keeps the rows of a slice equal to its objects: for each shard and time, the object that was written last decides.
//!
//! A row is written only after an object with its event is durable. Before a new object is written, its spans are compared with
//! earlier objects, and rows are deleted whose events the new object lacks. After it was written, the objects are compared again: of
//! two processes that write at the same time, at least one sees the object of the other. If a merge has replaced the new object
//! meanwhile, no rows are written: the caller writes its times again.
//!
//! If a merge replaces an earlier object, the comparisons no longer see the events that the merged object lacks. So if the store has
//! lost its last writes, and two archivers and a merge run at the same time, rows of lost events may stay.

use crate::encode::key;
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, ShardSpan};
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
    object: Written,
    /// The rows of the object that earlier objects have, too.
    repeated: HashSet<RowKey>,
    /// Earlier objects that were compared.
    compared: HashSet<Path>,
    /// The spans about which later objects decide.
    later: Vec<ShardSpan>,
}

/// What an object says.
pub(crate) struct Written {
    pub(crate) slice_ms: u64,
    pub(crate) written_ms: u64,
    pub(crate) spans: Vec<ShardSpan>,
    /// In the order of [`key`].
    pub(crate) events: Arc<Vec<ArchivedEvent>>,
}

impl Written {
    /// Whether it has an event with the same row.
    fn has(&self, event: &ArchivedEvent) -> bool {
        let found = self.events.binary_search_by(|own| key(own).cmp(&key(event)));
        let own = found.ok().and_then(|at| self.events.get(at));
        own.is_some_and(|own| own.counter_key() == event.counter_key())
    }
}

impl NewRows {
    pub(crate) fn of(tables: Arc<dyn Tables>, reader: &Reader, namespace: &str, object: Written) -> NewRows {
        NewRows {
            tables,
            reader: reader.clone(),
            namespace: namespace.to_owned(),
            object,
            repeated: HashSet::new(),
            compared: HashSet::new(),
            later: Vec::new(),
        }
    }

    /// Deletes rows of earlier objects in the spans of the new object, if the new object lacks their events. `path`: where the new
    /// object is, once it was written.
    ///
    /// # Errors
    /// [`ArchiveError::Unavailable`], also if the new object was written and is no longer there.
    pub(crate) async fn retract(&mut self, path: Option<&Path>) -> Result<(), ArchiveError> {
        let mut tries_left = TRIES;
        loop {
            tries_left -= 1;
            match self.compare(path).await {
                // A merge has replaced one: the merged object says the same.
                Err(ArchiveError::Gone { .. }) if tries_left > 0 => {}
                compared => return compared,
            }
        }
    }

    /// Writes the rows of the object, which must be durable.
    pub(crate) async fn put(&self) -> Result<(), ArchiveError> {
        let is_right = |event: &&ArchivedEvent| !self.later.iter().any(|span| span.has(event.shard, event.time_ms));
        let events = self.object.events.iter().filter(is_right).collect();
        self.tables.put_events(self.slice(), self.object.written_ms, events, &self.repeated).await
    }

    /// Deletes its rows again.
    pub(crate) async fn take_back(&self) -> Result<(), ArchiveError> {
        let events = self.object.events.iter().collect();
        self.tables.delete_events(self.slice(), self.object.written_ms, events).await
    }

    async fn compare(&mut self, path: Option<&Path>) -> Result<(), ArchiveError> {
        let times_ms: HashSet<Range<u64>> = self.object.spans.iter().map(|span| span.from_ms..span.to_ms).collect();
        let times_ms: Vec<Range<u64>> = times_ms.into_iter().collect();
        let view = self.reader.open(&self.namespace, self.object.slice_ms, |_| &times_ms).await?;
        for unread in view.unread {
            // The events of a damaged object are unknown, and it must not hold up the archive. The log names it.
            if !matches!(unread.error, ArchiveError::Damaged { .. }) {
                return Err(unread.error);
            }
        }
        let is_there = |path: &Path| view.objects.iter().any(|object| object.path == *path);
        if let Some(path) = path
            && !self.object.spans.is_empty()
            && !is_there(path)
        {
            let why = format!("{path} was merged before its rows were written");
            return Err(ArchiveError::Unavailable { why });
        }
        for object in view.objects {
            let common: Vec<ShardSpan> = object
                .footer
                .spans
                .iter()
                .filter(|span| self.object.spans.iter().any(|own| own.overlaps(span)))
                .copied()
                .collect();
            if common.is_empty() || self.compared.contains(&object.path) {
                continue;
            }
            // One of the same time is this one, or says the same.
            if object.name.written_ms > self.object.written_ms {
                self.later.extend(common);
            } else if object.name.written_ms < self.object.written_ms {
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
            events.retain(|event| self.object.spans.iter().any(|span| span.has(event.shard, event.time_ms)));
            let (kept, gone): (Vec<_>, Vec<_>) = events.iter().partition(|event| self.object.has(event));
            self.repeated.extend(kept.into_iter().map(ArchivedEvent::row_key));
            self.tables.delete_events(self.slice(), self.object.written_ms, gone).await?;
        }
        Ok(())
    }

    fn slice(&self) -> SliceKey<'_> {
        SliceKey { namespace: &self.namespace, slice_ms: self.object.slice_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::COUNTER_ID_BYTES;
    use crate::{Archive, NewObject};
    use async_trait::async_trait;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    /// Takes all rows.
    struct AnyRows;

    #[async_trait]
    impl Tables for AnyRows {
        async fn put_events(
            &self,
            _: SliceKey<'_>,
            _: u64,
            _: Vec<&ArchivedEvent>,
            _: &HashSet<RowKey>,
        ) -> Result<(), ArchiveError> {
            Ok(())
        }

        async fn delete_events(&self, _: SliceKey<'_>, _: u64, _: Vec<&ArchivedEvent>) -> Result<(), ArchiveError> {
            Ok(())
        }

        async fn delete_slice(&self, _: SliceKey<'_>, _: u64) -> Result<(), ArchiveError> {
            Ok(())
        }

        async fn remove_folder(&self, _: &Path) -> Result<(), ArchiveError> {
            Ok(())
        }
    }

    fn event(counter: Option<&str>, token: &str) -> ArchivedEvent {
        ArchivedEvent {
            shard: 0,
            counter_id: [7; COUNTER_ID_BYTES],
            counter: counter.map(Into::into),
            time_ms: 5,
            token: token.into(),
            delta: Some(1),
            source: None,
            event_item_key: None,
        }
    }

    #[tokio::test]
    async fn n21_an_object_that_a_merge_takes_before_its_rows_were_written_has_none() {
        let store = Arc::new(InMemory::new());
        let archive = Archive::over(store.clone());
        let spans = vec![ShardSpan { shard: 0, from_ms: 0, to_ms: 10 }];
        let events = vec![event(Some("clicks"), "t")];
        let object = NewObject {
            slice_ms: 0,
            slice_length_ms: 100,
            written_ms: 1,
            spans: spans.clone(),
            events: events.clone(),
        };
        archive.write("ads", object).await.unwrap();
        let folder = crate::name::slice("ads", 0).unwrap();
        let path = archive.reader.store.list_with_delimiter(Some(&folder)).await.unwrap().objects.remove(0).location;
        let new = |spans: Vec<ShardSpan>| {
            let object = Written { slice_ms: 0, written_ms: 1, spans, events: Arc::new(events.clone()) };
            NewRows::of(Arc::new(AnyRows), &archive.reader, "ads", object)
        };
        new(spans.clone()).retract(Some(&path)).await.unwrap();
        store.delete(&path).await.unwrap();
        let error = new(spans.clone()).retract(Some(&path)).await.unwrap_err();
        assert!(matches!(&error, ArchiveError::Unavailable { why } if why.contains("was merged")), "{error}");
        new(spans).retract(None).await.unwrap();
        new(Vec::new()).retract(Some(&path)).await.unwrap();
    }

    #[test]
    fn n21_a_row_has_the_counter_by_which_it_is_found() {
        let mut events: Vec<ArchivedEvent> = ["c", "a", "b"].map(|token| event(Some("clicks"), token)).into();
        events.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        let object = Written { slice_ms: 0, written_ms: 1, spans: Vec::new(), events: Arc::new(events) };
        assert!(["a", "b", "c"].iter().all(|token| object.has(&event(Some("clicks"), token))));
        assert!(!object.has(&event(Some("clicks"), "d")));
        assert!(!object.has(&event(None, "a")), "its row has another key");
    }
}
