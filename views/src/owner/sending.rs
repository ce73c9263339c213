//! What the owner of a partition and its sender know of each other: which records of deltas wait, and which of them the next
//! commit may replace.

use crate::log::{Deltas, WaitingDeltas};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_link::{StreamId, wall_ms};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// The most adds of a record into which others are merged. An add takes about 40 bytes in the log and 150 in memory.
const MERGED_MAX: usize = 100_000;

/// What the two share.
#[derive(Default)]
pub(super) struct Sending {
    /// Notified when deltas were committed.
    pub(super) committed: Notify,
    /// Notified when the sender has taken a record.
    taken: Notify,
    /// Locked while a commit may replace records, and while the sender takes one: it never sends a record that was replaced.
    unsent: tokio::sync::Mutex<Unsent>,
    /// The oldest deltas that wait for the counters; `None`: none do.
    oldest: Mutex<Option<OldestDeltas>>,
}

/// The records that this owner has committed and its sender has not taken, in the order of their ids. An earlier owner may
/// have sent its own records, so those are never among them.
#[derive(Default)]
pub(super) struct Unsent(Vec<UnsentRecord>);

struct UnsentRecord {
    at: StreamId,
    /// When the oldest of its deltas were committed, in Unix ms by the clock of the log.
    since_ms: u64,
    deltas: Deltas,
}

/// A commit's deltas together with those of the records that they replace.
pub(super) struct Merged {
    pub(super) deltas: Deltas,
    pub(super) replaced: Vec<StreamId>,
    /// When the oldest of theirs were committed (Unix ms).
    pub(super) since_ms: Option<u64>,
}

/// The deltas that are sent next.
#[derive(Clone, Copy)]
struct OldestDeltas {
    /// Their time (Unix ms), by the clock of the log.
    at_ms: u64,
    /// Since when this owner sends them.
    since: Instant,
}

impl Unsent {
    /// Merges the latest records into the deltas of a commit. A record that is more than twice as large as what is merged into
    /// it stays: so each add is written again only a few times, and all records together have few adds more than there are
    /// counters.
    pub(super) fn merge(&mut self, deltas: Deltas) -> Merged {
        let mut merged = Merged { deltas, replaced: Vec::new(), since_ms: None };
        while let Some(last) = self.0.pop_if(|last| last.fits(&merged.deltas)) {
            for (counter, delta) in last.deltas {
                *merged.deltas.entry(counter).or_default() += delta;
            }
            merged.replaced.push(last.at);
            merged.since_ms = Some(last.since_ms);
        }
        merged
    }

    /// The deltas of a commit are in this record. `None`: its answer was lost, and no later commit replaces it.
    pub(super) fn committed(&mut self, at: Option<StreamId>, since_ms: Option<u64>, deltas: Deltas) {
        if let Some(at) = at {
            self.0.push(UnsentRecord { at, since_ms: since_ms.unwrap_or(at.ms), deltas });
        }
    }

    /// The sender takes this record, the first that waits. Returns since when its deltas have waited (Unix ms).
    fn take(&mut self, at: StreamId) -> u64 {
        match self.0.first() {
            Some(first) if first.at == at => self.0.remove(0).since_ms,
            _ => at.ms,
        }
    }
}

impl UnsentRecord {
    /// Whether a record of these deltas, which are not empty, and of the deltas of this record may replace this record.
    fn fits(&self, deltas: &Deltas) -> bool {
        let adds = self.deltas.len();
        let fits = |(counter, delta): (&(String, String), &u32)| {
            deltas.get(counter).is_none_or(|more| delta.checked_add(*more).is_some())
        };
        adds <= 2 * deltas.len() && adds + deltas.len() <= MERGED_MAX && self.deltas.iter().all(fits)
    }
}

