//! How many reads of the archive this process has under way, and how long a caller waits for one (N15). Each may have some hundred
//! thousand events in memory, and decodes them on a separate thread.
//!
//! A read that has begun is a task: it keeps its place until the archive has answered, also if its caller has gone. Otherwise a
//! folder that hangs would block one more thread of the process for each caller that gives up.

use crate::metrics::archive_reads;
use std::sync::Arc;
use std::time::Duration;
use tallystone_archive::ArchiveError;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// How long late retries wait for a place and for the answers of the archive, together.
const LATE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a list, a sum or an audit waits for one read.
const SCAN_TIMEOUT: Duration = Duration::from_secs(60);

/// The reads of the archive by one process. Late retries have separate places.
pub(crate) struct ArchiveReads {
    late: Limiter,
    scans: Limiter,
}

impl ArchiveReads {
    /// `at_once`: the maximum of each kind.
    pub(crate) fn new(at_once: u32) -> ArchiveReads {
        ArchiveReads {
            late: Limiter::new("late", at_once, LATE_TIMEOUT),
            scans: Limiter::new("events", at_once, SCAN_TIMEOUT),
        }
    }

    /// Finds the answers to this number of late retries. `find` sends each when it knows it, with its number. Answers that have come
    /// in time are kept, and the search ends when its caller is no longer there.
    ///
    /// # Errors
    /// For each retry: of the archive, or it has not answered in time.
    pub(crate) async fn find<T: Send + 'static, F>(
        &self,
        count: usize,
        find: impl FnOnce(UnboundedSender<(usize, Result<T, ArchiveError>)>) -> F,
    ) -> Vec<Result<T, ArchiveError>>
    where
        F: Future<Output = Result<(), ArchiveError>> + Send + 'static,
    {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut answers: Vec<Option<Result<T, ArchiveError>>> = (0..count).map(|_| None).collect();
        let (late, mut read) = (sleep(LATE_TIMEOUT), Box::pin(self.late.read(find(sender))));
        tokio::pin!(late);
        let ended = loop {
            tokio::select! {
                biased;
                Some((number, answer)) = receiver.recv() => answers[number] = Some(answer),
                ended = &mut read => break ended,
                () = &mut late => break Err(no_answer(LATE_TIMEOUT)),
            }
        };
        // What the search has sent last.
        while let Ok((number, answer)) = receiver.try_recv() {
            answers[number] = Some(answer);
        }
        let unanswered = ended.err().unwrap_or_else(|| no_answer(LATE_TIMEOUT));
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(unanswered.clone()))).collect()
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

fn no_answer(within: Duration) -> ArchiveError {
    ArchiveError::Unavailable { why: format!("no answer within {within:?}") }
}

/// Reads of one kind.
struct Limiter {
    kind: &'static str,
    places: Arc<Semaphore>,
    timeout: Duration,
}

impl Limiter {
    fn new(kind: &'static str, at_once: u32, timeout: Duration) -> Limiter {
        Limiter { kind, places: Arc::new(Semaphore::new(at_once as usize)), timeout }
    }

    /// Waits for a place, and reads.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let unavailable = |why: String| ArchiveError::Unavailable { why };
        let limit = self.timeout;
        let place = timeout(limit, self.places.clone().acquire_owned()).await;
        let place =
            place.map_err(|_| unavailable(format!("other reads of this process have taken longer than {limit:?}")))?;
        let under_way = UnderWay::of(place.map_err(|error| unavailable(error.to_string()))?, self.kind);
        let task = tokio::spawn(async move {
            let answer = read.await;
            drop(under_way);
            answer
        });
        let answered = timeout(limit, task).await.map_err(|_| no_answer(limit))?;
        answered.map_err(|error| unavailable(error.to_string()))?
    }
}

/// A read that is under way, until this is dropped: also if it panics.
struct UnderWay {
    _place: OwnedSemaphorePermit,
    kind: &'static str,
}

impl UnderWay {
    fn of(place: OwnedSemaphorePermit, kind: &'static str) -> UnderWay {
        archive_reads(kind, 1.0);
        UnderWay { _place: place, kind }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        archive_reads(self.kind, -1.0);
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
            reads.find::<(), _>(1, |_| async move {
                begun.fetch_add(1, Ordering::SeqCst);
                pending::<Result<(), ArchiveError>>().await
            })
        };
        for answer in join_all((0..20).map(|_| hang())).await.into_iter().flatten() {
            assert!(matches!(answer, Err(ArchiveError::Unavailable { .. })), "{answer:?}");
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

    #[tokio::test]
    async fn n15_a_read_that_is_answered_frees_its_place() {
        let reads = ArchiveReads::new(1);
        for number in 0..10_u32 {
            let answers = reads.find(1, |answers| async move {
                let _ = answers.send((0, Ok(number)));
                Ok(())
            });
            assert!(matches!(answers.await[..], [Ok(answer)] if answer == number));
        }
        let away = || ArchiveError::Unavailable { why: "away".to_owned() };
        assert!(reads.find::<(), _>(1, |_| async move { Err(away()) }).await[0].is_err());
        assert!(reads.scan(async { Ok(()) }).await.is_ok());
        assert!(reads.late.places.try_acquire().is_ok());
    }

    /// More late retries than can be answered in time: those that are stay answered, so that each call leaves fewer.
    #[tokio::test(start_paused = true)]
    async fn n15_answers_that_come_in_time_are_kept() {
        let reads = ArchiveReads::new(1);
        let slow = async |wanted: Vec<u32>| {
            let count = wanted.len();
            let answers = reads.find(count, |answers| async move {
                for (number, wanted) in wanted.into_iter().enumerate() {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    if answers.send((number, Ok(wanted))).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            answers.await
        };
        let (mut left, mut calls) = ((0..1_000).collect::<Vec<u32>>(), 0);
        while !left.is_empty() {
            let answers = slow(left.clone()).await;
            let (before, answered): (usize, Vec<u32>) = (left.len(), answers.into_iter().flatten().collect());
            assert_eq!(answered[..], left[..answered.len()]);
            left.drain(..answered.len());
            assert!(left.len() < before, "a call makes progress");
            calls += 1;
            // The search notices at its next answer that its caller has gone, and frees its place.
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        assert!((4..=5).contains(&calls), "{calls} calls");
    }
}
