//! The oracle: all stores of one namespace in memory, the executable meaning of their contracts ([`log`](crate::log),
//! [`checkpoints`](crate::checkpoints), [`cache`](crate::cache)). It is written to be obviously right, not fast: a shard is
//! a map of events, a map of what is pending and a map of dirty counters; sums have 128 bits; every bound is checked where
//! it is stated. What lives here: one file for each contract. What may not: slots, packed records, caches, anything that
//! only makes the store fast.
//!
//! It replies as Redis does if a call of [`append`](crate::Events::append) has at most 512 events for each shard: Redis
//! appends a longer call in parts, whose order the contract does not state. Counters of the cache do not expire here, and
//! [`scan`](crate::Events::scan) reads all windows at once.

mod cache;
mod crossings;
mod events;
mod rollup_log;
mod schedule;
mod shard;

use crate::checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit, Deletions, Epoch, deletion_ahead};
use crate::crossings::{CrossingEntry, passed};
use crate::log::{Change, Event, WINDOW_MS};
use crate::names::CounterName;
use crate::namespace::{FUTURE_LIMIT_MS, NamespaceConfig, Placement, SHARDS, SKEW_MS};
use crate::recount::{Recounted, Recounts};
use crate::refusal::Refusal;
use shard::{DirtyMark, Shard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tallystone_link::StreamId;
use tallystone_lua::counter::FIRST_AGE_MS_MAX;

/// A namespace in memory. [`open`](Oracle::open) makes the stores of one server.
#[derive(Clone, Default)]
pub struct Oracle(Arc<Mutex<World>>);

/// The stores of one server, which follows one revision of the namespace.
#[derive(Clone)]
pub struct OracleNamespace {
    world: Arc<Mutex<World>>,
    config: NamespaceConfig,
    revision: u64,
    clock_ms: Arc<AtomicU64>,
}

#[derive(Default)]
struct World {
    /// By number; empty before the first server opens the namespace.
    shards: Vec<Shard>,
    checkpoints: BTreeMap<CounterName, Checkpoint>,
    /// Up to when the events of deleted counters are deleted (Unix ms).
    deleted: BTreeMap<CounterName, u64>,
    recounts: BTreeMap<CounterName, Vec<Recounted>>,
    cached: BTreeMap<CounterName, i64>,
    /// In the order in which they were appended.
    crossings: Vec<CrossingEntry>,
}

impl Oracle {
    /// The stores of a server with this revision of the configuration. All shards follow that revision from now on.
    /// `clock_ms` is the store's time in Unix ms; a test moves it.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: the shards follow a later revision. [`Refusal::Invalid`]: the configuration is not valid.
    pub fn open(
        &self,
        config: NamespaceConfig,
        revision: u64,
        clock_ms: Arc<AtomicU64>,
    ) -> Result<OracleNamespace, Refusal> {
        config.check()?;
        let mut world = lock(&self.0);
        if world.shards.is_empty() {
            world.shards = (0..SHARDS).map(|_| Shard::new(clock_ms.load(Ordering::SeqCst))).collect();
        }
        for shard in &mut world.shards {
            shard.follow(revision)?;
        }
        Ok(OracleNamespace { world: self.0.clone(), config, revision, clock_ms })
    }

    /// A counter's events in all shards, by window, in the order of time and token.
    pub fn events(&self, counter: &CounterName) -> BTreeMap<u64, Vec<Event>> {
        let mut events: Vec<Event> = lock(&self.0).shards.iter().flat_map(|shard| shard.events_of(counter)).collect();
        events.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
        let mut windows: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
        for event in events {
            windows.entry(event.time_ms / WINDOW_MS).or_default().push(event);
        }
        windows
    }

    /// What a count is: the sum of the adds before a time that happened after the last clear before that time.
    pub fn count(&self, counter: &CounterName, before_ms: u64) -> i128 {
        self.count_since(counter, 0, before_ms)
    }

    /// The same of a counter whose events before another time have expired (N14).
    pub fn count_since(&self, counter: &CounterName, from_ms: u64, before_ms: u64) -> i128 {
        let all = self.events(counter).into_values().flatten();
        let events: Vec<Event> = all.filter(|event| (from_ms..before_ms).contains(&event.time_ms)).collect();
        let clears = events.iter().filter(|event| event.change == Change::Clear);
        let cleared_ms = clears.map(|event| event.time_ms).max();
        let delta = |event: &Event| match event.change {
            Change::Add(delta) if cleared_ms.is_none_or(|cleared_ms| event.time_ms > cleared_ms) => i128::from(delta),
            _ => 0,
        };
        events.iter().map(delta).sum()
    }

    /// The time of a counter's latest event in Unix ms; 0: it has none.
    pub fn last_write_ms(&self, counter: &CounterName) -> u64 {
        self.events(counter).into_values().flatten().map(|event| event.time_ms).max().unwrap_or_default()
    }
}

impl World {
    /// The crossings of the counters with this home, in their order.
    fn crossings_of(&self, home: u16) -> impl Iterator<Item = &CrossingEntry> {
        self.crossings.iter().filter(move |entry| Placement::of(&entry.counter).home() == home)
    }

    /// The id of the last of them.
    fn last_crossing(&self, home: u16) -> StreamId {
        self.crossings_of(home).last().map(|entry| entry.id).unwrap_or_default()
    }

    /// Removes the marks of the counters with this home that were deleted up to this time (Unix ms), and of which nothing is
    /// pending any more. A checkpoint with the time of a clear stays. `may_change`: otherwise nothing changes.
    fn forget_deleted(
        &mut self,
        home: u16,
        deleted_to_ms: u64,
        may_change: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let shards = &self.shards;
        let is_pending =
            |counter: &CounterName| shards.iter().any(|shard| !shard.pending_of(counter).windows.is_empty());
        let is_gone = |counter: &CounterName, deleted_ms: u64| {
            deleted_ms <= deleted_to_ms && Placement::of(counter).home() == home && !is_pending(counter)
        };
        let deleted = &self.deleted;
        if deleted.iter().any(|(counter, deleted_ms)| is_gone(counter, *deleted_ms)) {
            may_change?;
        }
        self.checkpoints.retain(|counter, checkpoint| {
            let is_gone = deleted.get(counter).is_some_and(|deleted_ms| is_gone(counter, *deleted_ms));
            !(checkpoint.is_deleted && is_gone && checkpoint.cleared_ms == 0)
        });
        self.deleted.retain(|counter, deleted_ms| !is_gone(counter, *deleted_ms));
        Ok(())
    }
}

impl OracleNamespace {
    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// A shard that follows this revision.
    fn shard<'a>(&self, world: &'a mut World, number: u16) -> Result<&'a mut Shard, Refusal> {
        let shard = world.shards.get_mut(usize::from(number)).ok_or(Refusal::Stale)?;
        shard.check_revision(self.revision)?;
        Ok(shard)
    }

    /// Appends what a new checkpoint has passed to the list of its counter's home shard.
    fn append_crossing(&self, world: &mut World, counter: &CounterName, before: &Checkpoint, after: &Checkpoint) {
        let thresholds = passed(&self.config.thresholds, counter, before, after);
        if thresholds.is_empty() {
            return;
        }
        let last = world.last_crossing(Placement::of(counter).home());
        let id = match self.now_ms() {
            now_ms if now_ms > last.ms => StreamId { ms: now_ms, number: 0 },
            _ => last.next(),
        };
        let (counter, Checkpoint { count, exact_to_ms, .. }) = (counter.clone(), *after);
        world.crossings.push(CrossingEntry { id, before: last, counter, count, exact_to_ms, thresholds });
    }

    /// The store's time in Unix ms.
    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::SeqCst)
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checkpoints for OracleNamespace {
    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Checkpoint>, Refusal> {
        let world = self.world();
        Ok(counters.iter().map(|counter| world.checkpoints.get(counter).copied().unwrap_or_default()).collect())
    }

    async fn commit(&self, updates: &[CheckpointUpdate]) -> Result<Vec<Commit>, Refusal> {
        let mut world = self.world();
        for update in updates {
            self.shard(&mut world, Placement::of(&update.counter).home())?;
        }
        let commit = |CheckpointUpdate { counter, before, after }: &CheckpointUpdate| {
            let stored = world.checkpoints.get(counter).copied();
            let is_late = stored.is_none() && after.exact_to_ms + FIRST_AGE_MS_MAX <= self.now_ms();
            let stored = stored.unwrap_or_default();
            let stands = stand_of(&stored) == stand_of(before);
            let home = &world.shards[usize::from(Placement::of(counter).home())];
            let expires = after.is_deleted && !stored.is_deleted;
            let may_not_expire = expires && !home.pending_of(counter).windows.is_empty();
            if !stands || is_late || after.lease < stored.lease || may_not_expire {
                return Commit::Lost;
            }
            if after.is_deleted {
                let deleted_ms = world.deleted.entry(counter.clone()).or_default();
                *deleted_ms = after.last_write_ms.max(*deleted_ms);
                world.recounts.remove(counter);
            }
            world.checkpoints.insert(counter.clone(), *after);
            self.append_crossing(&mut world, counter, before, after);
            Commit::Done
        };
        Ok(updates.iter().map(commit).collect())
    }
}

