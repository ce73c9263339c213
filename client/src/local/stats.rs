//! What local counters have done, as numbers for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The state of local counters at one moment. Numbers without a unit count since the folder was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Pushes of a namespace that have ended: each add has a definite answer.
    pub pushes: u64,
    /// Adds that pushes have sent and that have counted; one for each counter and push.
    pub pushed_adds: u64,
    /// Of these, adds that an earlier attempt had counted.
    pub duplicates: u64,
    /// Attempts of a push that could not end it.
    pub push_failures: u64,
    /// Pulls in which every namespace answered.
    pub pulls: u64,
    /// Pulls in which some call failed.
    pub pull_failures: u64,
    /// Writes of the mapped file to disk that failed.
    pub sync_failures: u64,
    /// Attempts to shorten the list of names that failed. The list grows until one succeeds.
    pub names_failures: u64,
    /// Adds that need a decision ([`LocalCounters::unresolved`](super::LocalCounters::unresolved)); also those of earlier processes.
    pub unresolved: u64,
    /// How long ago everything that was added until then had been pushed, in ms. It exceeds the push interval if pushes fail.
    pub unpushed_age_ms: u64,
    /// How long ago the mapped file was written to disk, in ms: a loss of power loses at most the adds of this time.
    pub unsynced_age_ms: u64,
    /// Counters of the folder.
    pub counters: u64,
    /// The largest known error bound of a counter that is pulled (L1); `None`: none is known.
    pub error_bound_max: Option<u64>,
    /// Counters that are pulled, and whose error bound is unknown.
    pub error_bounds_unknown: u64,
    /// What failed last in a push, a pull, a write of the mapped file or an attempt to shorten the list of names; `None` after the next
    /// success of the same kind.
    pub last_push_error: Option<String>,
    /// See [`last_push_error`](Stats::last_push_error).
    pub last_pull_error: Option<String>,
    /// See [`last_push_error`](Stats::last_push_error).
    pub last_sync_error: Option<String>,
    /// See [`last_push_error`](Stats::last_push_error).
    pub last_names_error: Option<String>,
}

/// The counters behind [`Stats`].
pub(super) struct Tally {
    pub(super) pushes: AtomicU64,
    pub(super) pushed_adds: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) push_failures: AtomicU64,
    pub(super) pulls: AtomicU64,
    pub(super) pull_failures: AtomicU64,
    pub(super) sync_failures: AtomicU64,
    pub(super) names_failures: AtomicU64,
    pub(super) unresolved: AtomicU64,
    latest: Mutex<Latest>,
}

/// When something succeeded last, and what failed since.
pub(super) struct Latest {
    pub(super) pushed_at: Instant,
    pub(super) synced_at: Instant,
    pub(super) push_error: Option<String>,
    pub(super) pull_error: Option<String>,
    pub(super) sync_error: Option<String>,
    pub(super) names_error: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        let now = Instant::now();
        let latest = Latest {
            pushed_at: now,
            synced_at: now,
            push_error: None,
            pull_error: None,
            sync_error: None,
            names_error: None,
        };
        Tally {
            pushes: AtomicU64::default(),
            pushed_adds: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            push_failures: AtomicU64::default(),
            pulls: AtomicU64::default(),
            pull_failures: AtomicU64::default(),
            sync_failures: AtomicU64::default(),
            names_failures: AtomicU64::default(),
            unresolved: AtomicU64::default(),
            latest: Mutex::new(latest),
        }
    }
}

impl Tally {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes what was latest.
    pub(super) fn latest<T>(&self, change: impl FnOnce(&mut Latest) -> T) -> T {
        change(&mut self.latest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn read(&self, counters: u64, error_bound_max: Option<u64>, error_bounds_unknown: u64) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let age_ms = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.latest(|latest| Stats {
            pushes: read(&self.pushes),
            pushed_adds: read(&self.pushed_adds),
            duplicates: read(&self.duplicates),
            push_failures: read(&self.push_failures),
            pulls: read(&self.pulls),
            pull_failures: read(&self.pull_failures),
            sync_failures: read(&self.sync_failures),
            names_failures: read(&self.names_failures),
            unresolved: read(&self.unresolved),
            unpushed_age_ms: age_ms(latest.pushed_at),
            unsynced_age_ms: age_ms(latest.synced_at),
            counters,
            error_bound_max,
            error_bounds_unknown,
            last_push_error: latest.push_error.clone(),
            last_pull_error: latest.pull_error.clone(),
            last_sync_error: latest.sync_error.clone(),
            last_names_error: latest.names_error.clone(),
        })
    }
}
