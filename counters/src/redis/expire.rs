//! The search for counters that may have expired (N14): it walks over the checkpoints of a home shard, so nothing is kept for
//! each counter, and a changed `expire_after_ms` applies to all of them (docs/decisions/0054).

use super::{ListedCounter, RedisNamespace};
use crate::log::WINDOW_MS;
use crate::names::CounterName;
use crate::refusal::Refusal;
use tallystone_link::ScanPosition;

/// About how many checkpoints one command reads.
const SCAN_COUNT: usize = 1_000;

impl RedisNamespace {
    /// A page of the counters of a home shard that have had no event for `expire_after_ms`, as far as a rollup has seen, and
    /// where the next page begins; `None`: this was the last one. A rollup decides whether they have expired.
    pub async fn expiring(
        &self,
        shard: u16,
        position: ScanPosition,
    ) -> Result<(Vec<CounterName>, Option<ScanPosition>), Refusal> {
        if self.config.expire_after_ms == 0 {
            return Ok((Vec::new(), None));
        }
        let (mut counters, next) = self.scan_checkpoints(shard, position, SCAN_COUNT).await?;
        // A rollup seals so far behind the clock.
        let behind_ms = self.config.expire_after_ms + self.config.lag_ms() + WINDOW_MS;
        let now_ms = self.now_ms();
        counters.retain(|ListedCounter { checkpoint, .. }| {
            !checkpoint.is_deleted && checkpoint.last_write_ms + behind_ms <= now_ms
        });
        Ok((counters.into_iter().map(|listed| listed.counter).collect(), next))
    }
}
