//! The audit of a counter (N12): its events are counted again, page by page, and compared with the count of its last rollup.

use crate::checkpoints::{Checkpoint, Checkpoints, Deletions, Epoch};
use crate::log::{Change, Event, Events, WINDOW_MS, read_page};
use crate::names::CounterName;
use crate::refusal::Refusal;

/// How far an audit has got, and what it has found. It is finished when it has read every event of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Identifies the namespace among those of the same name; the service sets it.
    pub namespace: u64,
    /// The first time that is not read yet, in Unix ms.
    pub next_ms: u64,
    /// The count that the events are compared with.
    pub count: i64,
    /// The time to which that count is exact, in Unix ms.
    pub exact_to_ms: u64,
    /// The epoch of that count.
    pub epoch: Epoch,
    /// No earlier event belongs to the counter, because it was deleted; in Unix ms.
    pub undeleted_from_ms: u64,
    /// The events that were read: adds and clears.
    pub events: u64,
    /// The sum of the adds after the last clear.
    pub sum: i128,
    /// When the last clear happened, in Unix ms; 0: there is none.
    pub cleared_ms: u64,
}

impl Audit {
    /// Of the events since the last clear, as far as the checkpoint has it: a clear of another region is not among the events.
    fn of(checkpoint: Checkpoint, undeleted_from_ms: u64) -> Audit {
        let Checkpoint { count, exact_to_ms, epoch, cleared_ms, .. } = checkpoint;
        let next_ms = undeleted_from_ms.max(if cleared_ms > 0 { cleared_ms + 1 } else { 0 });
        Audit { namespace: 0, next_ms, count, exact_to_ms, epoch, undeleted_from_ms, events: 0, sum: 0, cleared_ms }
    }

    /// Of the events after a clear of another region.
    pub(crate) fn since(checkpoint: Checkpoint, undeleted_from_ms: u64, cleared_ms: u64) -> Audit {
        Audit::of(Checkpoint { cleared_ms, ..checkpoint }, undeleted_from_ms)
    }

    /// Whether it has read every event of the count.
    pub fn is_finished(&self) -> bool {
        self.next_ms >= self.exact_to_ms
    }

    /// What the count must be: the sum of the events, and the adjustments of earlier recounts.
    pub fn recounted(&self) -> i128 {
        self.sum + i128::from(self.epoch.adjusted)
    }

    /// Whether no event of the count can have been dropped, in a namespace that keeps those from a time on (Unix ms).
    pub fn is_complete(&self, kept_from_ms: u64) -> bool {
        self.undeleted_from_ms.max(self.cleared_ms) >= kept_from_ms
    }

    /// Whether a recount could leave adds out because events were dropped, before the audit or since.
    pub(crate) fn may_lack_events(&self, kept_from_ms: u64) -> bool {
        let differs = self.recounted() != i128::from(self.count);
        self.exact_to_ms < kept_from_ms || differs && !self.is_complete(kept_from_ms)
    }

    /// Events come in the order of their times. A clear removes every add up to its time, also those of the same time that
    /// come after it.
    fn take(&mut self, event: &Event) {
        self.events += 1;
        match event.change {
            Change::Clear => (self.sum, self.cleared_ms) = (0, event.time_ms),
            Change::Add(delta) if event.time_ms > self.cleared_ms => self.sum += i128::from(delta),
            Change::Add(_) => {}
        }
    }
}

/// Begins an audit of a counter, and reads its first page. A counter without a count has no events to read.
pub async fn begin(log: &(impl Events + Checkpoints + Deletions), counter: &CounterName) -> Result<Audit, Refusal> {
    // In this order: a deletion between the two reads is then in the second one.
    let undeleted_from_ms = log.undeleted_from(counter).await?;
    let checkpoint = counted(log, counter).await?.unwrap_or_default();
    go_on(log, counter, Audit::of(checkpoint, undeleted_from_ms)).await
}

/// Reads a page of the events that an audit has not read yet.
///
/// # Errors
/// [`Refusal::CounterChanged`]: the counter was deleted since the audit began.
pub async fn go_on(log: &(impl Events + Deletions), counter: &CounterName, mut audit: Audit) -> Result<Audit, Refusal> {
    if !audit.is_finished() {
        let unread = audit.next_ms..audit.exact_to_ms;
        let windows = unread.start / WINDOW_MS..unread.end.div_ceil(WINDOW_MS);
        let take = |events: &[Event]| {
            events.iter().filter(|event| unread.contains(&event.time_ms)).for_each(|event| audit.take(event));
            true
        };
        let next_window = read_page(log, counter, windows, take).await?;
        audit.next_ms = (next_window * WINDOW_MS).min(audit.exact_to_ms);
    }
    // Read after the events: a deletion takes them away.
    if log.undeleted_from(counter).await? != audit.undeleted_from_ms {
        return Err(Refusal::CounterChanged { why: "the counter was deleted since the audit began" });
    }
    Ok(audit)
}

/// The checkpoint of a counter; `None`: it has no count, because no rollup has counted anything, or because it was deleted.
pub(crate) async fn counted(
    checkpoints: &impl Checkpoints,
    counter: &CounterName,
) -> Result<Option<Checkpoint>, Refusal> {
    let found = checkpoints.read(std::slice::from_ref(counter)).await?.into_iter().next();
    Ok(found.filter(|checkpoint| checkpoint.exact_to_ms > 0 && !checkpoint.is_deleted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Token;

    #[test]
    fn n12_a_clear_removes_every_add_up_to_its_time() {
        let token = Token::parse("t").unwrap();
        let recounted = |events: &[(u64, Change)]| {
            let mut audit = Audit::of(Checkpoint::default(), 0);
            let event =
                |(time_ms, change): &(u64, Change)| Event { time_ms: *time_ms, token: token.clone(), change: *change };
            events.iter().map(event).for_each(|event| audit.take(&event));
            (audit.events, audit.sum, audit.is_complete(2))
        };
        let add = |time_ms, delta| (time_ms, Change::Add(delta));
        assert_eq!(recounted(&[add(1, 5), add(2, -7)]), (2, -2, false));
        assert_eq!(recounted(&[add(1, 5), (2, Change::Clear), add(2, 9), add(3, 4)]), (4, 4, true));
        assert_eq!(recounted(&[add(1, i64::MAX), add(2, i64::MAX)]), (2, 2 * i128::from(i64::MAX), false));
    }

    #[test]
    fn n12_adjustments_are_no_difference() {
        let audit = Audit { sum: 5, epoch: Epoch { number: 2, adjusted: -3 }, ..Audit::of(Checkpoint::default(), 0) };
        assert_eq!(audit.recounted(), 2);
    }
}
