//! The rollup of one counter (N7, N8): the sum of what can no longer change, put behind the last one.
//!
//! Its steps, in an order that nothing may change: read the checkpoint, seal the log, sum, commit in place of that very
//! checkpoint, settle. After a crash between any two of them the next rollup comes to the identical sum, since what it
//! sums is what the first one summed, or is settled already by the time that the checkpoint says.

use crate::checkpoints::{Checkpoint, Checkpoints, Commit, LeaseOrder};
use crate::log::{Closed, EventLog, GRANULE_MS, Pending};
use crate::names::CounterName;
use crate::refusal::Refusal;

/// Beyond this nothing more is added in that direction: what may be pending then still fits (N2).
pub const COUNT_SOFT_MAX: i64 = 1 << 62;

/// What a rollup came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolledUp {
    /// This checkpoint stands.
    Committed(Checkpoint),
    /// There was nothing to sum.
    Nothing,
    /// Another rollup was faster, or holds the lease by now.
    Lost,
}

/// Rolls one counter up, under this lease.
pub async fn roll_up(
    log: &impl EventLog,
    checkpoints: &impl Checkpoints,
    counter: &CounterName,
    lease: LeaseOrder,
) -> Result<RolledUp, Refusal> {
    let before = checkpoints.read(counter).await?;
    let sealed = log.seal(counter).await?;
    let to_ms = sealed.sealed_to_ms;
    if to_ms <= before.exact_to_ms {
        return Ok(RolledUp::Nothing);
    }
    let window = Window { from_ms: before.exact_to_ms, to_ms };
    let count = counted(log, counter, before.count, &sealed.pending, window).await?;
    let closed = match count.unsigned_abs() < COUNT_SOFT_MAX.unsigned_abs() {
        true => Closed::No,
        false if count > 0 => Closed::Up,
        false => Closed::Down,
    };
    // Before the count stands: what comes meanwhile must still fit on top of it.
    if closed != Closed::No {
        log.close(counter, to_ms, closed).await?;
    }
    let seen_ms = sealed.pending.iter().map(|(_, pending)| pending.last_write_ms).max();
    let last_write_ms = before.last_write_ms.max(seen_ms.unwrap_or_default());
    let after = Checkpoint { count, exact_to_ms: to_ms, last_write_ms, lease };
    if checkpoints.commit(counter, before, after).await? == Commit::Lost {
        return Ok(RolledUp::Lost);
    }
    log.settle(counter, to_ms, closed).await?;
    Ok(RolledUp::Committed(after))
}

/// A span of time; its bounds are bounds of granules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
}

impl Window {
    fn has(&self, begin_ms: u64) -> bool {
        self.from_ms <= begin_ms && begin_ms + GRANULE_MS <= self.to_ms
    }
}

/// The count, after all that is pending within the window: the last clear, and every add after it.
pub(crate) async fn counted(
    log: &impl EventLog,
    counter: &CounterName,
    before: i64,
    pending: &[(u16, Pending)],
    window: Window,
) -> Result<i64, Refusal> {
    let of_shard = |(shard, pending): &'_ (u16, Pending)| {
        let shard = *shard;
        pending.granules.clone().into_iter().map(move |granule| (shard, granule))
    };
    let granules: Vec<_> =
        pending.iter().flat_map(of_shard).filter(|(_, granule)| window.has(granule.begin_ms())).collect();
    let cleared_ms = granules.iter().filter_map(|(_, granule)| granule.cleared_ms).max();
    // Sums of single shards fit 64 bits; that of all of them need not on the way.
    let mut count = if cleared_ms.is_some() { 0 } else { i128::from(before) };
    for (shard, granule) in granules {
        count += match (granule.adds_ms, cleared_ms) {
            (None, _) => 0,
            (Some((_, last_ms)), Some(cleared_ms)) if last_ms <= cleared_ms => 0,
            (Some((first_ms, _)), Some(cleared_ms)) if first_ms <= cleared_ms => {
                i128::from(log.sum_after(counter, shard, granule.number, cleared_ms).await?)
            }
            _ => i128::from(granule.sum),
        };
    }
    i64::try_from(count).map_err(|_| Refusal::Internal(format!("'{counter}' has come to {count}")))
}
