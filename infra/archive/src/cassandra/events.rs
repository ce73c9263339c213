//! Each event as a row to query. A row has the time of its object as its time of writing: so of what two objects say of an
//! event, the later one holds, whichever process comes first.

use super::connection::{Cluster, Connection};
use super::objects;
use crate::error::ArchiveError;
use crate::event::ArchivedEvent;
use crate::rows::{RowKey, SliceKey, Tables};
use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt, iter};
use object_store::Error;
use object_store::path::Path;
use scylla::value::{CqlTimestamp, MaybeUnset};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Rows of one counter in one request.
const ROWS_MAX: usize = 100;
/// Requests at once.
const AT_ONCE: usize = 32;
/// The parts of the list of a slice's counters.
const PARTS: i32 = 16;

/// Requests to come. A plain iterator of closures would not be `Send` across an await.
type Changes<'a> = Box<dyn Iterator<Item = BoxFuture<'a, Result<(), Error>>> + Send + 'a>;

/// The table `events` of a keyspace.
pub(crate) struct EventRows {
    connection: Arc<Connection>,
}

impl EventRows {
    pub(crate) fn over(connection: Arc<Connection>) -> EventRows {
        EventRows { connection }
    }

    async fn cluster(&self) -> Result<&Cluster, ArchiveError> {
        Ok(self.connection.cluster().await?)
    }
}

#[async_trait]
impl Tables for EventRows {
    async fn put_events(
        &self,
        slice: SliceKey<'_>,
        written_ms: u64,
        events: Vec<&ArchivedEvent>,
        repeated: &HashSet<RowKey>,
    ) -> Result<(), ArchiveError> {
        let cluster = self.cluster().await?;
        let counters: BTreeSet<(i32, String)> =
            events.iter().map(|event| (part_of(event), event.counter_key().into_owned())).collect();
        let counters = grouped(counters.into_iter());
        let (namespace, slice_ms) = (slice.namespace, time(slice.slice_ms));
        let lists = parts(&counters).into_iter().map(|(part, counters)| {
            let values = counters.iter().map(|counter| (namespace, slice_ms, part, counter)).collect();
            cluster.change(&cluster.statements.put_counter, values, micros(written_ms)).boxed()
        });
        // First: what is in no list would be found by no later deletion.
        run(Box::new(lists)).await?;
        let events = by_counter(events);
        let rows = parts(&events).into_iter().map(|(counter, events)| {
            let values = events.iter().map(|event| {
                // An empty column takes space, so it is written only where an earlier row may have a value.
                let is_repeated = !repeated.is_empty() && repeated.contains(&event.row_key());
                let ArchivedEvent { counter_id, delta, source, event_item_key, .. } = *event;
                let (at, shard, token) = (time(event.time_ms), i32::from(event.shard), event.token.as_ref());
                let (delta, source) = (column(*delta, is_repeated), column(source.as_deref(), is_repeated));
                let item = column(event_item_key.as_deref(), is_repeated);
                (namespace, counter, slice_ms, at, shard, token, counter_id.as_slice(), delta, source, item)
            });
            cluster.change(&cluster.statements.put_event, values.collect(), micros(written_ms)).boxed()
        });
        Ok(run(Box::new(rows)).await?)
    }

    async fn delete_events(
        &self,
        slice: SliceKey<'_>,
        written_ms: u64,
        events: Vec<&ArchivedEvent>,
    ) -> Result<(), ArchiveError> {
        let cluster = self.cluster().await?;
        let (namespace, slice_ms) = (slice.namespace, time(slice.slice_ms));
        let events = by_counter(events);
        let rows = parts(&events).into_iter().map(|(counter, events)| {
            let values = events.iter().map(|event| {
                let (at, shard, token) = (time(event.time_ms), i32::from(event.shard), event.token.as_ref());
                (namespace, counter, slice_ms, at, shard, token, event.counter_id.as_slice())
            });
            cluster.change(&cluster.statements.delete_event, values.collect(), micros(written_ms)).boxed()
        });
        Ok(run(Box::new(rows)).await?)
    }

    async fn delete_slice(&self, slice: SliceKey<'_>, written_ms: u64) -> Result<(), ArchiveError> {
        let cluster = self.cluster().await?;
        let (namespace, slice_ms) = (slice.namespace, time(slice.slice_ms));
        for part in 0..PARTS {
            let counters = cluster.rows::<(String,)>(&cluster.statements.counters, (namespace, slice_ms, part)).await?;
            let deletes = counters.into_iter().map(|(counter,)| {
                let values = vec![(namespace, counter, slice_ms)];
                cluster.change(&cluster.statements.delete_events, values, micros(written_ms)).boxed()
            });
            run(Box::new(deletes)).await?;
            // Last: if this process dies, the next one finds them again.
            let values = vec![(namespace, slice_ms, part)];
            cluster.change(&cluster.statements.delete_counters, values, micros(written_ms)).await?;
        }
        Ok(())
    }

    async fn remove_folder(&self, folder: &Path) -> Result<(), ArchiveError> {
        Ok(objects::remove_folder(self.cluster().await?, folder).await?)
    }
}

/// Sends requests, some at once.
async fn run(changes: Changes<'_>) -> Result<(), Error> {
    iter(changes).buffer_unordered(AT_ONCE).try_collect().await
}

fn by_counter(events: Vec<&ArchivedEvent>) -> BTreeMap<String, Vec<&ArchivedEvent>> {
    grouped(events.into_iter().map(|event| (event.counter_key().into_owned(), event)))
}

fn grouped<K: Ord, T>(all: impl Iterator<Item = (K, T)>) -> BTreeMap<K, Vec<T>> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    all.for_each(|(key, one)| groups.entry(key).or_default().push(one));
    groups
}

/// What one request takes, of each group.
fn parts<K, T>(groups: &BTreeMap<K, Vec<T>>) -> Vec<(&K, &[T])> {
    groups.iter().flat_map(|(key, all)| all.chunks(ROWS_MAX).map(move |some| (key, some))).collect()
}

fn part_of(event: &ArchivedEvent) -> i32 {
    i32::from(event.counter_id[0]) % PARTS
}

fn column<T>(value: Option<T>, is_repeated: bool) -> MaybeUnset<Option<T>> {
    if value.is_none() && !is_repeated { MaybeUnset::Unset } else { MaybeUnset::Set(value) }
}

fn time(ms: u64) -> CqlTimestamp {
    CqlTimestamp(ms as i64)
}

fn micros(ms: u64) -> i64 {
    ms as i64 * 1_000
}
