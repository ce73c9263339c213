//! The search for counters that may have expired (N14): it walks over the checkpoints of a home shard, so nothing is kept for
//! each counter, and a changed `expire_after_ms` applies to all of them (docs/decisions/0054).

use super::{RedisNamespace, record};
use crate::log::WINDOW_MS;
use crate::names::CounterName;
use crate::refusal::Refusal;

/// About how many checkpoints one command reads.
const SCAN_COUNT: usize = 1_000;

impl RedisNamespace {
    /// A page of the counters of a home shard that have had no event for `expire_after_ms`, as far as a rollup has seen, and
    /// the cursor of the next page; 0: this was the last one, and of the first page. A rollup decides whether they have expired.
    pub async fn expiring(&self, shard: u16, cursor: u64) -> Result<(u64, Vec<CounterName>), Refusal> {
        if self.config.expire_after_ms == 0 {
            return Ok((0, Vec::new()));
        }
        let mut command = redis::cmd("HSCAN");
        command.arg(self.keys(shard).counts()).arg(cursor).arg("COUNT").arg(SCAN_COUNT);
        let (next, pairs): (u64, Vec<(String, Vec<u8>)>) = self.query(shard, &command).await?;
        // A rollup seals so far behind the clock.
        let behind_ms = self.config.expire_after_ms + self.config.lag_ms() + WINDOW_MS;
        let (now_ms, mut found) = (self.now_ms(), Vec::new());
        for (name, raw) in pairs {
            let checkpoint = record::decode_checkpoint(&raw)?;
            if !checkpoint.is_deleted && checkpoint.last_write_ms + behind_ms <= now_ms {
                found.push(CounterName::parse(name)?);
            }
        }
        Ok((next, found))
    }
}