/// What a compare-and-set compares.
fn stand_of(checkpoint: &Checkpoint) -> (u64, bool, u32, u64) {
    (checkpoint.exact_to_ms, checkpoint.is_deleted, checkpoint.epoch.number, checkpoint.cleared_ms)
}

impl Recounts for OracleNamespace {
    async fn recounts(&self, counter: &CounterName) -> Result<Vec<Recounted>, Refusal> {
        Ok(self.world().recounts.get(counter).cloned().unwrap_or_default())
    }

    async fn replace(
        &self,
        counter: &CounterName,
        before: &Checkpoint,
        after: &Checkpoint,
        recounts: &[Recounted],
    ) -> Result<Commit, Refusal> {
        let mut world = self.world();
        self.shard(&mut world, Placement::of(counter).home())?;
        match world.checkpoints.get(counter) {
            Some(stored) if stand_of(stored) == stand_of(before) => {}
            _ => return Ok(Commit::Lost),
        }
        world.checkpoints.insert(counter.clone(), *after);
        self.append_crossing(&mut world, counter, before, after);
        world.recounts.insert(counter.clone(), recounts.to_vec());
        let since_ms = self.config.waits_since_ms(after.exact_to_ms);
        let shard = self.shard(&mut world, Placement::of(counter).home())?;
        let pending = shard.pending.entry(counter.clone()).or_default();
        pending.closed_to_ms = pending.closed_to_ms.max(after.exact_to_ms + 1);
        shard.dirty.insert(counter.clone(), DirtyMark::since(since_ms));
        Ok(Commit::Done)
    }

