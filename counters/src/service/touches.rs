//! Which counters clients have read that should be rolled up sooner (N11).

use crate::names::CounterName;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A counter is touched at most once in this time.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Counters of one call of the store.
pub(super) const TOUCHED_MAX: usize = 500;
/// Counters remembered as touched in that time; further ones are not touched.
const REMEMBERED_MAX: usize = 100_000;

/// Counters that were read, until the store is notified of them.
#[derive(Default)]
pub(super) struct Touches {
    recent: Mutex<RecentTouches>,
    /// Notified when a counter is to be touched.
    pub(super) arrived: Notify,
    /// Notified when the store says that a counter falls due sooner.
    pub(super) hurried: Notify,
}

/// When counters were last touched, in two generations. The older one is dropped as a whole: to search a large map for
/// entries that are old enough takes long.
#[derive(Default)]
struct RecentTouches {
    began: Option<Instant>,
    current: HashMap<CounterName, Instant>,
    previous: HashMap<CounterName, Instant>,
    waiting: Vec<(CounterName, bool)>,
}

impl Touches {
    /// A client has read a counter that should be rolled up sooner; `though_idle`: also if nothing of it is pending.
    pub(super) fn add(&self, counter: &CounterName, though_idle: bool) {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.began.is_none_or(|began| now.duration_since(began) >= AGAIN_AFTER) {
            recent.previous = std::mem::take(&mut recent.current);
            recent.began = Some(now);
        }
        let is_recent = |touched: &Instant| now.duration_since(*touched) < AGAIN_AFTER;
        let generations = [&recent.current, &recent.previous];
        let is_touched = generations.iter().any(|touches| touches.get(counter).is_some_and(is_recent));
        if !is_touched && recent.current.len() < REMEMBERED_MAX {
            recent.current.insert(counter.clone(), now);
            recent.waiting.push((counter.clone(), though_idle));
            self.arrived.notify_one();
        }
    }

    /// The counters since the last call, each with `though_idle`.
    pub(super) fn take(&self) -> Vec<(CounterName, bool)> {
        std::mem::take(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner).waiting)
    }
}
