//! Retention: slices of events go when they are past `delete_after`, and only those that are rolled up.

use super::{RedisNamespace, of_link, record};
use crate::log::GRANULE_MS;
use crate::refusal::Refusal;

/// Slices that one call drops.
const SLICES_MAX: u64 = 100;
/// Pending records looked at with one command.
const SCAN_COUNT: usize = 1_000;

impl RedisNamespace {
    pub(super) async fn prune_shard(&self, shard: u16) -> Result<u64, Refusal> {
        let keys = self.keys(shard);
        let pruned_to: Option<u64> = self.query(redis::cmd("GET").arg(keys.pruned())).await?;
        let Some(mut pruned_to) = pruned_to else { return Ok(0) };
        let (slice_ms, bucket_s) = (self.config.seconds_per_slice * 1_000, self.config.seconds_per_bucket);
        let bucket_ms = bucket_s * 1_000;
        let Some(keep_from) = self.now.now_ms().checked_sub(self.config.delete_after_ms) else { return Ok(0) };
        let mut dropped = 0;
        while dropped < SLICES_MAX {
            let slice_end = (pruned_to / slice_ms + 1) * slice_ms;
            if slice_end > keep_from {
                break;
            }
            // Nothing can come before that any more, so what is seen here only becomes less.
            if dropped == 0
                && let Some(first_ms) = self.first_pending_ms(shard).await?
                && first_ms < keep_from
            {
                tracing::warn!(namespace = %self.name, shard, first_ms, "events past their retention wait for a rollup");
                break;
            }
            let mut command = redis::cmd("UNLINK");
            for bucket in pruned_to / bucket_ms..slice_end / bucket_ms {
                command.arg(keys.events(bucket_s, bucket));
            }
            self.link.call(&command).await.map_err(of_link)?;
            self.link.call(redis::cmd("SET").arg(keys.pruned()).arg(slice_end)).await.map_err(of_link)?;
            pruned_to = slice_end;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// When the first granule begins of which something is pending in a shard.
    async fn first_pending_ms(&self, shard: u16) -> Result<Option<u64>, Refusal> {
        let key = self.keys(shard).key("pending");
        let (mut cursor, mut first) = (0_u64, None);
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(&key).arg(cursor).arg("COUNT").arg(SCAN_COUNT);
            let (next, pairs): (u64, Vec<(String, Vec<u8>)>) = self.query(&command).await?;
            for (_, raw) in pairs {
                let granules = record::pending(&raw)?.granules;
                let earliest = granules.iter().map(|granule| granule.number * GRANULE_MS).min();
                first = [first, earliest].into_iter().flatten().min();
            }
            if next == 0 {
                return Ok(first);
            }
            cursor = next;
        }
    }
}
