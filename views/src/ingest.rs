//! Views that arrive at about the same time go to their partition as one entry: one call of the log, and one fsync.

use crate::Refusal;
use crate::appends::{AppendViews, partition_of};
use crate::metrics;
use crate::view::View;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tallystone_model::Applied;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

/// An entry takes no more views when it has so many bytes.
const ENTRY_BYTES: usize = 128 * 1_024;

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
#[derive(Default)]
struct Pending {
    views: Vec<u8>,
    count: usize,
    callers: Vec<oneshot::Sender<Result<(), Refusal>>>,
}

/// Whether views are durable, when that is known.
pub(crate) type Accepted = oneshot::Receiver<Result<(), Refusal>>;

impl Ingest {
    /// Appends until it is dropped. `appended` is notified for each partition.
    pub(crate) fn start(partitions: Vec<Arc<dyn AppendViews>>, waiting_max: usize, appended: &[Arc<Notify>]) -> Ingest {
        let (waiting, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let lanes: Vec<Arc<Lane>> = partitions.iter().map(|_| Arc::default()).collect();
        for ((lane, partition), appended) in lanes.iter().zip(partitions).zip(appended) {
            tasks.spawn(append(lane.clone(), partition, waiting.clone(), appended.clone()));
        }
        Ingest { lanes, waiting, waiting_max, _tasks: tasks }
    }

    /// Hands views of one namespace over, grouped by partition. Returns an answer for each group, and the group of each view.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]: none of them is accepted.
    pub(crate) fn add(&self, namespace: &str, views: &[View<'_>]) -> Result<(Vec<Accepted>, Vec<usize>), Refusal> {
        let bytes = views.iter().map(|view| view.bytes(namespace)).sum();
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > self.waiting_max {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::Overloaded);
        }
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
        let accepted = groups.into_iter().map(|(lane, count, views)| self.lanes[lane].add(count, &views)).collect();
        Ok((accepted, group_of_view))
    }
}

impl Lane {
    fn add(&self, count: usize, views: &[u8]) -> Accepted {
        let (caller, accepted) = oneshot::channel();
        let mut pending = self.pending();
        if pending.back().is_none_or(|last| last.views.len() >= ENTRY_BYTES) {
            pending.push_back(Pending::default());
        }
        if let Some(last) = pending.back_mut() {
            last.views.extend(views);
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
}

/// One entry at a time: while the log makes one durable, the next one gathers.
async fn append(lane: Arc<Lane>, partition: Arc<dyn AppendViews>, waiting: Arc<AtomicUsize>, appended: Arc<Notify>) {
    loop {
        lane.arrived.notified().await;
        loop {
            let Some(Pending { views, count, callers }) = lane.pending().pop_front() else { break };
            let result = match partition.append(&views).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(Refusal::Overloaded),
                Err(refusal) => Err(refusal),
            };
            waiting.fetch_sub(views.len(), Ordering::Relaxed);
            if result.is_ok() {
                // Also those whose callers have gone.
                metrics::accepted(count);
                appended.notify_one();
            }
            for caller in callers {
                // A caller that has gone needs no answer.
                let _ = caller.send(result.clone());
            }
        }
    }
}

/// The answer of a group.
pub(crate) async fn answer(accepted: Accepted) -> Result<(), Refusal> {
    let stopped = || Refusal::Unavailable { applied: Applied::Unknown, why: "this server is stopping".to_owned() };
    accepted.await.unwrap_or_else(|_| Err(stopped()))
}
