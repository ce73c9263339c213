//! Reading a count (N11).

use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::log::EventLog;
use crate::names::CounterName;
use crate::refusal::Refusal;
use crate::rollup::{Window, counted};

/// The count with everything that was acknowledged before the call, and the checkpoint that it was reckoned from.
pub async fn accurate(
    log: &impl EventLog,
    checkpoints: &impl Checkpoints,
    counter: &CounterName,
) -> Result<(i64, Checkpoint), Refusal> {
    let mut before = checkpoints.read(counter).await?;
    loop {
        let pending = log.pending(counter).await?;
        let after = checkpoints.read(counter).await?;
        // Only what a checkpoint has is settled: where none came between, all that came since is pending.
        if after.exact_to_ms == before.exact_to_ms {
            let window = Window { from_ms: before.exact_to_ms, to_ms: u64::MAX };
            return Ok((counted(log, counter, before.count, &pending, window).await?, before));
        }
        before = after;
    }
}
