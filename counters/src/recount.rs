//! The recount of a counter (N12): an operator replaces its count. The new count begins an epoch, and the old one is kept.
//!
//! The count is that of the events, or the present one, and in either case an adjustment is added. It takes effect by one
//! compare-and-set on the checkpoint: a reader sees the old count or the new one, and a rollup that began before loses its own
//! compare-and-set, so it adds nothing to the old count (docs/decisions/0101).

use crate::audit::{Audit, Groups, counted, go_on};
use crate::checkpoints::{Checkpoint, Checkpoints, Commit, Deletions, Epoch};
use crate::log::{Events, RollupLog};
use crate::names::{CounterName, Token};
use crate::refusal::Refusal;
use crate::rollup::{COUNT_SOFT_MAX, RollupSpan, last_clear};
use serde::{Deserialize, Serialize};

/// How often a recount is tried while rollups commit before it.
const TRIES: usize = 20;
/// Pages that one try reads at most, of the events that were counted since the audit: about a second or two.
const PAGES_MAX: usize = 20;
/// The number of recounts of a counter that are kept: the latest ones.
pub const RECOUNTS_MAX: usize = 32;
/// The longest reason.
pub const REASON_BYTES_MAX: usize = 256;

/// What to replace a count with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recount {
    /// Identifies the recount for a retry.
    pub token: Token,
    /// A finished audit: the count becomes the sum of the events. `None`: the present count is kept.
    pub audit: Option<Audit>,
    /// What is added to that.
    pub adjustment: i64,
    /// Why, for those who read it later.
    pub reason: String,
}

/// A recount that took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recounted {
    /// The epoch that it has begun; the first is 1.
    pub epoch: u32,
    /// When it took effect, in Unix ms.
    pub recounted_ms: u64,
    /// Both counts hold the events before this time, in Unix ms.
    pub exact_to_ms: u64,
    /// The count before.
    pub old_count: i64,
    /// The count since then.
    pub new_count: i64,
    /// What was added to the sum of the events, or to the old count.
    pub adjustment: i64,
    /// The new count is the sum of the events.
    pub from_events: bool,
    /// Why.
    pub reason: String,
    /// The token of the call.
    pub token: String,
}

impl Recounted {
    fn is_of(&self, recount: &Recount) -> bool {
        let given = (recount.adjustment, recount.audit.is_some(), recount.reason.as_str());
        (self.adjustment, self.from_events, self.reason.as_str()) == given
    }
}

/// The recounts of the counters of a namespace.
pub trait Recounts: Send + Sync {
    /// The recounts of a counter since its last deletion, the latest [`RECOUNTS_MAX`], in their order.
    fn recounts(&self, counter: &CounterName) -> impl Future<Output = Result<Vec<Recounted>, Refusal>> + Send;

    /// Replaces a checkpoint and the recounts of its counter, atomically, if its `exact_to_ms`, `is_deleted`,
    /// `epoch.number` and `cleared_ms` are still those of `before`.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: the home shard follows another revision, and nothing changes.
    fn replace(
        &self,
        counter: &CounterName,
        before: &Checkpoint,
        after: &Checkpoint,
        recounts: &[Recounted],
    ) -> impl Future<Output = Result<Commit, Refusal>> + Send;

    /// Replaces a checkpoint as [`replace`](Recounts::replace) does, because the counter follows a clear of another region; its
    /// recounts stay.
    fn follow(
        &self,
        counter: &CounterName,
        before: &Checkpoint,
        after: &Checkpoint,
    ) -> impl Future<Output = Result<Commit, Refusal>> + Send;

    /// The store's time, in Unix ms.
    fn time_ms(&self) -> u64;
}