impl Sending {
    /// What a commit may replace, until the guard is dropped.
    pub(super) async fn unsent(&self) -> tokio::sync::MutexGuard<'_, Unsent> {
        self.unsent.lock().await
    }

    /// Takes the next record, which `read` reads: from now on no commit replaces it.
    pub(super) async fn take<E>(
        &self,
        read: impl Future<Output = Result<Option<WaitingDeltas>, E>>,
    ) -> Result<Option<WaitingDeltas>, E> {
        let mut unsent = self.unsent().await;
        let next = read.await?;
        self.begin(next.as_ref().map(|waiting| unsent.take(waiting.at)));
        if next.is_some() {
            self.taken.notify_one();
        }
        Ok(next)
    }

    /// Waits until the sender has taken a record, if one waits, but not for longer than `longest`.
    pub(super) async fn is_free(&self, longest: Duration) {
        let waits = !self.unsent().await.0.is_empty();
        if waits {
            let _ = timeout(longest, self.taken.notified()).await;
        }
    }

    /// Sets the deltas that are sent now; `None`: no deltas wait.
    fn begin(&self, at_ms: Option<u64>) {
        *self.lock() = at_ms.map(|at_ms| OldestDeltas { at_ms, since: Instant::now() });
    }

    /// How long the oldest deltas have waited, by this machine's clock. Deltas with a time in the future have waited since
    /// they were first sent: the counters refuse them until that time.
    pub(super) fn oldest(&self) -> Option<Duration> {
        let OldestDeltas { at_ms, since } = (*self.lock())?;
        Some(Duration::from_millis(wall_ms().saturating_sub(at_ms)).max(since.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<OldestDeltas>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[tokio::test(start_paused = true)]
    async fn v3_deltas_whose_time_is_yet_to_come_are_seen_to_wait() {
        let sending = Sending::default();
        assert_eq!(sending.oldest(), None);
        sending.begin(Some(wall_ms() + HOUR_MS));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert!(sending.oldest() >= Some(Duration::from_secs(90)), "{:?}", sending.oldest());
        sending.begin(Some(wall_ms() - HOUR_MS));
        assert!(sending.oldest() >= Some(Duration::from_millis(HOUR_MS)), "they waited before this owner came");
        sending.begin(None);
        assert_eq!(sending.oldest(), None);
    }

    fn deltas(counters: impl IntoIterator<Item = usize>, delta: u32) -> Deltas {
        counters.into_iter().map(|counter| (("views".to_owned(), counter.to_string()), delta)).collect()
    }

    fn id(ms: u64) -> StreamId {
        StreamId { ms, number: 0 }
    }

    /// Commits, and returns the adds and the ids of the records that were replaced.
    fn commit(unsent: &mut Unsent, ms: u64, deltas: Deltas) -> (Deltas, Vec<u64>) {
        let Merged { deltas, replaced, since_ms } = unsent.merge(deltas);
        unsent.committed(Some(id(ms)), since_ms, deltas.clone());
        (deltas, replaced.iter().map(|at| at.ms).collect())
    }

    #[test]
    fn v4_records_that_wait_are_merged_and_each_delta_is_in_one() {
        let mut unsent = Unsent::default();
        assert_eq!(commit(&mut unsent, 1, deltas(0..100, 1)), (deltas(0..100, 1), vec![]));
        // Far smaller: the large record is not written again for it.
        assert_eq!(commit(&mut unsent, 2, deltas(0..1, 1)).1, [0; 0]);
        assert_eq!(commit(&mut unsent, 3, deltas(0..1, 1)), (deltas(0..1, 2), vec![2]));
        assert_eq!(commit(&mut unsent, 4, deltas(0..60, 2)).1, [3, 1]);
        assert_eq!(unsent.0.len(), 1);
        assert_eq!(unsent.take(id(4)), 1, "the oldest of its deltas");
        // What the sender has taken, or an earlier owner has written, is never replaced.
        assert_eq!(commit(&mut unsent, 5, deltas(0..60, 2)).1, [0; 0]);
        assert_eq!((unsent.take(id(3)), unsent.0.len()), (3, 1));
        // Nor a record whose id is not known.
        let merged = unsent.merge(deltas(0..60, 2));
        assert_eq!(merged.replaced, [id(5)]);
        unsent.committed(None, merged.since_ms, merged.deltas);
        assert_eq!(commit(&mut unsent, 7, deltas(0..60, 2)).1, [0; 0]);
        // No sum is greater than a record can have.
        assert_eq!(commit(&mut unsent, 8, deltas(59..99, u32::MAX - 1)).1, [0; 0]);
    }

    #[test]
    fn v4_the_adds_that_wait_are_bounded_by_the_counters_and_are_seldom_written_again() {
        const COUNTERS: usize = 5_000;
        let (mut unsent, mut written, mut sum, mut random) = (Unsent::default(), 0, 0, 1_usize);
        let commits = 20_000;
        for ms in 0..commits {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (first, adds) = (random % COUNTERS, 1 + (random >> 32) % 300);
            let new = deltas((first..first + adds).map(|counter| counter % COUNTERS), 1);
            sum += new.len() as u64;
            written += commit(&mut unsent, ms, new).0.len() as u64;
            let waiting: usize = unsent.0.iter().map(|record| record.deltas.len()).sum();
            assert!(waiting <= 2 * COUNTERS && unsent.0.len() <= 16, "{waiting} adds in {} records", unsent.0.len());
        }
        let waiting: u64 =
            unsent.0.iter().flat_map(|record| record.deltas.values()).map(|delta| u64::from(*delta)).sum();
        assert_eq!(waiting, sum);
        assert!(written <= 12 * sum, "{written} adds were written for {sum}");
    }
}
