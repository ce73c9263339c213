//! Retention: slices of events past `delete_after_ms` are dropped. Of a slice that has events which wait for their rollup,
//! the time buckets of these events are kept until the rollup. Where there is an archive, it moves events out of the log, and
//! retention drops its slices.

use super::RedisNamespace;
use super::calls::{of_archive, of_link};
use crate::log::WINDOW_MS;
use crate::refusal::Refusal;
use std::collections::BTreeSet;
use tallystone_link::ScanPosition;
use tallystone_lua::counter::{CounterScript, FIRST_AGE_MS_MAX, KEPT, OLDER_FIELD};

/// Slices that one call drops at most.
const SLICES_MAX: u64 = 100;
/// Keys that one command drops at most.
pub(super) const UNLINK_MAX: usize = 1_000;
/// About how many pending records one command reads.
const SCAN_COUNT: usize = 1_000;

impl RedisNamespace {
    /// Events before this time may have been dropped, in Unix ms: they are older than the retention, or were when that was shorter.
    pub fn kept_from_ms(&self) -> u64 {
        // Not what the shards have marked: that begins with the namespace, and in one with an archive it is what was moved there.
        self.kept_from_ms.max(self.now_ms().saturating_sub(self.config.delete_after_ms))
    }

    pub(super) async fn prune_shard(&self, shard: u16) -> Result<u64, Refusal> {
        let (now_ms, mut pruned_to) = self.pruned(shard, 0, 0, &[]).await?;
        let (slice_ms, bucket_ms) = (self.slice_ms(), self.config.seconds_per_bucket * 1_000);
        let Some(keep_from) = now_ms.checked_sub(self.config.delete_after_ms) else { return Ok(0) };
        let dropped_to = match self.config.archived {
            // Of the archive. What is not archived yet is in the log.
            true => match self.reached(shard).await? {
                (latest_ms, archived_to) if latest_ms < archived_to => keep_from.saturating_sub(slice_ms),
                (_, archived_to) => archived_to.min(keep_from.saturating_sub(slice_ms)),
            },
            false => pruned_to,
        };
        // Other shards may be pruned later, and a rollup may have hung for long (docs/decisions/0046).
        let forget_to = dropped_to.saturating_sub(FIRST_AGE_MS_MAX);
        self.forget_deleted(shard, self.forgettable_to(shard, forget_to).await?).await?;
        let next_end = |pruned_to: u64| (pruned_to / slice_ms + 1) * slice_ms;
        let kept = self.kept(shard).await?;
        if (self.config.archived || next_end(pruned_to) > keep_from) && kept.is_empty() {
            return Ok(0);
        }
        // No event this old can be appended any more, so the check need not be repeated for later slices.
        let waiting = self.waiting(shard, keep_from).await?.into_iter().map(|begin_ms| begin_ms / bucket_ms);
        let waiting: BTreeSet<u64> = waiting.collect();
        if let Some(first) = waiting.first() {
            let first_ms = first * bucket_ms;
            tracing::warn!(namespace = %self.name, shard, first_ms, buckets = waiting.len(), "events older than their retention are kept until a rollup has counted them");
        }
        let done: Vec<u64> = kept.difference(&waiting).copied().collect();
        self.unlink(shard, &done).await?;
        if !done.is_empty() {
            let _: u64 = self.query(shard, redis::cmd("SREM").arg(self.keys(shard).key(KEPT)).arg(done)).await?;
        }
        let mut dropped = 0;
        while !self.config.archived && dropped < SLICES_MAX && next_end(pruned_to) <= keep_from {
            let slice_end = next_end(pruned_to);
            // The slice before is dropped once more: the process that marked it may have died before it dropped it.
            let from_ms = if dropped == 0 { pruned_to.saturating_sub(slice_ms) } else { pruned_to };
            let (stay, go): (Vec<u64>, Vec<u64>) =
                (from_ms / bucket_ms..slice_end / bucket_ms).partition(|bucket| waiting.contains(bucket));
            let kept_from = waiting.first().map_or(slice_end, |first| slice_end.min(first * bucket_ms));
            // In this order: a token must not be looked up among records that are gone.
            self.pruned(shard, slice_end, kept_from, &stay).await?;
            self.unlink(shard, &go).await?;
            pruned_to = slice_end;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Up to when the marks of deleted counters may go of those before a time (Unix ms): not while the archive has an event that they
    /// hide. Its slices go some time after their retention has ended, and never if the store refuses to delete objects.
    async fn forgettable_to(&self, shard: u16, to_ms: u64) -> Result<u64, Refusal> {
        if !self.config.archived || !self.has_deleted(shard, to_ms).await? {
            return Ok(to_ms);
        }
        let first = match self.archive() {
            Ok(archive) => archive.first_slice_ms(&self.tag).await.map_err(of_archive),
            Err(refusal) => Err(refusal),
        };
        match first {
            Ok(first_ms) => Ok(first_ms.map_or(to_ms, |first_ms| to_ms.min(first_ms.saturating_sub(FIRST_AGE_MS_MAX)))),
            Err(error) => {
                tracing::debug!(namespace = %self.name, shard, %error, "the marks of deleted counters stay for now");
                Ok(0)
            }
        }
    }

    pub(super) async fn unlink(&self, shard: u16, buckets: &[u64]) -> Result<(), Refusal> {
        let (keys, bucket_s) = (self.keys(shard), self.config.seconds_per_bucket);
        for buckets in buckets.chunks(UNLINK_MAX) {
            let mut command = redis::cmd("UNLINK");
            command.arg(buckets.iter().map(|bucket| keys.events(bucket_s, *bucket)).collect::<Vec<String>>());
            self.link(shard).call(&command).await.map_err(of_link)?;
        }
        Ok(())
    }

    /// Marks records before this time as about to be dropped, except those of the buckets that stay. Returns the
    /// store's time and up to when records are marked.
    async fn pruned(&self, shard: u16, to_ms: u64, kept_from_ms: u64, stay: &[u64]) -> Result<(u64, u64), Refusal> {
        let keys = self.keys(shard);
        let all_keys: Vec<String> = keys.log().into_iter().chain([keys.key(KEPT)]).collect();
        let mut command = self.log_call(CounterScript::Prune, shard, &all_keys);
        command.arg(to_ms).arg(kept_from_ms).arg(stay);
        let mut reply = self.run(shard, &command).await?;
        Ok((reply.number()?, reply.number()?))
    }

    /// The buckets before the retention of a shard that were kept.
    pub(super) async fn kept(&self, shard: u16) -> Result<BTreeSet<u64>, Refusal> {
        self.query(shard, redis::cmd("SMEMBERS").arg(self.keys(shard).key(KEPT))).await
    }

    /// When the windows begin in which an event before this time waits for its rollup. Unix ms.
    pub(super) async fn waiting(&self, shard: u16, before_ms: u64) -> Result<BTreeSet<u64>, Refusal> {
        let key = self.keys(shard).key("pending");
        let (mut position, mut waiting) = (Some(ScanPosition::default()), BTreeSet::new());
        while let Some(from) = position {
            let (pairs, next) = self.scan::<Vec<(String, Vec<u8>)>>(shard, "HSCAN", &key, from, SCAN_COUNT).await?;
            let names = pairs.iter().map(|(name, _)| name.as_str()).filter(|name| !name.starts_with(OLDER_FIELD));
            let names: Vec<&str> = names.collect();
            // Not what the scan has found: an append may move windows to a field that the scan has passed.
            for pending in self.pending_in(shard, &names).await? {
                let begins = pending.windows.iter().map(|window| window.number * WINDOW_MS);
                waiting.extend(begins.filter(|begin_ms| *begin_ms < before_ms));
            }
            position = next;
        }
        Ok(waiting)
    }
}
