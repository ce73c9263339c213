//! Counters of one namespace that wait to be read, each once, however many readers wait for it.

use super::count::{CALL_MAX, KnownCount, lock};
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Counters that wait or are being read. Beyond that, the next calls would take longer than readers wait for them.
pub(super) const WAITING_MAX: usize = 8 * CALL_MAX;
/// Of these, counters that were never read may be so many when the next one comes: a client that reads random names holds up
/// none of the known ones.
pub(super) const NEW_WAITING_MAX: usize = WAITING_MAX / 2;
/// After a failed call, readers with an earlier count get it at once for so long.
const AWAY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when a counter has come.
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    /// By counter, what its readers wait for. It stays until its call has ended.
    readers: HashMap<String, watch::Sender<Option<KnownCount>>>,
    /// Those that are in no call yet.
    order: VecDeque<String>,
    failed_at: Option<Instant>,
}

/// A count that is being read.
pub(super) struct Coming(watch::Receiver<Option<KnownCount>>);

impl Coming {
    /// The count; `None`: the counters do not answer, or refuse the counter.
    pub(super) async fn count(mut self) -> Option<KnownCount> {
        *self.0.wait_for(Option::is_some).await.ok()?
    }
}

impl Queue {
    /// Requests a count, also if nothing waits for it then. `is_known`: there is an earlier one. `None`: too many counters wait.
    pub(super) fn request(&self, counter: &str, is_known: bool) -> Option<Coming> {
        let mut waiting = lock(&self.waiting);
        if let Some(reader) = waiting.readers.get(counter) {
            return Some(Coming(reader.subscribe()));
        }
        let waiting_max = if is_known { WAITING_MAX } else { NEW_WAITING_MAX };
        if waiting.readers.len() >= waiting_max {
            return None;
        }
        let (reader, count) = watch::channel(None);
        waiting.readers.insert(counter.to_owned(), reader);
        waiting.order.push_back(counter.to_owned());
        drop(waiting);
        self.arrived.notify_one();
        Some(Coming(count))
    }

    /// Whether a call of this namespace has just failed.
    pub(super) fn is_away(&self) -> bool {
        lock(&self.waiting).failed_at.is_some_and(|failed_at| failed_at.elapsed() < AWAY)
    }

    /// The counters of the next call: those that have waited longest. Waits for the first one.
    pub(super) async fn next(&self) -> Vec<String> {
        loop {
            let names: Vec<String> = {
                let order = &mut lock(&self.waiting).order;
                let count = order.len().min(CALL_MAX);
                order.drain(..count).collect()
            };
            if !names.is_empty() {
                return names;
            }
            self.arrived.notified().await;
        }
    }

    /// Answers the readers of counters whose call has ended.
    pub(super) fn end(&self, names: &[String], mut count: impl FnMut(&str) -> Option<KnownCount>) {
        let mut waiting = lock(&self.waiting);
        for name in names {
            if let (Some(reader), Some(count)) = (waiting.readers.remove(name), count(name)) {
                reader.send_replace(Some(count));
            }
        }
        waiting.failed_at = None;
    }

    /// A call has failed. Also those who have come meanwhile wait no longer: each call that fails can take a while.
    pub(super) fn fail(&self) {
        *lock(&self.waiting) = Waiting { failed_at: Some(Instant::now()), ..Waiting::default() };
    }

    /// Counters that wait or are being read.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).readers.len()
    }
}
