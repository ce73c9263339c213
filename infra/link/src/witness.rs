//! This process's clock as a witness of Redis's (X6): where the two differ, one of them is wrong, and no script changes
//! anything. The model is the maximum clock offset of CockroachDB and YugabyteDB.

use crate::Link;
use crate::error::begin_disk_errors;
use crate::offset::{Ahead, KnownPrimaries, Offset, Sight};
use crate::own_clock::{OwnClock, steady_ms};
use crate::timeline::Timeline;
use metrics::{Unit, describe_gauge, gauge};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;

const OFFSET: &str = "tallystone_store_clock_offset_seconds";
/// Between two measurements.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// The same after one that took long.
const PROBE_AGAIN: Duration = Duration::from_millis(100);
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
    /// The primary, as the last call found it.
    primaries: Mutex<KnownPrimaries>,
    /// Since the first time that was read.
    own: Mutex<Option<OwnClock>>,
    /// The last comparison has found that the clocks differ.
    differs: AtomicBool,
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

/// By how much a time of Redis is ahead of the span in which it was read (negative: behind), in ms.
fn offset_ms(sent_ms: u64, store_ms: u64, received_ms: u64) -> i64 {
    let received_ms = received_ms.max(sent_ms);
    store_ms as i64 - store_ms.clamp(sent_ms, received_ms) as i64
}

impl Witness {
    pub(crate) fn new(what: &'static str, skew_max_ms: u32) -> Witness {
        let (is_warned, differs, logged_at) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None));
        Witness { what, skew_max_ms, is_warned, logged_at, primaries: Mutex::default(), own: Mutex::default(), differs }
    }

    /// This process's time, with which Redis's is compared, in Unix ms. A step of this machine's clock beyond the bound is accepted only
    /// after some seconds. So if Redis is on the same machine, its time differs from this one meanwhile, and scripts change nothing.
    pub(crate) fn now_ms(&self) -> u64 {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let own = own.get_or_insert_with(OwnClock::new);
        own.now_ms(self.skew_max_ms, self.differs.load(Ordering::Relaxed))
    }

    pub(crate) fn of_another(&self) -> Witness {
        Witness::new(self.what, self.skew_max_ms)
    }

    /// By how much the clocks may differ, in ms; 0: they are not compared.
    pub fn skew_max_ms(&self) -> u32 {
        self.skew_max_ms
    }

    fn primaries(&self) -> MutexGuard<'_, KnownPrimaries> {
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The timeline of the primary, and how far its clock may be ahead of that of the one before.
    pub(crate) fn timeline(&self) -> (Timeline, Ahead) {
        // One clock may be behind by the bound, and the other one ahead.
        let bound_ms = if self.skew_max_ms > 0 { self.skew_max_ms } else { CLOCK_SKEW_MAX_MS };
        let primaries = self.primaries();
        (primaries.timeline(), primaries.ahead(bound_ms.saturating_mul(2)))
    }

    /// A connection leads to this primary.
    pub(crate) fn saw(&self, sight: Sight) {
        let offset = sight.offset.filter(|offset| self.is_plausible(*offset));
        self.primaries().saw(Sight { offset, ..sight });
    }

    /// While one of the clocks is wrong, no script accepts a time, and the difference says nothing of later.
    fn is_plausible(&self, offset: Offset) -> bool {
        self.skew_max_ms == 0 || offset.agrees(self.now_ms() as i64 - steady_ms() as i64, self.skew_max_ms)
    }

    /// Judges a time of Redis that was read between two times of this process (all Unix ms), and logs if the verdict is
    /// another than before.
    pub fn judge(&self, sent_ms: u64, store_ms: u64, received_ms: u64) -> Verdict {
        let offset_ms = offset_ms(sent_ms, store_ms, received_ms);
        if self.skew_max_ms > 0 && offset_ms.unsigned_abs() > u64::from(self.skew_max_ms) {
            self.differs.store(true, Ordering::Relaxed);
            self.measured(offset_ms);
            self.log(Some(offset_ms));
            return Verdict::Differs { offset_ms };
        }
        self.agrees();
        Verdict::Agrees
    }

    /// Redis has accepted a stamp.
    pub(crate) fn agrees(&self) {
        self.differs.store(false, Ordering::Relaxed);
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
            let mut pause = PROBE_EVERY;
            let (sent_ms, steady_sent_ms) = (self.now_ms(), steady_ms());
            if let Ok((store_ms, timeline)) = link.time_on_timeline().await {
                let received_ms = self.now_ms();
                let offset = Offset::measured(steady_sent_ms, store_ms, steady_ms());
                if self.is_plausible(offset) {
                    self.primaries().measured(timeline, offset);
                }
                if !offset.is_quick() {
                    pause = PROBE_AGAIN;
                }
                self.measured(offset_ms(sent_ms, store_ms, received_ms));
                self.judge(sent_ms, store_ms, received_ms);
            }
            tokio::time::sleep(pause).await;
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
