//! How much the store keeps for a tenant, as one server knows it: what it has read, plus what it has let in since.
//!
//! A message counts from its admission until a reading that began after its Enqueue was answered. So one server alone does not
//! pass the bounds. What other servers have let in counts with the next reading, usually within [`EVERY`]. Before a message is
//! refused, a reading is made, unless the last one is too recent.
//!
//! A partition of the store that cannot be read counts with what it had when it was last read, and not at all before. So its
//! messages may pass a bound, and the queues of the others are served.

use super::source::Source;
use crate::store::Kept;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_model::Refusal;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Between two readings while messages come in.
const EVERY: Duration = Duration::from_secs(1);
/// Between two readings while messages, queues or indexes are refused.
pub(super) const EVERY_WHEN_FULL: Duration = Duration::from_millis(100);
/// Readings take at most one part in so many of the time.
const SHARE_OF_TIME: u32 = 20;
/// What Redis needs for a message beyond its id, metadata and payload: the estimate of bytes until the next reading.
pub(super) const OVERHEAD_BYTES: u64 = 120;

/// So many messages, with so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// The stock of one tenant.
pub(super) struct Stock {
    prefix: String,
    bounds: Bounds,
    source: Arc<dyn Source>,
    state: Mutex<State>,
    /// Held by the one that reads.
    reading: Arc<tokio::sync::Mutex<()>>,
    shown: Box<dyn Fn(&Kept) + Send + Sync>,
}

/// `None`: no bound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    pub(super) messages: Option<u64>,
    pub(super) bytes: Option<u64>,
}

#[derive(Default)]
struct State {
    read: Option<Reading>,
    /// What each partition had when it was last read.
    partitions: Vec<Kept>,
    /// When the store was last not read, and why.
    failed: Option<(Instant, Refusal)>,
    /// Let in, and not answered yet.
    in_flight: Amount,
    /// Accepted by the store since the last reading that succeeded began.
    since: Amount,
}

#[derive(Clone, Copy)]
struct Reading {
    kept: Kept,
    time: ReadTime,
}

/// When something was read of the store, and how much of the store's time that took.
#[derive(Clone, Copy)]
pub(super) struct ReadTime {
    ended: Instant,
    took: Duration,
}

/// A part of the stock that an Enqueue takes until it is answered.
pub(super) struct Reservation {
    stock: Arc<Stock>,
    amount: Amount,
    /// How much of it the store has accepted, or may have: all of it, until an answer says otherwise.
    accepted: Amount,
}

impl Stock {
    pub(super) fn new(
        prefix: &str,
        bounds: Bounds,
        source: Arc<dyn Source>,
        shown: impl Fn(&Kept) + Send + Sync + 'static,
    ) -> Arc<Stock> {
        let (state, reading, shown) = (Mutex::default(), Arc::default(), Box::new(shown));
        Arc::new(Stock { prefix: prefix.to_owned(), bounds, source, state, reading, shown })
    }

    /// Takes a part of the stock for each of these messages, in order, given their bytes: for all, or for those that there is
    /// room for after a reading. Returns which of them, or the quota that the others would pass.
    ///
    /// # Errors
    /// The store has not been read yet, and does not answer.
    pub(super) async fn take(
        self: &Arc<Self>,
        sizes: &[u64],
    ) -> Result<(Reservation, Vec<Option<&'static str>>), Refusal> {
        if self.state().read.is_none() {
            self.read_in_task(Duration::MAX).await?;
        } else {
            self.begin_reading();
        }
        if !self.has_room(sizes) && self.is_older_than(EVERY_WHEN_FULL) {
            // A store that does not answer now refuses the Enqueue itself.
            self.read_in_task(EVERY_WHEN_FULL).await?;
        }
        let mut state = self.state();
        let mut amount = Amount::default();
        let refused = sizes.iter().map(|bytes| {
            let with = Amount { messages: amount.messages + 1, bytes: amount.bytes + bytes };
            let passed = state.passed(&self.bounds, &with);
            if passed.is_none() {
                amount = with;
            }
            passed
        });
        let refused = refused.collect();
        state.in_flight.add(&amount);
        drop(state);
        Ok((Reservation { stock: self.clone(), amount, accepted: amount }, refused))
    }

    fn has_room(&self, sizes: &[u64]) -> bool {
        let all = Amount { messages: sizes.len() as u64, bytes: sizes.iter().sum() };
        self.state().passed(&self.bounds, &all).is_none()
    }

