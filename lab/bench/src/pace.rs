//! Calls on a fixed schedule: an open loop.

use crate::sample::{CallStats, TimedStats};
use anyhow::{Result, anyhow};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// The maximum number of open calls unless a load sets another one.
const UNDER_WAY_MAX: u32 = 4_096;
/// How often the schedule wakes up. The latency of a call includes the delay.
const STEP: Duration = Duration::from_micros(250);
/// Time until the schedule begins: by then everything is connected.
const LEAD: Duration = Duration::from_millis(100);

/// Calls at a fixed rate: slow calls do not delay later ones, and the latency of a call counts from its scheduled time.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) per_s: f64,
    pub(crate) calls: u64,
    /// Calls before those, which are not measured.
    pub(crate) warm_up: u64,
    /// The maximum number of open calls. Beyond it the schedule waits, and the latencies include that wait.
    under_way_max: u32,
}

/// The calls that have ended so far.
struct EndedCalls {
    stats: CallStats,
    failed: Option<anyhow::Error>,
}

impl Pace {
    /// `calls` calls at `per_s` calls per second.
    pub(crate) fn of(calls: u64, per_s: f64) -> Pace {
        Pace { per_s, calls, warm_up: 0, under_way_max: UNDER_WAY_MAX }
    }

    /// `per_s` calls per second for `time`.
    pub(crate) fn lasting(per_s: f64, time: Duration) -> Pace {
        Pace::of((per_s * time.as_secs_f64()).round() as u64, per_s)
    }

    /// With the same load before, for `warm_up`, which is not measured.
    pub(crate) fn after(self, warm_up: Duration) -> Pace {
        Pace { warm_up: Pace::lasting(self.per_s, warm_up).calls, ..self }
    }

    /// With at most this many open calls.
    pub(crate) fn at_most(self, under_way_max: u32) -> Pace {
        Pace { under_way_max, ..self }
    }

    /// Batches of this size with together `per_s` items per second.
    pub(crate) fn of_batches(per_s: u64, batch: usize, time: Duration) -> Pace {
        Pace::lasting(per_s as f64 / batch as f64, time)
    }

    /// Makes the calls from a dedicated thread: the runtime's timers are exact only to milliseconds. The first error ends it.
    pub(crate) async fn run<F, Fut>(self, mut call: F) -> Result<TimedStats>
    where
        F: FnMut(u64) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let under_way = Arc::new(Semaphore::new(self.under_way_max as usize));
        let answered = Arc::new(Mutex::new(EndedCalls { stats: CallStats::new(), failed: None }));
        let (room, noted, runtime) = (under_way.clone(), answered.clone(), Handle::current());
        let began = Instant::now() + LEAD;
        let sender = tokio::task::spawn_blocking(move || {
            for number in 0..self.warm_up + self.calls {
                let due = began + Duration::from_secs_f64(number as f64 / self.per_s);
                let early = due.saturating_duration_since(Instant::now());
                if !early.is_zero() {
                    // The calls due meanwhile follow together: waking for each would take a core from the service.
                    std::thread::sleep(early.max(STEP));
                }
                let Ok(under_way) = runtime.block_on(room.clone().acquire_owned()) else { return };
                if lock(&noted).failed.is_some() {
                    return;
                }
                // A call takes kilobytes, which spawning would otherwise copy.
                let (made, noted) = (Box::pin(call(number)), noted.clone());
                runtime.spawn(async move {
                    let result = made.await;
                    let mut answered = lock(&noted);
                    match result {
                        Ok(()) if number < self.warm_up => {}
                        Ok(()) => answered.stats.note(1, due.elapsed()),
                        Err(error) => drop(answered.failed.get_or_insert(error)),
                    }
                    drop(under_way);
                });
            }
        });
        sender.await?;
        // Wait for the last calls.
        under_way.acquire_many(self.under_way_max).await?.forget();
        let mut answered = lock(&answered);
        if let Some(error) = answered.failed.take() {
            return Err(error);
        }
        let stats = std::mem::replace(&mut answered.stats, CallStats::new());
        if stats.messages != self.calls {
            return Err(anyhow!("{} calls expected, {} answered", self.calls, stats.messages));
        }
        Ok(TimedStats::since(began + Duration::from_secs_f64(self.warm_up as f64 / self.per_s), stats))
    }
}

fn lock(answered: &Mutex<EndedCalls>) -> std::sync::MutexGuard<'_, EndedCalls> {
    answered.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[tokio::test]
    async fn the_latency_of_a_call_counts_from_its_scheduled_time() {
        let total = Pace::of(500, 10_000.0)
            .run(|number| async move {
                tokio::time::sleep(Duration::from_millis(if number == 0 { 300 } else { 0 })).await;
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(total.stats.messages, 500);
        assert!(total.elapsed >= Duration::from_millis(300));
        assert!(total.stats.quantile_ms(1.0).unwrap() >= 300.0);
    }

    #[tokio::test]
    async fn the_warm_up_is_not_measured() {
        let total = Pace::of(500, 10_000.0)
            .after(Duration::from_millis(50))
            .run(|number| async move {
                tokio::time::sleep(Duration::from_millis(if number < 500 { 1_000 } else { 0 })).await;
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(total.stats.messages, 500);
        assert!(total.stats.quantile_ms(1.0).unwrap() < 1_000.0);
    }

    #[tokio::test]
    async fn the_first_error_is_returned() {
        let failed = Pace::of(100, 10_000.0).run(|number| async move {
            if number == 3 {
                bail!("refused");
            }
            Ok(())
        });
        assert_eq!(failed.await.err().unwrap().to_string(), "refused");
    }
}
