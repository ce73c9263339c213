//! The rollup of counters (N7, N8): it sums the events of each counter that can no longer change, and commits the sum as
//! the counter's new checkpoint.
//!
//! Its steps have a fixed order: read the checkpoint, seal the log, sum, commit by compare-and-set on that checkpoint,
//! settle. After a crash between any two steps the next rollup arrives at the same count: it sums the same windows, or
//! the checkpoint says that they are counted.

use crate::checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit, Epoch, LeaseOrder};
use crate::log::{Closed, Pending, RollupLog, Sealed, Settlement, WINDOW_MS, Window};
use crate::names::CounterName;
use crate::refusal::Refusal;
use std::collections::HashMap;

/// A count beyond this is closed in its direction: the deltas that may be pending still fit 64 bits (N2).
pub const COUNT_SOFT_MAX: i64 = 1 << 62;

/// The outcome of a rollup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolledUp {
    /// It has committed this checkpoint.
    Committed {
        /// The time to which the checkpoint before was exact (Unix ms).
        from_ms: u64,
        /// The new checkpoint.
        checkpoint: Checkpoint,
    },
    /// No window was sealed since the last rollup. What its checkpoint holds is settled.
    Nothing {
        /// That checkpoint. The rollup that committed it may have failed since, so that only this one can publish it.
        checkpoint: Checkpoint,
    },
    /// Another rollup has committed first, or a later lease has written.
    Lost,
}

/// A counter to roll up, and the lease of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The counter.
    pub counter: CounterName,
    /// The lease.
    pub lease: LeaseOrder,
}

/// Rolls counters up, each once; a result for each, in their order. A counter that cannot be summed does not affect the
/// others. A store that does not reply fails all of them, and the caller tries the jobs again.
pub async fn roll_up(
    log: &impl RollupLog,
    checkpoints: &impl Checkpoints,
    jobs: &[Job],
) -> Vec<Result<RolledUp, Refusal>> {
    match roll_up_all(log, checkpoints, jobs).await {
        Ok(rolled_up) => rolled_up,
        Err(refusal) => jobs.iter().map(|_| Err(refusal.clone())).collect(),
    }
}

async fn roll_up_all(
    log: &impl RollupLog,
    checkpoints: &impl Checkpoints,
    jobs: &[Job],
) -> Result<Vec<Result<RolledUp, Refusal>>, Refusal> {
    let counters: Vec<CounterName> = jobs.iter().map(|job| job.counter.clone()).collect();
    let before = checkpoints.read(&counters).await?;
    let sealed = log.seal(&counters).await?;
    // Until their commits are done.
    let mut results: Vec<Result<RolledUp, Refusal>> = jobs.iter().map(|_| Ok(RolledUp::Lost)).collect();
    let (mut numbers, mut updates, mut settled, mut done) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, ((job, before), sealed)) in jobs.iter().zip(before).zip(sealed).enumerate() {
        let to_ms = sealed.sealed_to_ms;
        if to_ms <= before.exact_to_ms {
            // The mark of a deleted counter is ahead of the seals. The windows before it must not stay dirty until they
            // are behind: each time that `due` returns them, it holds them longer, and later adds with them.
            let reached = Checkpoint { exact_to_ms: to_ms, ..before };
            done.push(settlement(&job.counter, &reached, &sealed.pending));
            results[number] = Ok(RolledUp::Nothing { checkpoint: before });
            continue;
        }
        let span = RollupSpan { from_ms: before.exact_to_ms, to_ms };
        let is_expired = is_expired(&before, &sealed);
        let count = match counted(log, &job.counter, before.count, &sealed.pending, span).await {
            Ok(_) if is_expired => 0,
            Ok(count) => count,
            Err(refusal @ Refusal::Internal(_)) => {
                results[number] = Err(refusal);
                continue;
            }
            Err(refusal) => return Err(refusal),
        };
        let is_deleted = is_expired || before.is_deleted && !has_adds(&sealed.pending, span);
        let seen_ms = sealed.pending.iter().map(|(_, pending)| pending.last_write_ms).max();
        let last_write_ms = match is_deleted {
            true => before.last_write_ms,
            false => before.last_write_ms.max(seen_ms.unwrap_or_default()),
        };
        let epoch = match last_clear(&sealed.pending, span) {
            _ if is_deleted => Epoch::default(),
            // It removes adjustments as it removes adds.
            Some(_) => Epoch { adjusted: 0, ..before.epoch },
            None => before.epoch,
        };
        let cleared_ms = match last_clear(&sealed.pending, span) {
            // Other regions may still have the time of that clear: this one must not lose it while it has no regions.
            _ if !sealed.has_regions && before.cleared_ms == 0 => 0,
            cleared_ms => cleared_ms.unwrap_or_default().max(before.cleared_ms),
        };
        let lease = job.lease;
        let after = Checkpoint { count, exact_to_ms: to_ms, last_write_ms, lease, is_deleted, epoch, cleared_ms };
        let settle = settlement(&job.counter, &after, &sealed.pending);
        // Before the count commits: the adds that come meanwhile must still fit.
        if settle.closed != Closed::No {
            log.close(&settle).await?;
        }
        numbers.push(number);
        updates.push(CheckpointUpdate { counter: job.counter.clone(), before, after });
        settled.push(settle);
    }
    let commits = checkpoints.commit(&updates).await?;
    for (((number, update), settle), commit) in numbers.into_iter().zip(&updates).zip(settled).zip(commits) {
        results[number] = Ok(match commit {
            Commit::Lost => RolledUp::Lost,
            Commit::Done => {
                done.push(settle);
                RolledUp::Committed { from_ms: update.before.exact_to_ms, checkpoint: update.after }
            }
        });
    }
    log.settle(&done).await?;
    Ok(results)
}