    fn is_older_than(&self, every: Duration) -> bool {
        self.state().read.is_none_or(|reading| reading.time.is_older_than(every))
    }

    /// Begins a reading in the background, if one is due and none is under way. Each Enqueue calls this: without these conditions, those
    /// that come while a store hangs would begin as many tasks.
    fn begin_reading(self: &Arc<Self>) {
        let is_due = self.state().is_due(EVERY);
        if is_due && let Ok(reads_alone) = self.reading.clone().try_lock_owned() {
            let stock = self.clone();
            tokio::spawn(async move { stock.read(reads_alone).await });
        }
    }

    /// [`read_after`](Stock::read_after) as a task: a call on a stream whose answers are not read is not polled, and may not hold up other
    /// readings then.
    async fn read_in_task(self: &Arc<Self>, every: Duration) -> Result<(), Refusal> {
        let stock = self.clone();
        let read = tokio::spawn(async move { stock.read_after(every).await });
        read.await.unwrap_or_else(|error| Err(Refusal::Internal(error.to_string())))
    }

    /// Reads the store, unless that was done within `every`, or has taken too long for another reading now. Those that wait
    /// for one reading share its failure: otherwise each would wait for a store that hangs after the other.
    async fn read_after(&self, every: Duration) -> Result<(), Refusal> {
        let arrived = Instant::now();
        let reads_alone = self.reading.clone().lock_owned().await;
        {
            let state = self.state();
            if let Some((at, refusal)) = &state.failed
                && *at > arrived
            {
                return Err(refusal.clone());
            }
        }
        match self.is_older_than(every) {
            true => self.read(reads_alone).await,
            false => Ok(()),
        }
    }

