//! Reads hurry rollups on: what somebody reads, and is behind, is rolled up as soon as it can be (N11).

use super::directory::Open;
use crate::log::{RollupSchedule, WINDOW_MS};
use crate::names::CounterName;
use crate::redis::RedisNamespace;
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How often the store is state.
const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// A counter is told of at most so often.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Counters that are told of in that time.
const REMEMBERED_MAX: usize = 100_000;
/// Counters that one call tells of.
const BATCH_MAX: usize = 500;
/// A rollup that is on its way is given this much longer.
const PATIENCE_MS: u64 = 1_000;
/// A counter of which nothing is pending is rolled up for its readers when the last rollup is so old: its answers go on
/// saying how far they are exact, and a lost mark cannot stay lost.
const IDLE_MS: u64 = 60_000;

/// What has been read and is to be state.
#[derive(Default)]
pub(super) struct Touches {
    state: Mutex<Hurried>,
    /// Some are due sooner now.
    pub(super) hurried: Notify,
}

#[derive(Default)]
struct Hurried {
    /// When counters were told of: since then, and in the time before that. Forgotten all together: to look for those
    /// that are old enough takes long where there are many.
    since: Option<Instant>,
    lately: HashMap<CounterName, Instant>,
    before: HashMap<CounterName, Instant>,
    next: Vec<(CounterName, bool)>,
}

impl Touches {
    /// Somebody has read a count that is exact to this time.
    pub(super) fn read(&self, counter: &CounterName, exact_to_ms: u64, store: &RedisNamespace) {
        let config = store.config();
        let behind_ms = store.now_ms().saturating_sub(exact_to_ms);
        if behind_ms <= config.lag_ms() + WINDOW_MS + PATIENCE_MS {
            return;
        }
        // A counter that was never rolled up may not exist: there is nothing to refresh.
        let though_idle = exact_to_ms > 0 && behind_ms > config.due_after_ms() + IDLE_MS;
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.duration_since(since) >= AGAIN_AFTER) {
            state.before = std::mem::take(&mut state.lately);
            state.since = Some(now);
        }
        let is_lately = |at: &Instant| now.duration_since(*at) < AGAIN_AFTER;
        let is_known = [&state.lately, &state.before].iter().any(|at| at.get(counter).is_some_and(is_lately));
        if !is_known && state.lately.len() < REMEMBERED_MAX {
            state.lately.insert(counter.clone(), now);
            state.next.push((counter.clone(), though_idle));
        }
    }

    fn take(&self) -> Vec<(CounterName, bool)> {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).next)
    }
}

/// Tells the store, for as long as this revision of the namespace holds.
pub(super) async fn run(open: Arc<Open>) {
    let mut every = tokio::time::interval(FLUSH_EVERY);
    loop {
        every.tick().await;
        for touched in open.touches.take().chunks(BATCH_MAX) {
            match open.store.touch(touched).await {
                Ok(true) => open.touches.hurried.notify_one(),
                Ok(false) => {}
                Err(Refusal::Stale) => return open.refuse(),
                // Nothing is lost by it: every add has its own mark (N9).
                Err(error) => tracing::debug!(%error, "reads were not told"),
            }
        }
    }
}