/// Replaces the count of a counter. A repeated call with the same token returns what the first one has done. `kept_from_ms`: events
/// before this time (Unix ms) may have been dropped; 0: this does not matter to the caller.
///
/// # Errors
/// [`Refusal::CounterNotFound`]: it has no count. [`Refusal::CounterChanged`]: at the audit it had no count, or since then it was
/// recounted or deleted, or so many events were counted that a new audit is needed; or a clear waits for its rollup. [`Refusal::EventsDropped`].
/// [`Refusal::TokenConflict`]: another recount had this token. [`Refusal::Overflow`]: the count or the sum of the adjustments
/// would exceed its range.
pub async fn recount(
    store: &(impl Events + RollupLog + Checkpoints + Deletions + Recounts),
    counter: &CounterName,
    recount: &Recount,
    kept_from_ms: u64,
) -> Result<Recounted, Refusal> {
    let mut audit = recount.audit;
    for _ in 0..TRIES {
        // In this order: of a recount between the two reads, the first one has the epoch before, and the compare-and-set fails.
        let found = counted(store, counter).await?;
        let before = found.ok_or_else(|| Refusal::CounterNotFound { counter: counter.to_string() })?;
        let mut recounts = store.recounts(counter).await?;
        if let Some(earlier) = recounts.iter().find(|earlier| earlier.token == recount.token.as_str()) {
            return if earlier.is_of(recount) { Ok(earlier.clone()) } else { Err(Refusal::TokenConflict) };
        }
        // Between it and the first count there may be any time.
        if recount.audit.is_some_and(|audit| audit.exact_to_ms == 0) {
            return Err(Refusal::CounterChanged { why: "the counter had no count yet when it was audited" });
        }
        if recount.audit.is_some_and(|audit| audit.may_lack_events(kept_from_ms)) {
            return Err(Refusal::EventsDropped { kept_from_ms });
        }
        // The adjustment would be part of a count that is exact to a time before the clear, and go with it.
        let since = RollupSpan { from_ms: before.exact_to_ms, to_ms: u64::MAX };
        let pending = store.pending(std::slice::from_ref(counter)).await?;
        if pending.iter().any(|shards| last_clear(shards, since).is_some()) {
            return Err(Refusal::CounterChanged { why: "a clear of the counter waits for its rollup" });
        }
        let base = match audit {
            Some(earlier) => audit.insert(brought_to(store, counter, earlier, &before).await?).recounted(),
            None => i128::from(before.count),
        };
        let in_range = |count: &i64| count.unsigned_abs() < COUNT_SOFT_MAX.unsigned_abs();
        let count =
            i64::try_from(base + i128::from(recount.adjustment)).ok().filter(in_range).ok_or(Refusal::Overflow)?;
        let adjusted = before.epoch.adjusted.checked_add(recount.adjustment).ok_or(Refusal::Overflow)?;
        let number = before.epoch.number.checked_add(1).ok_or(Refusal::Overflow)?;
        recounts.push(Recounted {
            epoch: number,
            recounted_ms: store.time_ms(),
            exact_to_ms: before.exact_to_ms,
            old_count: before.count,
            new_count: count,
            adjustment: recount.adjustment,
            from_events: recount.audit.is_some(),
            reason: recount.reason.clone(),
            token: recount.token.as_str().to_owned(),
        });
        let kept = &recounts[recounts.len().saturating_sub(RECOUNTS_MAX)..];
        let after = Checkpoint { count, epoch: Epoch { number, adjusted }, ..before };
        if store.replace(counter, &before, &after, kept).await? == Commit::Done {
            return recounts.pop().ok_or_else(|| Refusal::Internal("no recount".to_owned()));
        }
    }
    Err(Refusal::CounterChanged { why: "a rollup committed before each try" })
}

/// An audit of the present count: it continues from where an earlier one has ended.
async fn brought_to(
    store: &(impl Events + Deletions),
    counter: &CounterName,
    audit: Audit,
    present: &Checkpoint,
) -> Result<Audit, Refusal> {
    if !audit.is_finished() || audit.exact_to_ms > present.exact_to_ms || audit.epoch.number != present.epoch.number {
        return Err(Refusal::CounterChanged {
            why: "the counter was recounted since the audit, or its clock was reset",
        });
    }
    let Checkpoint { count, exact_to_ms, epoch, .. } = *present;
    let mut audit = Audit { count, exact_to_ms, epoch, ..audit };
    for _ in 0..PAGES_MAX {
        audit = go_on(store, counter, audit, &mut Groups::default()).await?;
        if audit.is_finished() && audit.cleared_ms < present.cleared_ms {
            return Err(Refusal::CounterChanged { why: "the counter was cleared in another region since the audit" });
        }
        if audit.is_finished() {
            return Ok(audit);
        }
    }
    Err(Refusal::CounterChanged { why: "too many events were counted since the audit" })
}
