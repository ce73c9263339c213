//! The feed of passed thresholds (N16), for callers that wait.

use super::CounterService;
use super::open::OpenNamespace;
use crate::crossings::{CrossingsPage, CrossingsRead, last_entries, read_crossings};
use crate::names::NamespaceName;
use crate::namespace::CounterType;
use crate::refusal::Refusal;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The pause between two reads of a caller that waits, in ms. It is drawn, so that callers do not read at once.
const PAUSE_MS: std::ops::Range<u64> = 400..600;
/// A waiting caller takes as much room as reads of this number of counters: it reads 8 shards about twice a second.
const ROOM: usize = 100;

/// What a caller has read of the feed of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossingsPosition {
    /// Distinguishes the namespace from others that had its name.
    pub namespace: u64,
    /// The last id that was read, of each shard.
    pub read: CrossingsRead,
}

/// Where a page of the feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossingsFrom {
    /// Begins with the oldest stored crossing.
    Oldest,
    /// With those that follow the call.
    Now,
    /// After those that were read.
    Position(CrossingsPosition),
}

/// A page of the feed, and the position after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossingsAfter {
    /// The page.
    pub page: CrossingsPage,
    /// Where the next page begins.
    pub position: CrossingsPosition,
}

impl CounterService {
    /// A page of about `count` crossings of a namespace. If there is none, the call waits for one until this time.
    ///
    /// # Errors
    /// [`Refusal::PositionExpired`]. [`Refusal::Invalid`]: its counters are BEST_EFFORT. [`Refusal::Overloaded`]: too many calls
    /// wait.
    pub async fn crossings(
        &self,
        namespace: &NamespaceName,
        mut from: CrossingsFrom,
        count: usize,
        until: Instant,
    ) -> Result<CrossingsAfter, Refusal> {
        let mut room = None;
        loop {
            // It may change meanwhile.
            let open = self.directory.get(namespace).await?;
            let found = open.crossings(from, count).await?;
            let now = Instant::now();
            if !found.page.entries.is_empty() || now >= until || self.stopping.is_cancelled() {
                return Ok(found);
            }
            from = CrossingsFrom::Position(found.position);
            if room.is_none() {
                room = Some(self.read_room.take(ROOM)?);
            }
            let pause = Duration::from_millis(rand::random_range(PAUSE_MS));
            tokio::select! {
                () = sleep_until((now + pause).min(until)) => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }
}

impl OpenNamespace {
    async fn crossings(&self, from: CrossingsFrom, count: usize) -> Result<CrossingsAfter, Refusal> {
        if self.config.counter_type == CounterType::BestEffort {
            return Err(Refusal::invalid("namespace", "is BEST_EFFORT, so its counters have no rollups"));
        }
        let namespace = self.hash();
        let after = match from {
            CrossingsFrom::Oldest => None,
            CrossingsFrom::Now => Some(last_entries(&self.store).await?),
            CrossingsFrom::Position(position) if position.namespace == namespace => Some(position.read),
            CrossingsFrom::Position(_) => return Err(Refusal::PositionExpired),
        };
        let page = read_crossings(&self.store, after.as_ref(), count).await?;
        let position = CrossingsPosition { namespace, read: page.next };
        Ok(CrossingsAfter { page, position })
    }
}
