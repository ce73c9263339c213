//! Retention: slices of events past `delete_after_ms` are dropped, once all of them are rolled up.

use super::calls::of_link;
use super::{RedisNamespace, record};
use crate::log::WINDOW_MS;
use crate::refusal::Refusal;
use tallystone_lua::counter::{CounterScript, OLDER_FIELD};

/// Slices that one call drops at most.
const SLICES_MAX: u64 = 100;
/// Hashes that one command drops at most.
const UNLINK_MAX: usize = 1_000;
/// About how many pending records one command reads.
const SCAN_COUNT: usize = 1_000;

impl RedisNamespace {
    pub(super) async fn prune_shard(&self, shard: u16) -> Result<u64, Refusal> {
        let keys = self.keys(shard);
        let (now_ms, mut pruned_to) = self.pruned(shard, 0).await?;
        let (slice_ms, bucket_s) = (self.config.seconds_per_slice * 1_000, self.config.seconds_per_bucket);
        let bucket_ms = bucket_s * 1_000;
        let Some(keep_from) = now_ms.checked_sub(self.config.delete_after_ms) else { return Ok(0) };
        let mut dropped = 0;
        while dropped < SLICES_MAX {
            let slice_end = (pruned_to / slice_ms + 1) * slice_ms;
            if slice_end > keep_from {
                break;
            }
            // No event this old can be appended any more, so the check need not be repeated for later slices.
            if dropped == 0
                && let Some(first_ms) = self.first_pending_ms(shard).await?
                && first_ms < keep_from
            {
                tracing::warn!(namespace = %self.name, shard, first_ms, "events older than their retention are kept until a rollup has counted them");
                break;
            }
            // The slice before is dropped once more: the process that marked it may have died before it dropped it.
            let from_ms = if dropped == 0 { pruned_to.saturating_sub(slice_ms) } else { pruned_to };
            // In this order: a token must not be looked up among records that are gone.
            self.pruned(shard, slice_end).await?;
            let buckets: Vec<u64> = (from_ms / bucket_ms..slice_end / bucket_ms).collect();
            for buckets in buckets.chunks(UNLINK_MAX) {
                let mut command = redis::cmd("UNLINK");
                command.arg(buckets.iter().map(|bucket| keys.events(bucket_s, *bucket)).collect::<Vec<String>>());
                self.link(shard).call(&command).await.map_err(of_link)?;
            }
            pruned_to = slice_end;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Marks records before this time as about to be dropped. Returns the shard's clock and up to when records are marked.
    async fn pruned(&self, shard: u16, to_ms: u64) -> Result<(u64, u64), Refusal> {
        let mut command = self.log_call(CounterScript::Prune, &self.keys(shard).log());
        command.arg(to_ms);
        let mut reply = self.run(shard, &command).await?;
        Ok((reply.number()?, reply.number()?))
    }

    /// When the earliest window begins that is pending in a shard (Unix ms).
    async fn first_pending_ms(&self, shard: u16) -> Result<Option<u64>, Refusal> {
        let key = self.keys(shard).key("pending");
        let (mut cursor, mut first) = (0_u64, None);
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(&key).arg(cursor).arg("COUNT").arg(SCAN_COUNT);
            let (next, pairs): (u64, Vec<(String, Vec<u8>)>) = self.query(shard, &command).await?;
            for (name, raw) in pairs {
                let windows = match name.starts_with(OLDER_FIELD) {
                    true => record::windows(&raw)?,
                    false => record::pending(&raw)?.windows,
                };
                let earliest = windows.iter().map(|window| window.number * WINDOW_MS).min();
                first = [first, earliest].into_iter().flatten().min();
            }
            if next == 0 {
                return Ok(first);
            }
            cursor = next;
        }
    }
}
