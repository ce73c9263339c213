//! The number of entries in undeclared indexes, those that filters have created, in all queues of a partition (S1).
//!
//! A sorted set has the shards with such indexes, and the number of entries of each. A server first writes the number that its shard will
//! have, and then sums up: if two servers add at the same time, the later one sees both. Every minute each server corrects the set: a
//! queue was purged, deleted or has grown, an index was dropped, or a server has died before it added one.

use super::entry::read;
use super::shared::Shared;
use super::stored::Stored;
use super::view::View;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tallystone_lua::record::{self, ShardState};
use tallystone_model::{IndexKeys, Refusal, Shard};

/// How long a server decides by the set that it last read, if the result is clear: refusals and small indexes need no further read.
const DECIDES_FOR: Duration = Duration::from_secs(1);
/// A number is corrected if it differs by more than one in this many.
const CORRECTED_PART: u64 = 8;
/// Shards that one command reads.
const READ_AT_ONCE: usize = 100;

/// The entries that a shard has with `more` additional undeclared indexes.
fn entries(stored: &Stored, state: &ShardState, more: usize) -> u64 {
    let messages: u64 = state.counts.iter().sum();
    messages.saturating_mul((stored.undeclared_count() + more) as u64)
}

impl Shared {
    /// Records the entries that a shard will have once it has all of these indexes. [`Shared::correct_entries_of`] takes that back.
    ///
    /// # Errors
    /// [`Refusal::TooManyIndexes`]: the queues together would have too many entries.
    pub(super) async fn reserve_entries(
        &self,
        shard: &Shard,
        view: &View,
        state: &ShardState,
        wanted: &BTreeSet<IndexKeys>,
    ) -> Result<(), Refusal> {
        let has = |keys: &&IndexKeys| view.stored.indexes.iter().any(|index| index.keys == **keys);
        let more = wanted.len() - wanted.iter().filter(has).count();
        let [before, after] = [0, more].map(|more| entries(&view.stored, state, more));
        if after == before {
            return Ok(());
        }
        let max = self.options.undeclared_entries_max.div_ceil(u64::from(self.partition.partitions));
        let refusal = || Refusal::TooManyIndexes { queue: shard.queue.to_string() };
        let has_ample_room = {
            let seen = self.undeclared.entries();
            let is_recent = seen.read_at.is_some_and(|at| at.elapsed() < DECIDES_FOR);
            if is_recent && !seen.admit(shard, after, max) {
                return Err(refusal());
            }
            is_recent && seen.admit(shard, after, max / 2)
        };
        self.write_entries(shard, after).await?;
        if has_ample_room {
            return Ok(());
        }
        self.read_entries().await?;
        if !self.undeclared.entries().admit(shard, after, max) {
            self.write_entries(shard, before).await?;
            return Err(refusal());
        }
        Ok(())
    }

    /// Records the entries that a shard has, after it did not get the indexes of a reservation. Another caller may have added some meanwhile.
    pub(super) async fn correct_entries_of(&self, shard: &Shard) -> Result<(), Refusal> {
        let (view, state) = self.read(shard).await?;
        self.write_entries(shard, entries(&view.stored, &state, 0)).await
    }

    /// Writes how many entries the indexes of a shard have.
    pub(super) async fn write_entries(&self, shard: &Shard, entries: u64) -> Result<(), Refusal> {
        let (key, tag) = (self.keyspace.undeclared_indexes(), shard.tag());
        match entries {
            0 => self.link.call(redis::cmd("ZREM").arg(key).arg(&tag)).await?,
            _ => self.link.call(redis::cmd("ZADD").arg(key).arg(entries).arg(&tag)).await?,
        };
        let mut seen = self.undeclared.entries();
        match entries {
            0 => seen.by_tag.remove(&tag),
            _ => seen.by_tag.insert(tag, entries),
        };
        Ok(())
    }

    async fn read_entries(&self) -> Result<(), Refusal> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keyspace.undeclared_indexes()).arg(0).arg(-1).arg("WITHSCORES");
        let by_tag: Vec<(String, f64)> = read(self.link.call(&command).await?)?;
        let mut seen = self.undeclared.entries();
        seen.read_at = Some(Instant::now());
        seen.by_tag = by_tag.into_iter().map(|(tag, entries)| (tag, entries as u64)).collect();
        Ok(())
    }

    /// Writes the entries of a shard whose indexes are not known here: it was empty when it got them, or an earlier version created them.
    pub(super) async fn note_entries(&self, shard: &Shard, stored: &Stored) -> Result<(), Refusal> {
        if stored.undeclared_count() == 0 || self.undeclared.entries().by_tag.contains_key(&shard.tag()) {
            return Ok(());
        }
        let (view, state) = self.read(shard).await?;
        match entries(&view.stored, &state, 0) {
            0 => {
                // Read again after the next correction.
                self.undeclared.entries().by_tag.insert(shard.tag(), 0);
                Ok(())
            }
            entries => self.write_entries(shard, entries).await,
        }
    }

    /// Corrects the entries of all shards. Returns how many had others.
    pub(super) async fn correct_entries(&self) -> Result<usize, Refusal> {
        self.read_entries().await?;
        let recorded: Vec<(Shard, u64)> = {
            let seen = self.undeclared.entries();
            seen.by_tag.iter().filter_map(|(tag, entries)| Some((Shard::of_tag(tag)?, *entries))).collect()
        };
        let mut corrected = 0;
        for some in recorded.chunks(READ_AT_ONCE) {
            for ((shard, recorded), now) in some.iter().zip(self.entries_of(some).await?) {
                // Queues that are used change all the time: a small difference is not worth a write of each server.
                if let Some(now) = now
                    && (now == 0 || now.abs_diff(*recorded) > recorded / CORRECTED_PART)
                {
                    self.write_entries(shard, now).await?;
                    corrected += 1;
                }
            }
        }
        Ok(corrected)
    }

    /// The entries of these shards; `None`: a later version has written one. Their configurations are not kept: this server may use none of
    /// them.
    async fn entries_of(&self, shards: &[(Shard, u64)]) -> Result<Vec<Option<u64>>, Refusal> {
        let mut command = redis::cmd("MGET");
        for (shard, _) in shards {
            let keys = self.keyspace.shard(shard);
            command.arg(keys.key("config")).arg(keys.key("state"));
        }
        let found: Vec<Option<Vec<u8>>> = read(self.link.call(&command).await?)?;
        let entries_of = |found: &[Option<Vec<u8>>]| match found {
            [Some(stored), Some(state)] => {
                Some(entries(&Stored::read(stored).ok()?, &record::decode_state(state).ok()?, 0))
            }
            _ => Some(0),
        };
        Ok(found.chunks(2).map(entries_of).collect())
    }
}
