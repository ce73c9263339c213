//! Views that arrive at about the same time go to their partition as one entry: one call of the log, and one fsync.

use crate::Refusal;
use crate::appends::{AppendViews, partition_of};
use crate::metrics;
use crate::steps::StepObserver;
use crate::view::View;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_model::Applied;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// An entry takes no more views when it has so many bytes.
const ENTRY_BYTES: usize = 128 * 1_024;
/// Views that the log has not been given for so long are refused. One entry of a log that hangs takes seconds, and many may
/// wait: without this bound a caller would wait for all before its own.
const UNSENT_MAX: Duration = Duration::from_secs(5);

/// Accepts views for the log.
pub(crate) struct Ingest {
    lanes: Vec<Arc<Lane>>,
    /// Bytes of views that wait.
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
    _tasks: JoinSet<()>,
}

/// What waits for one partition.
#[derive(Default)]
struct Lane {
    pending: Mutex<VecDeque<Pending>>,
    arrived: Notify,
}

/// Views that become one entry.
struct Pending {
    /// When the first of them came.
    since: Instant,
    views: Vec<u8>,
    count: usize,
    callers: Vec<oneshot::Sender<Result<(), Refusal>>>,
}

/// Whether views are durable, when that is known.
pub(crate) type Accepted = oneshot::Receiver<Result<(), Refusal>>;