    async fn follow(&self, counter: &CounterName, before: &Checkpoint, after: &Checkpoint) -> Result<Commit, Refusal> {
        let recounts = self.recounts(counter).await?;
        self.replace(counter, before, after, &recounts).await
    }

    fn time_ms(&self) -> u64 {
        self.now_ms()
    }
}

impl Deletions for OracleNamespace {
    async fn delete(&self, counter: &CounterName, cleared_ms: u64) -> Result<(), Refusal> {
        self.shard(&mut self.world(), Placement::of(counter).home())?;
        if cleared_ms > self.now_ms() + FUTURE_LIMIT_MS + SKEW_MS {
            return Err(deletion_ahead());
        }
        let mut world = self.world();
        let window_ms = cleared_ms / WINDOW_MS * WINDOW_MS;
        let stored = world.checkpoints.get(counter).copied().unwrap_or_default();
        // Nothing was added since the clear, as far as a rollup has seen.
        let is_empty = stored.count == 0 && stored.last_write_ms == cleared_ms;
        if stored.exact_to_ms <= window_ms || is_empty {
            let exact_to_ms = stored.exact_to_ms.max(window_ms);
            let (last_write_ms, lease, epoch) = (cleared_ms, stored.lease, Epoch::default());
            let (count, is_deleted) = (0, true);
            let keeps_clear = stored.cleared_ms > 0 || !self.config.regions.is_empty();
            let cleared_ms = if keeps_clear { stored.cleared_ms.max(cleared_ms) } else { 0 };
            let mark = Checkpoint { count, exact_to_ms, last_write_ms, lease, is_deleted, epoch, cleared_ms };
            world.checkpoints.insert(counter.clone(), mark);
            world.recounts.remove(counter);
        }
        let deleted_ms = world.deleted.entry(counter.clone()).or_default();
        *deleted_ms = cleared_ms.max(*deleted_ms);
        Ok(())
    }

    async fn deleted_to(&self, counter: &CounterName) -> Result<Option<u64>, Refusal> {
        Ok(self.world().deleted.get(counter).copied())
    }
}
