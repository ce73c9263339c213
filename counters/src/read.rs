//! Accurate reads (N11).

use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::log::{Pending, RollupLog};
use crate::names::CounterName;
use crate::refusal::Refusal;
use crate::rollup::{RollupSpan, divided, has_adds_to, last_clear, total};
use tallystone_model::Applied;

/// How often a counter is read while it is cleared again and again.
const TRIES: usize = 20;
const ALL: RollupSpan = RollupSpan { from_ms: 0, to_ms: u64::MAX };

/// The counts with every event that was acknowledged before the call, each with the checkpoint that it starts from. Its `cleared_ms`
/// is the time of the last clear that the count follows, though no rollup has seen this clear yet.
///
/// What is pending is read first and the checkpoint last, so no rollup makes a second read necessary: each event is still
/// pending at the first read, or the checkpoint holds it; and what was pending and is before the checkpoint's time is in
/// the checkpoint. The shards are read one after the other, so one may be read before a clear and the next after it. If
/// the second read of what is pending has no other clear than the first, the first one came before any such clear. A deletion
/// may also fall between the second read and the checkpoint: then its clear was not read yet.
///
/// # Errors
/// [`Refusal::Unavailable`]: also if a counter is cleared during each of many reads.
pub async fn accurate(
    log: &impl RollupLog,
    checkpoints: &impl Checkpoints,
    counters: &[CounterName],
) -> Result<Vec<(i64, Checkpoint)>, Refusal> {
    let mut counts: Vec<Option<(i64, Checkpoint)>> = vec![None; counters.len()];
    let mut left: Vec<usize> = (0..counters.len()).collect();
    let mut first = log.pending(counters).await?;
    for _ in 0..TRIES {
        let names: Vec<CounterName> = left.iter().map(|index| counters[*index].clone()).collect();
        let mut sums = Vec::with_capacity(names.len());
        for (counter, pending) in names.iter().zip(&first) {
            sums.push(divided(log, counter, pending, ALL).await?);
        }
        let second = log.pending(&names).await?;
        let bases = checkpoints.read(&names).await?;
        let mut again: Vec<(usize, Vec<(u16, Pending)>)> = Vec::new();
        for (((index, (first, second)), sums), base) in
            left.into_iter().zip(first.into_iter().zip(second)).zip(sums).zip(bases)
        {
            let since = RollupSpan { from_ms: base.exact_to_ms, to_ms: u64::MAX };
            let is_deleted_since = base.is_deleted && has_adds_to(&first, since, base.last_write_ms);
            let clear_ms = last_clear(&first, since);
            if clear_ms == last_clear(&second, since) && !is_deleted_since {
                let cleared_ms = clear_ms.unwrap_or_default().max(base.cleared_ms);
                let count = total(&counters[index], base.count, &first, since, &sums)?;
                counts[index] = Some((count, Checkpoint { cleared_ms, ..base }));
            } else {
                again.push((index, second));
            }
        }
        if again.is_empty() {
            return Ok(counts.into_iter().flatten().collect());
        }
        (left, first) = again.into_iter().unzip();
    }
    let why = format!("'{}' is cleared too often to be read", counters[left[0]]);
    Err(Refusal::Unavailable { applied: Applied::No, why })
}
