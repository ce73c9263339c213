//! How many reads of the archive this process has under way, and how long a caller waits for one (N15). Each may have some hundred
//! thousand events in memory, and decodes them on a separate thread.
//!
//! A read that has begun is a task: it keeps its place until the archive has answered, also if its caller has gone. Otherwise a
//! folder that hangs would block one more thread of the process for each caller that gives up.

use crate::metrics::archive_reads;
use crate::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tallystone_archive::ArchiveError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Late retries that wait for the archive, in all namespaces together: some megabytes.
const LATE_MAX: usize = 10_000;
/// How long a late retry waits.
const LATE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a list, a sum or an audit waits for one read.
const SCAN_PATIENCE: Duration = Duration::from_secs(60);
/// When a late retry for which there is no room may come next.
const RETRY_AFTER_MS: u64 = 1_000;

/// The reads of the archive by one process. Late retries have separate places.
pub(crate) struct ArchiveReads {
    late: Lane,
    late_room: Semaphore,
    scans: Lane,
}

impl ArchiveReads {
    /// So many of each kind at once.
    pub(crate) fn new(at_once: u32) -> ArchiveReads {
        ArchiveReads {
            late: Lane::new("late", at_once, LATE_PATIENCE),
            late_room: Semaphore::new(LATE_MAX),
            scans: Lane::new("events", at_once, SCAN_PATIENCE),
        }
    }

    /// Finds the answers to so many late retries.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]: too many wait already. The inner one: of the archive, or it has not answered in time.
    pub(crate) async fn find<T: Send + 'static>(
        &self,
        count: usize,
        find: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<Result<T, ArchiveError>, Refusal> {
        let overloaded = |_| Refusal::Overloaded { retry_after_ms: RETRY_AFTER_MS };
        let _room = self.late_room.try_acquire_many(count as u32).map_err(overloaded)?;
        Ok(self.late.read(find).await)
    }

    /// Reads events of a counter.
    ///
    /// # Errors
    /// Of the archive, or it has not answered in time.
    pub(crate) async fn scan<T: Send + 'static>(
        &self,
        scan: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        self.scans.read(scan).await
    }
}

/// Reads of one kind.
struct Lane {
    kind: &'static str,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl Lane {
    fn new(kind: &'static str, at_once: u32, patience: Duration) -> Lane {
        Lane { kind, places: Arc::new(Semaphore::new(at_once as usize)), patience }
    }

    /// Waits for a place, and reads.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let unavailable = |why: String| ArchiveError::Unavailable { why };
        let in_place = async {
            let place = self.places.clone().acquire_owned().await.map_err(|error| unavailable(error.to_string()))?;
            let kind = self.kind;
            let task = tokio::spawn(async move {
                archive_reads(kind, 1.0);
                let answer = read.await;
                archive_reads(kind, -1.0);
                drop(place);
                answer
            });
            task.await.map_err(|error| unavailable(error.to_string()))?
        };
        let patience = self.patience;
        timeout(patience, in_place).await.unwrap_or_else(|_| Err(unavailable(format!("no answer within {patience:?}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn n15_late_retries_are_given_up_and_an_archive_that_hangs_blocks_few_reads() {
        let (reads, begun) = (ArchiveReads::new(3), Arc::new(AtomicU32::new(0)));
        let hang = || {
            let begun = begun.clone();
            reads.find(1, async move {
                begun.fetch_add(1, Ordering::SeqCst);
                pending::<Result<(), ArchiveError>>().await
            })
        };
        for answer in join_all((0..20).map(|_| hang())).await {
            assert!(matches!(answer, Ok(Err(ArchiveError::Unavailable { .. }))), "{answer:?}");
        }
        assert_eq!(begun.load(Ordering::SeqCst), 3, "a caller that gives up frees no place");
    }

    /// Sixty-four lists, sums and audits at once have no more events in memory than four.
    #[tokio::test(start_paused = true)]
    async fn n15_few_reads_of_events_are_under_way_at_once() {
        let (reads, under_way) = (ArchiveReads::new(4), Arc::new(AtomicU32::new(0)));
        let scan = |number: u32| {
            let under_way = under_way.clone();
            reads.scan(async move {
                let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
                under_way.fetch_sub(1, Ordering::SeqCst);
                Ok((number, now))
            })
        };
        for (number, answer) in (0..).zip(join_all((0..64).map(scan)).await) {
            let (answered, now) = answer.unwrap();
            assert!(answered == number && now <= 4, "{now} at once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn n15_late_retries_wait_within_a_bound() {
        let reads = ArchiveReads::new(1);
        let hang = || reads.find(LATE_MAX / 2, pending::<Result<(), ArchiveError>>());
        let (one, two, three) = tokio::join!(hang(), hang(), hang());
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(three.err(), Some(Refusal::Overloaded { retry_after_ms: RETRY_AFTER_MS }));
    }

    #[tokio::test]
    async fn n15_a_read_that_is_answered_frees_its_place() {
        let reads = ArchiveReads::new(1);
        for number in 0..10 {
            assert_eq!(reads.find(1, async move { Ok(number) }).await.unwrap().unwrap(), number);
        }
        let broken = async { Err::<(), _>(ArchiveError::Unavailable { why: "away".to_owned() }) };
        assert!(reads.find(1, broken).await.unwrap().is_err());
        assert!(reads.find(1, async { Ok(()) }).await.unwrap().is_ok());
    }
}
