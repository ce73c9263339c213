//! Accurate reads (N11).

use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::log::RollupLog;
use crate::names::CounterName;
use crate::refusal::Refusal;
use crate::rollup::{RollupSpan, counted};

/// The counts with every event that was acknowledged before the call, each with the checkpoint that it starts from.
pub async fn accurate(
    log: &impl RollupLog,
    checkpoints: &impl Checkpoints,
    counters: &[CounterName],
) -> Result<Vec<(i64, Checkpoint)>, Refusal> {
    let mut before = checkpoints.read(counters).await?;
    loop {
        let pending = log.pending(counters).await?;
        let after = checkpoints.read(counters).await?;
        // A rollup settles only what its checkpoint holds. If no checkpoint was committed meanwhile, all events since it
        // are pending.
        if after.iter().zip(&before).all(|(after, before)| after.exact_to_ms == before.exact_to_ms) {
            let mut counts = Vec::with_capacity(counters.len());
            for ((counter, before), pending) in counters.iter().zip(before).zip(pending) {
                let span = RollupSpan { from_ms: before.exact_to_ms, to_ms: u64::MAX };
                counts.push((counted(log, counter, before.count, &pending, span).await?, before));
            }
            return Ok(counts);
        }
        before = after;
    }
}