/// Whether a counter has had no event for so long that it is deleted (N14): none is pending, all before the seal are in the
/// checkpoint, and any that follows is at the seal or later. So it is in no count of before, and counts from 0.
fn is_expired(before: &Checkpoint, sealed: &Sealed) -> bool {
    let is_idle = sealed.pending.iter().all(|(_, pending)| pending.windows.is_empty());
    let is_counter = before.exact_to_ms > 0 && !before.is_deleted;
    let expires_ms = before.last_write_ms.saturating_add(sealed.expire_after_ms);
    sealed.expire_after_ms > 0 && is_counter && is_idle && expires_ms <= sealed.sealed_to_ms
}

/// What a checkpoint implies for the log.
pub(crate) fn settlement(
    counter: &CounterName,
    &Checkpoint { count, exact_to_ms: to_ms, last_write_ms, is_deleted, .. }: &Checkpoint,
    pending: &[(u16, Pending)],
) -> Settlement {
    let closed = match count.unsigned_abs() < COUNT_SOFT_MAX.unsigned_abs() {
        true => Closed::No,
        false if count > 0 => Closed::Up,
        false => Closed::Down,
    };
    let idle = pending.iter().filter(|(_, pending)| *pending == Pending::default());
    let idle_shards = idle.map(|(shard, _)| *shard).collect();
    Settlement { counter: counter.clone(), to_ms, closed, last_write_ms, is_deleted, idle_shards }
}

/// The span of time that a rollup or a read covers (Unix ms); its bounds are bounds of windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollupSpan {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
}

impl RollupSpan {
    fn has(&self, begin_ms: u64) -> bool {
        self.from_ms <= begin_ms && begin_ms + WINDOW_MS <= self.to_ms
    }
}

/// The count after all that is pending within the span: from the last clear, or from `before`, every add after it.
async fn counted(
    log: &impl RollupLog,
    counter: &CounterName,
    before: i64,
    pending: &[(u16, Pending)],
    span: RollupSpan,
) -> Result<i64, Refusal> {
    let sums = divided(log, counter, pending, span).await?;
    total(counter, before, pending, span, &sums)
}

fn windows(pending: &[(u16, Pending)], span: RollupSpan) -> impl Iterator<Item = (u16, &Window)> {
    let all = pending.iter().flat_map(|(shard, pending)| pending.windows.iter().map(move |window| (*shard, window)));
    all.filter(move |(_, window)| span.has(window.begin_ms()))
}

/// The time of the last clear that is pending within the span (Unix ms).
pub(crate) fn last_clear(pending: &[(u16, Pending)], span: RollupSpan) -> Option<u64> {
    windows(pending, span).filter_map(|(_, window)| window.cleared_ms).max()
}

/// Whether the span's last clear leaves an add of the span.
fn has_adds(pending: &[(u16, Pending)], span: RollupSpan) -> bool {
    let cleared_ms = last_clear(pending, span);
    windows(pending, span).any(|(_, window)| !matches!(left(window, cleared_ms), Left::Nothing))
}

/// Whether an add of the span happened at this time (Unix ms) or before, and no clear of the span removes it.
pub(crate) fn has_adds_to(pending: &[(u16, Pending)], span: RollupSpan, to_ms: u64) -> bool {
    let is_cleared = last_clear(pending, span).is_some_and(|cleared_ms| cleared_ms >= to_ms);
    let begins = |window: &Window| window.adds_ms.is_some_and(|(first_ms, _)| first_ms <= to_ms);
    !is_cleared && windows(pending, span).any(|(_, window)| begins(window))
}

/// What a clear leaves of a window.
enum Left {
    All,
    /// Some of its adds happened before the clear, and some after it.
    Part,
    Nothing,
}

fn left(window: &Window, cleared_ms: Option<u64>) -> Left {
    match (window.adds_ms, cleared_ms) {
        (None, _) => Left::Nothing,
        (Some((_, last_ms)), Some(cleared_ms)) if last_ms <= cleared_ms => Left::Nothing,
        (Some((first_ms, _)), Some(cleared_ms)) if first_ms <= cleared_ms => Left::Part,
        _ => Left::All,
    }
}

/// The sums of the adds after the span's last clear in the windows that this clear divides: it is in one window, so there
/// is one in a shard at most.
pub(crate) async fn divided(
    log: &impl RollupLog,
    counter: &CounterName,
    pending: &[(u16, Pending)],
    span: RollupSpan,
) -> Result<HashMap<u16, i64>, Refusal> {
    let mut sums = HashMap::new();
    let Some(cleared_ms) = last_clear(pending, span) else { return Ok(sums) };
    for (shard, window) in windows(pending, span) {
        if let Left::Part = left(window, Some(cleared_ms)) {
            sums.insert(shard, log.sum_after(counter, shard, window.number, cleared_ms).await?);
        }
    }
    Ok(sums)
}

/// As [`counted`], with the sums of the windows that the last clear divides.
pub(crate) fn total(
    counter: &CounterName,
    before: i64,
    pending: &[(u16, Pending)],
    span: RollupSpan,
    divided: &HashMap<u16, i64>,
) -> Result<i64, Refusal> {
    let cleared_ms = last_clear(pending, span);
    // The sum of each shard fits 64 bits; the sum of several may leave them on the way.
    let mut count = if cleared_ms.is_some() { 0 } else { i128::from(before) };
    for (shard, window) in windows(pending, span) {
        count += i128::from(match left(window, cleared_ms) {
            Left::Nothing => 0,
            Left::Part => divided.get(&shard).copied().unwrap_or_default(),
            Left::All => window.sum,
        });
    }
    i64::try_from(count).map_err(|_| Refusal::Internal(format!("the count of '{counter}' would be {count}")))
}
