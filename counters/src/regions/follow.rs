//! A counter follows a clear of another region (N12).
//!
//! The clear is no event of this region's log, which is sealed to a later time. So when the count is exact to a time after the
//! clear, it becomes the sum of the adds between the two, by compare-and-set. Later adds are not in the count yet, and lose
//! nothing. A clear of this region in between counts as always.

use crate::audit::{Audit, Groups, go_on};
use crate::checkpoints::{Checkpoint, Checkpoints, Commit, Deletions, Epoch};
use crate::log::Events;
use crate::names::CounterName;
use crate::recount::Recounts;
use crate::refusal::Refusal;

/// How often it is tried while rollups commit before it.
const TRIES: usize = 20;

/// The outcome of an attempt to follow a clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The count follows this clear or a later one.
    Done,
    /// The count is not exact to a time after the clear yet: the counter must be rolled up first.
    NotYet,
}

/// The count of a counter becomes the sum of the adds after a clear of another region at this time (Unix ms). May be repeated.
/// `kept_from_ms`: events before this time may have been dropped, in Unix ms.
///
/// # Errors
/// [`Refusal::EventsDropped`]: the counter has adds after the clear, which is so old that some may be missing, and not older than the
/// namespace. [`Refusal::CounterChanged`]: rollups have committed before each try.
pub async fn follow_clear(
    store: &(impl Events + Checkpoints + Deletions + Recounts),
    counter: &CounterName,
    cleared_ms: u64,
    kept_from_ms: impl Fn() -> u64,
) -> Result<Followed, Refusal> {
    let mut read: Option<Audit> = None;
    for _ in 0..TRIES {
        let undeleted_from_ms = store.undeleted_from(counter).await?;
        let before = store.read(std::slice::from_ref(counter)).await?.into_iter().next().unwrap_or_default();
        if before.cleared_ms >= cleared_ms {
            return Ok(Followed::Done);
        }
        if before.exact_to_ms <= cleared_ms {
            return Ok(Followed::NotYet);
        }
        let after = if before.is_deleted {
            // Nothing was added since the deletion, as far as a rollup has seen.
            Checkpoint { cleared_ms, ..before }
        } else if before.last_write_ms <= cleared_ms {
            // Without an event after the clear none need be read, and none was dropped.
            with_sum(store, counter, &before, 0, cleared_ms).await?
        } else if cleared_ms < store.first_ms() {
            // The clear is older than the namespace: it removes nothing, so it does not matter what was dropped.
            Checkpoint { cleared_ms, ..before }
        } else {
            let present = Audit::since(before, undeleted_from_ms, cleared_ms);
            let audit = read_on(store, counter, continued(read, present), cleared_ms, &kept_from_ms).await?;
            read = Some(audit);
            with_sum(store, counter, &before, audit.sum, audit.cleared_ms).await?
        };
        if store.follow(counter, &before, &after).await? == Commit::Done {
            return Ok(Followed::Done);
        }
    }
    Err(Refusal::CounterChanged { why: "a rollup committed before each try to follow a clear" })
}

/// The audit that an earlier try has read, for the present count: what was read once stays read. Otherwise a try that takes longer
/// than the next rollup would never be the last one.
fn continued(read: Option<Audit>, present: Audit) -> Audit {
    let of_the_same = |read: &Audit| {
        read.undeleted_from_ms == present.undeleted_from_ms
            && read.epoch.number == present.epoch.number
            && read.exact_to_ms <= present.exact_to_ms
    };
    let Audit { count, exact_to_ms, epoch, .. } = present;
    read.filter(of_the_same).map_or(present, |read| Audit { count, exact_to_ms, epoch, ..read })
}

/// Reads what an audit has not read yet.
async fn read_on(
    store: &(impl Events + Deletions),
    counter: &CounterName,
    mut audit: Audit,
    cleared_ms: u64,
    kept_from_ms: &impl Fn() -> u64,
) -> Result<Audit, Refusal> {
    loop {
        // Before each page, and after the last one: events may be dropped meanwhile.
        let kept_from_ms = kept_from_ms();
        if cleared_ms < kept_from_ms {
            return Err(Refusal::EventsDropped { kept_from_ms });
        }
        if audit.is_finished() {
            return Ok(audit);
        }
        audit = go_on(store, counter, audit, &mut Groups::default()).await?;
    }
}

/// The checkpoint with only what is after a clear: this sum of adds, and the adjustments.
async fn with_sum(
    store: &impl Recounts,
    counter: &CounterName,
    before: &Checkpoint,
    sum: i128,
    cleared_ms: u64,
) -> Result<Checkpoint, Refusal> {
    // An adjustment belongs to the time to which the adjusted count was exact, as for a clear of this region.
    let recounts = store.recounts(counter).await?;
    let stays = recounts.iter().filter(|recounted| recounted.exact_to_ms > cleared_ms);
    let adjusted: i128 = stays.map(|recounted| i128::from(recounted.adjustment)).sum();
    let narrow = |sum: i128| i64::try_from(sum).map_err(|_| Refusal::Overflow);
    let (count, adjusted) = (narrow(sum + adjusted)?, narrow(adjusted)?);
    let epoch = Epoch { adjusted, ..before.epoch };
    Ok(Checkpoint { count, epoch, cleared_ms, ..*before })
}
