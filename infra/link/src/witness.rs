//! This process's clock as a witness of Redis's (X6): where the two differ, one of them is wrong, and no script changes
//! anything. The model is the maximum clock offset of CockroachDB and YugabyteDB.

use crate::Link;
use crate::error::begin_disk_errors;
use crate::timeline::Timeline;
use metrics::{Unit, describe_gauge, gauge};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const OFFSET: &str = "tallystone_store_clock_offset_seconds";
/// Between two measurements.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Between two lines of the log at least: an offset near the bound comes and goes.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What this process knows of a Redis's clock.
#[derive(Debug)]
pub struct Witness {
    what: &'static str,
    skew_max_ms: u32,
    /// The last line of the log said that the clocks differ.
    is_warned: AtomicBool,
    logged_at: Mutex<Option<Instant>>,
    /// The timeline of the connection, as the last call found it.
    timeline: AtomicU32,
}

/// Whether Redis's clock and this process's agree within the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They do.
    Agrees,
    /// They do not.
    Differs {
        /// By how much Redis's clock is ahead of this process's, at least (negative: behind), in ms.
        offset_ms: i64,
    },
}

thread_local! {
    static VIRTUAL_MS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the time that [`wall_ms`] returns on this thread; `None`: the machine's. A simulator runs all of its servers on one
/// thread, each with a clock that may be wrong.
pub fn set_virtual_wall_ms(ms: Option<u64>) {
    VIRTUAL_MS.set(ms);
}

/// This machine's time in Unix ms.
pub fn wall_ms() -> u64 {
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    VIRTUAL_MS.get().unwrap_or_else(now_ms)
}

/// By how much a time of Redis is ahead of the span in which it was read (negative: behind), in ms.
fn offset_ms(sent_ms: u64, store_ms: u64, received_ms: u64) -> i64 {
    let received_ms = received_ms.max(sent_ms);
    store_ms as i64 - store_ms.clamp(sent_ms, received_ms) as i64
}

impl Witness {
    /// The default bound.
    pub const SKEW_MAX_MS: u32 = 10_000;

    pub(crate) fn new(what: &'static str, skew_max_ms: u32) -> Witness {
        let (is_warned, logged_at) = (AtomicBool::new(false), Mutex::new(None));
        Witness { what, skew_max_ms, is_warned, logged_at, timeline: AtomicU32::new(Timeline::UNKNOWN.0) }
    }

    pub(crate) fn of_another(&self) -> Witness {
        Witness::new(self.what, self.skew_max_ms)
    }

    /// By how much the clocks may differ, in ms; 0: they are not compared.
    pub fn skew_max_ms(&self) -> u32 {
        self.skew_max_ms
    }

    pub(crate) fn timeline(&self) -> Timeline {
        Timeline(self.timeline.load(Ordering::Relaxed))
    }

    pub(crate) fn set_timeline(&self, timeline: Timeline) {
        self.timeline.store(timeline.0, Ordering::Relaxed);
    }

    /// Judges a time of Redis that was read between two times of this process (all Unix ms), and logs if the verdict is
    /// another than before.
    pub fn judge(&self, sent_ms: u64, store_ms: u64, received_ms: u64) -> Verdict {
        let offset_ms = offset_ms(sent_ms, store_ms, received_ms);
        if self.skew_max_ms > 0 && offset_ms.unsigned_abs() > u64::from(self.skew_max_ms) {
            self.measured(offset_ms);
            self.log(Some(offset_ms));
            return Verdict::Differs { offset_ms };
        }
        self.agrees();
        Verdict::Agrees
    }

    /// Redis has accepted a stamp.
    pub(crate) fn agrees(&self) {
        if self.is_warned.load(Ordering::Relaxed) {
            self.log(None);
        }
    }

    fn log(&self, offset_ms: Option<i64>) {
        let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = self.is_warned.load(Ordering::Relaxed) != offset_ms.is_some();
        if !is_new || logged_at.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return;
        }
        *logged_at = Some(Instant::now());
        self.is_warned.store(offset_ms.is_some(), Ordering::Relaxed);
        let (what, skew_max_ms) = (self.what, self.skew_max_ms);
        match offset_ms {
            Some(offset_ms) => tracing::error!(
                what,
                offset_ms,
                skew_max_ms,
                "Redis's clock and this machine's differ: calls are refused with CLOCK_SKEW until the wrong one is right"
            ),
            None => tracing::info!(what, "Redis's clock and this machine's agree again"),
        }
    }

    fn measured(&self, offset_ms: i64) {
        // Every time: the connection may be older than the recorder of metrics.
        describe_gauge!(OFFSET, Unit::Seconds, "by how much Redis's clock is ahead of this machine's");
        gauge!(OFFSET, "store" => self.what).set(offset_ms as f64 / 1_000.0);
        begin_disk_errors();
    }

    /// Measures the offset again and again, for the metric and the log, until `link` or the future is dropped.
    pub async fn watch(self: Arc<Self>, link: Link) {
        loop {
            let sent_ms = wall_ms();
            if let Ok(store_ms) = link.time_ms().await {
                let received_ms = wall_ms();
                self.measured(offset_ms(sent_ms, store_ms, received_ms));
                self.judge(sent_ms, store_ms, received_ms);
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x6_a_time_within_the_span_of_the_call_and_the_bound_is_right() {
        let witness = Witness::new("queues", 10_000);
        let differs = |offset_ms| Verdict::Differs { offset_ms };
        for (sent_ms, store_ms, received_ms, verdict) in [
            (100_000, 100_000, 100_001, Verdict::Agrees),
            (100_000, 90_000, 100_001, Verdict::Agrees),
            (100_000, 89_999, 100_001, differs(-10_001)),
            (100_000, 110_001, 100_001, Verdict::Agrees),
            (100_000, 110_002, 100_001, differs(10_001)),
            // It waited for 15 s before Redis executed it.
            (100_000, 115_000, 115_001, Verdict::Agrees),
            (100_000, 125_002, 115_001, differs(10_001)),
            // This machine's clock was set back meanwhile.
            (100_000, 100_000, 40_000, Verdict::Agrees),
            (100_000, 700_000, 100_000, differs(600_000)),
        ] {
            assert_eq!(witness.judge(sent_ms, store_ms, received_ms), verdict, "{sent_ms} {store_ms} {received_ms}");
        }
        assert_eq!(Witness::new("queues", 0).judge(0, 700_000, 1), Verdict::Agrees);
    }

    #[test]
    fn x6_a_state_is_logged_once() {
        let witness = Witness::new("queues", 1_000);
        let logged = || (witness.is_warned.load(Ordering::Relaxed), *witness.logged_at.lock().unwrap());
        witness.judge(0, 500, 1);
        assert_eq!(logged(), (false, None), "it agrees, as it did before");
        witness.judge(0, 5_000, 1);
        let (is_warned, first) = logged();
        assert!(is_warned && first.is_some());
        for _ in 0..100 {
            witness.judge(0, 5_000, 1);
            witness.agrees();
        }
        assert_eq!(logged(), (true, first), "no flood, though it comes and goes");
        *witness.logged_at.lock().unwrap() = Instant::now().checked_sub(LOG_EVERY);
        witness.agrees();
        assert!(!logged().0);
    }
}