    /// Reads the store.
    async fn read(&self, _reads_alone: OwnedMutexGuard<()>) -> Result<(), Refusal> {
        let began = Instant::now();
        // It counts until the reading has it.
        let before = self.state().since;
        let answers = self.source.kept(&self.prefix, self.bounds.bytes.is_some()).await;
        let is_whole = answers.iter().all(Result::is_ok);
        let kept = self.state().take_in(answers);
        match kept {
            Ok(kept) => {
                let mut time = ReadTime::since(began);
                if !is_whole {
                    // Waiting for a partition that does not answer takes none of the store's time.
                    time.took = Duration::ZERO;
                }
                let mut state = self.state();
                state.read = Some(Reading { kept, time });
                state.since.subtract(&before);
                drop(state);
                (self.shown)(&kept);
                Ok(())
            }
            Err(refusal) => {
                self.state().failed = Some((Instant::now(), refusal.clone()));
                Err(refusal)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadTime {
    /// Of a reading that began then, and has just ended.
    pub(super) fn since(began: Instant) -> ReadTime {
        ReadTime { ended: Instant::now(), took: began.elapsed() }
    }

    /// How long ago it ended.
    pub(super) fn age(&self) -> Duration {
        self.ended.elapsed()
    }

    /// Whether this was read longer ago than `every`, and than it took, many times.
    pub(super) fn is_older_than(&self, every: Duration) -> bool {
        self.ended.elapsed() >= every.max(self.took * SHARE_OF_TIME)
    }
}

impl State {
    /// Whether a reading after the first is to be made, and none has failed within `every`.
    fn is_due(&self, every: Duration) -> bool {
        let has_failed = self.failed.as_ref().is_some_and(|(at, _)| at.elapsed() < every);
        !has_failed && self.read.is_some_and(|reading| reading.time.is_older_than(every))
    }

    /// What all partitions keep, of those that did not answer by their last answers.
    ///
    /// # Errors
    /// None has answered.
    fn take_in(&mut self, answers: Vec<Result<Kept, Refusal>>) -> Result<Kept, Refusal> {
        self.partitions.resize(answers.len(), Kept::default());
        let (mut has_answered, mut first_error) = (false, None);
        for (last, answer) in self.partitions.iter_mut().zip(answers) {
            match answer {
                Ok(kept) => (*last, has_answered) = (kept, true),
                Err(refusal) => {
                    first_error.get_or_insert(refusal);
                }
            }
        }
        if let Some(refusal) = first_error.filter(|_| !has_answered) {
            return Err(refusal);
        }
        let mut all = Kept::default();
        self.partitions.iter().for_each(|kept| all.add(kept));
        Ok(all)
    }

    /// The quota that this additional amount would exceed.
    fn passed(&self, bounds: &Bounds, more: &Amount) -> Option<&'static str> {
        let kept = self.read.map(|reading| reading.kept).unwrap_or_default();
        let passes = |bound: Option<u64>, kept: u64, part: fn(&Amount) -> u64| {
            bound.is_some_and(|bound| kept + part(&self.in_flight) + part(&self.since) + part(more) > bound)
        };
        match () {
            () if passes(bounds.messages, kept.messages, |amount| amount.messages) => Some("messages_max"),
            () if passes(bounds.bytes, kept.bytes, |amount| amount.bytes) => Some("bytes_max"),
            () => None,
        }
    }
}

impl Amount {
    pub(super) fn add(&mut self, other: &Amount) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: &Amount) {
        self.messages -= other.messages;
        self.bytes -= other.bytes;
    }
}

impl Reservation {
    /// The store has accepted this part of it.
    pub(super) fn settle(mut self, accepted: Amount) {
        self.accepted = accepted;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.stock.state();
        state.in_flight.messages -= self.amount.messages;
        state.in_flight.bytes -= self.amount.bytes;
        state.since.add(&self.accepted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tallystone_model::Applied;
    use tokio::runtime::Handle;
    use tokio::task::yield_now;
    use tokio::time::advance;

    /// Answers the first reading only; the readings that have begun.
    #[derive(Default)]
    struct HangsLater(AtomicU64);

    impl Source for HangsLater {
        fn kept<'a>(&'a self, _prefix: &'a str, _with_bytes: bool) -> BoxFuture<'a, Vec<Result<Kept, Refusal>>> {
            Box::pin(async move {
                if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
                    std::future::pending::<()>().await;
                }
                vec![Ok(Kept::default())]
            })
        }

        fn declared_indexes<'a>(&'a self, _prefix: &'a str) -> BoxFuture<'a, Result<u64, Refusal>> {
            Box::pin(async { Ok(0) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn s5_while_a_store_hangs_one_task_reads_it_however_many_messages_come() {
        let source = Arc::new(HangsLater::default());
        let bounds = Bounds { messages: Some(1_000_000), bytes: None };
        let stock = Stock::new("t/", bounds, source.clone(), |_| {});
        let enqueue = async || assert!(stock.take(&[1]).await.is_ok_and(|(_, refused)| refused == [None::<&str>]));
        enqueue().await;
        advance(EVERY - Duration::from_millis(1)).await;
        enqueue().await;
        yield_now().await;
        assert_eq!((source.0.load(Ordering::SeqCst), Handle::current().metrics().num_alive_tasks()), (1, 0));
        advance(Duration::from_millis(1)).await;
        for _ in 0..1_000 {
            enqueue().await;
        }
        yield_now().await;
        assert_eq!((source.0.load(Ordering::SeqCst), Handle::current().metrics().num_alive_tasks()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn s5_a_reading_is_repeated_after_twenty_times_as_long_as_it_took() {
        for (took_ms, again_after_ms) in [(0, 100), (5, 100), (50, 1_000)] {
            let began = Instant::now();
            advance(Duration::from_millis(took_ms)).await;
            let read = ReadTime::since(began);
            advance(Duration::from_millis(again_after_ms - 1)).await;
            assert!(!read.is_older_than(EVERY_WHEN_FULL), "{took_ms}");
            advance(Duration::from_millis(1)).await;
            assert!(read.is_older_than(EVERY_WHEN_FULL), "{took_ms}");
        }
    }

    #[test]
    fn x3_a_partition_that_is_not_read_counts_with_what_it_had() {
        let away = || Err(Refusal::Unavailable { applied: Applied::No, why: String::new() });
        let kept = |messages| Kept { queues: 1, messages, bytes: 0 };
        let mut state = State::default();
        assert!(state.take_in(vec![away(), away()]).is_err(), "nothing is known");
        assert_eq!(state.take_in(vec![away(), Ok(kept(5))]), Ok(kept(5)));
        assert_eq!(state.take_in(vec![Ok(kept(3)), Ok(kept(5))]).map(|all| all.messages), Ok(8));
        assert_eq!(state.take_in(vec![Ok(kept(4)), away()]).map(|all| (all.queues, all.messages)), Ok((2, 9)));
        assert!(state.take_in(vec![away(), away()]).is_err());
    }
}