impl Ingest {
    /// Appends until it is dropped. `appended` is notified for each partition.
    pub(crate) fn start(
        partitions: Vec<Arc<dyn AppendViews>>,
        waiting_max: usize,
        appended: &[Arc<Notify>],
        steps: &StepObserver,
    ) -> Ingest {
        let (waiting, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let lanes: Vec<Arc<Lane>> = partitions.iter().map(|_| Arc::default()).collect();
        for ((lane, partition), appended) in lanes.iter().zip(partitions).zip(appended) {
            let (lane, waiting, appended, steps) = (lane.clone(), waiting.clone(), appended.clone(), steps.clone());
            tasks.spawn(append(lane, partition, waiting, appended, steps));
        }
        Ingest { lanes, waiting, waiting_max, _tasks: tasks }
    }

    /// Hands views of one namespace over, grouped by partition. Returns an answer for each group, and the group of each view.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]: none of them is accepted.
    pub(crate) fn add(&self, namespace: &str, views: &[View<'_>]) -> Result<(Vec<Accepted>, Vec<usize>), Refusal> {
        self.make_room(views.iter().map(|view| view.bytes(namespace)).sum())?;
        let mut group_of_lane = vec![None; self.lanes.len()];
        let (mut groups, mut group_of_view) = (Vec::new(), Vec::with_capacity(views.len()));
        for view in views {
            let lane = partition_of(&view.video, self.lanes.len());
            let group = *group_of_lane[lane].get_or_insert_with(|| {
                groups.push((lane, 0, Vec::new()));
                groups.len() - 1
            });
            let (_, count, bytes) = &mut groups[group];
            view.write(namespace, bytes);
            *count += 1;
            group_of_view.push(group);
        }
        let add =
            |(lane, count, views): (usize, usize, Vec<u8>)| self.lanes[lane].add(count, |entry| entry.extend(views));
        Ok((groups.into_iter().map(add).collect(), group_of_view))
    }

    /// Hands a view over.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]: it is not accepted.
    pub(crate) fn add_one(&self, namespace: &str, view: &View<'_>) -> Result<Accepted, Refusal> {
        self.make_room(view.bytes(namespace))?;
        Ok(self.lanes[partition_of(&view.video, self.lanes.len())].add(1, |entry| view.write(namespace, entry)))
    }

    /// More bytes of views wait, if they may.
    fn make_room(&self, bytes: usize) -> Result<(), Refusal> {
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.waiting_max {
            return Ok(());
        }
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        Err(Refusal::Overloaded)
    }
}

impl Lane {
    /// Adds views to the entry that gathers; `write` appends them.
    fn add(&self, count: usize, write: impl FnOnce(&mut Vec<u8>)) -> Accepted {
        let (caller, accepted) = oneshot::channel();
        let mut pending = self.pending();
        if pending.back().is_none_or(|last| last.views.len() >= ENTRY_BYTES) {
            pending.push_back(Pending::new());
        }
        if let Some(last) = pending.back_mut() {
            write(&mut last.views);
            last.count += count;
            last.callers.push(caller);
        }
        drop(pending);
        self.arrived.notify_one();
        accepted
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next entry. Those that have waited for too long are refused.
    fn next(&self, waiting: &AtomicUsize) -> Option<Pending> {
        loop {
            let next = self.pending().pop_front()?;
            if next.since.elapsed() < UNSENT_MAX {
                return Some(next);
            }
            let why = format!("the log has taken no views for {} s", UNSENT_MAX.as_secs());
            next.end(&Err(Refusal::Unavailable { applied: Applied::No, why }), waiting);
        }
    }

    /// Waits until an entry is appended. Those behind it are refused meanwhile when they have waited for too long.
    async fn refuse_late_during<T>(&self, waiting: &AtomicUsize, appending: impl Future<Output = T>) -> T {
        tokio::pin!(appending);
        loop {
            let oldest = self.pending().front().map_or_else(Instant::now, |oldest| oldest.since);
            tokio::select! {
                appended = &mut appending => return appended,
                () = sleep_until(oldest + UNSENT_MAX) => {
                    if let Some(next) = self.next(waiting) {
                        self.pending().push_front(next);
                    }
                }
            }
        }
    }
}

impl Pending {
    fn new() -> Pending {
        Pending { since: Instant::now(), views: Vec::new(), count: 0, callers: Vec::new() }
    }

    /// Answers the callers. The views wait no more.
    fn end(self, result: &Result<(), Refusal>, waiting: &AtomicUsize) {
        waiting.fetch_sub(self.views.len(), Ordering::Relaxed);
        for caller in self.callers {
            // A caller that has gone needs no answer.
            let _ = caller.send(result.clone());
        }
    }
}

/// One entry at a time: while the log makes one durable, the next one gathers.
async fn append(
    lane: Arc<Lane>,
    partition: Arc<dyn AppendViews>,
    waiting: Arc<AtomicUsize>,
    appended: Arc<Notify>,
    reached: StepObserver,
) {
    loop {
        lane.arrived.notified().await;
        while let Some(entry) = lane.next(&waiting) {
            reached("views go to the log");
            let appending = partition.append(&entry.views);
            let result = match lane.refuse_late_during(&waiting, appending).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Refusal::Overloaded),
                Err(refusal) => Err(refusal),
            };
            if result.is_ok() {
                reached("views are in the log");
                // Also those whose callers have gone.
                metrics::accepted(entry.count);
                appended.notify_one();
            }
            entry.end(&result, &waiting);
        }
    }
}

/// The answer of a group.
pub(crate) async fn answer(accepted: Accepted) -> Result<(), Refusal> {
    let stopped = || Refusal::Unavailable { applied: Applied::Unknown, why: "this server is stopping".to_owned() };
    accepted.await.unwrap_or_else(|_| Err(stopped()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::unobserved;
    use futures::future::{BoxFuture, join_all};
    use tokio::time::sleep;

    /// A log that takes so long for each entry, and then has not answered.
    struct Hanging {
        entry: Duration,
        appends: AtomicUsize,
    }

    impl AppendViews for Hanging {
        fn append<'a>(&'a self, _: &'a [u8]) -> BoxFuture<'a, Result<bool, Refusal>> {
            self.appends.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                sleep(self.entry).await;
                Err(Refusal::Unavailable { applied: Applied::Unknown, why: "no answer".to_owned() })
            })
        }
    }

    fn applied(result: &Result<(), Refusal>) -> Option<Applied> {
        match result {
            Err(Refusal::Unavailable { applied, .. }) => Some(*applied),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn v1_views_beyond_the_bytes_that_may_wait_are_refused_until_others_have_their_answers() {
        let log = Arc::new(Hanging { entry: Duration::from_secs(1), appends: AtomicUsize::new(0) });
        let one = View { video: "v".into(), user: "u".into(), client_ms: 0 };
        let room_for_two = 2 * one.bytes("default");
        let ingest = Ingest::start(vec![log.clone()], room_for_two, &[Arc::default()], &unobserved());
        let two = [one.clone(), one.clone()];
        let (accepted, _) = ingest.add("default", &two).unwrap();
        assert_eq!(ingest.add_one("default", &one).map(drop), Err(Refusal::Overloaded));
        assert_eq!(ingest.add("default", &two).map(drop), Err(Refusal::Overloaded));
        join_all(accepted.into_iter().map(answer)).await;
        assert!(ingest.add_one("default", &one).is_ok());
        assert!(ingest.add_one("default", &one).is_ok());
        assert_eq!(ingest.add_one("default", &one).map(drop), Err(Refusal::Overloaded));
    }

    #[tokio::test(start_paused = true)]
    async fn v5_views_behind_a_log_that_hangs_are_refused_in_time_and_are_certainly_not_in_it() {
        const ENTRIES: usize = 100;
        for entry in [Duration::from_secs(3), Duration::from_secs(15)] {
            let log = Arc::new(Hanging { entry, appends: AtomicUsize::new(0) });
            let ingest = Ingest::start(vec![log.clone()], 64 * ENTRY_BYTES * ENTRIES, &[Arc::default()], &unobserved());
            let began = Instant::now();
            let views: Vec<_> = (0..2_000)
                .map(|user| View { video: "v".into(), user: format!("{user:0100}").into(), client_ms: 0 })
                .collect();
            let mut accepted = Vec::new();
            for _ in 0..ENTRIES {
                accepted.extend(ingest.add("default", &views).unwrap().0);
            }
            let results = join_all(accepted.into_iter().map(answer)).await;
            assert!(began.elapsed() <= UNSENT_MAX + entry, "{:?}", began.elapsed());
            let unknown = results.iter().filter(|result| applied(result) == Some(Applied::Unknown)).count();
            let none = results.iter().filter(|result| applied(result) == Some(Applied::No)).count();
            assert_eq!((unknown, none), (log.appends.load(Ordering::Relaxed), ENTRIES - unknown));
            assert!((1..=2).contains(&unknown), "{unknown} were sent");
            assert_eq!(ingest.waiting.load(Ordering::Relaxed), 0);
            // The next views have their own time.
            let (accepted, _) = ingest.add("default", &views[..1]).unwrap();
            let results = join_all(accepted.into_iter().map(answer)).await;
            assert_eq!(applied(&results[0]), Some(Applied::Unknown));
        }
    }
}
