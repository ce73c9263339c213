//! Loads: callers that send batches as fast as they are answered, and calls on a fixed schedule.

use super::adds::{Add, Source};
use super::plan::BATCH;
use crate::load::race;
use crate::sample::{Tally, Total};
use anyhow::{Result, anyhow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Calls under way at once, at most: the schedule then waits, and its lateness is in the latencies.
const UNDER_WAY_MAX: u32 = 4_096;
/// How often the schedule wakes up. What that makes a call late is in its latency.
const STEP: Duration = Duration::from_micros(250);
/// The schedule begins so long from now, when everything stands.
const LEAD: Duration = Duration::from_millis(100);

/// Whatever counts, seen by one caller.
pub(super) trait Adder: Send + Sized + 'static {
    /// One call over the wire, or one pipeline.
    fn add(&mut self, adds: Vec<Add>) -> impl Future<Output = Result<()>> + Send;
}

/// So many adds in batches, of a source for each caller by its number, as fast as they are answered; the latency is that
/// of a call.
pub(super) async fn add_all<A: Adder>(callers: Vec<A>, adds: u64, source: impl Fn(u64) -> Source) -> Result<Total> {
    let next = Arc::new(AtomicU64::new(0));
    let callers: Vec<(A, Source)> = callers.into_iter().zip((0..).map(source)).collect();
    let (_, total) = race(callers, adds, |_, (mut caller, mut source)| {
        let next = next.clone();
        async move {
            let mut tally = Tally::new();
            loop {
                let from = next.fetch_add(BATCH as u64, Ordering::Relaxed);
                if from >= adds {
                    return Ok(((caller, source), tally));
                }
                let batch = source.adds(BATCH.min((adds - from) as usize));
                let (sent, began) = (batch.len(), Instant::now());
                caller.add(batch).await?;
                tally.note(sent, began.elapsed());
            }
        }
    })
    .await?;
    Ok(total)
}

/// Calls at a fixed rate: one is due when it is due, however slow the ones before it are, and its latency counts from
/// then.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) per_s: f64,
    pub(super) calls: u64,
    /// So many before those, which are not measured.
    pub(super) warm_up: u64,
}

/// What has come back so far.
struct Answered {
    tally: Tally,
    failed: Option<anyhow::Error>,
}

impl Pace {
    /// So many calls, at so many per second.
    pub(super) fn of(calls: u64, per_s: f64) -> Pace {
        Pace { per_s, calls, warm_up: 0 }
    }

    /// So many calls per second for so long.
    pub(super) fn lasting(per_s: f64, time: Duration) -> Pace {
        Pace::of((per_s * time.as_secs_f64()).round() as u64, per_s)
    }

    /// After the same load for so long, which is not measured.
    pub(super) fn after(self, warm_up: Duration) -> Pace {
        Pace { warm_up: Pace::lasting(self.per_s, warm_up).calls, ..self }
    }

    /// Batches that come to so many adds per second.
    pub(super) fn of_batches(adds_per_s: u64, time: Duration) -> Pace {
        Pace::lasting(adds_per_s as f64 / BATCH as f64, time)
    }

    /// Makes the calls, on a thread of its own: the runtime's timers tick in milliseconds. The first error ends it.
    pub(super) async fn run<F, Fut>(self, mut call: F) -> Result<Total>
    where
        F: FnMut(u64) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX as usize));
        let answered = Arc::new(Mutex::new(Answered { tally: Tally::new(), failed: None }));
        let (room, noted, runtime) = (under_way.clone(), answered.clone(), Handle::current());
        let began = Instant::now() + LEAD;
        let sender = tokio::task::spawn_blocking(move || {
            for number in 0..self.warm_up + self.calls {
                let due = began + Duration::from_secs_f64(number as f64 / self.per_s);
                let early = due.saturating_duration_since(Instant::now());
                if !early.is_zero() {
                    // And what comes due meanwhile: waking for each would take a core that the service needs.
                    std::thread::sleep(early.max(STEP));
                }
                let Ok(under_way) = runtime.block_on(room.clone().acquire_owned()) else { return };
                if lock(&noted).failed.is_some() {
                    return;
                }
                // A call is kilobytes, which spawning would move from place to place.
                let (made, noted) = (Box::pin(call(number)), noted.clone());
                runtime.spawn(async move {
                    let result = made.await;
                    let mut answered = lock(&noted);
                    match result {
                        Ok(()) if number < self.warm_up => {}
                        Ok(()) => answered.tally.note(1, due.elapsed()),
                        Err(error) => drop(answered.failed.get_or_insert(error)),
                    }
                    drop(under_way);
                });
            }
        });
        sender.await?;
        // The last ones.
        under_way.acquire_many(UNDER_WAY_MAX).await?.forget();
        let mut answered = lock(&answered);
        if let Some(error) = answered.failed.take() {
            return Err(error);
        }
        let tally = std::mem::replace(&mut answered.tally, Tally::new());
        if tally.messages != self.calls {
            return Err(anyhow!("{} calls were to be made, {} were answered", self.calls, tally.messages));
        }
        Ok(Total::since(began + Duration::from_secs_f64(self.warm_up as f64 / self.per_s), tally))
    }
}

fn lock(answered: &Mutex<Answered>) -> std::sync::MutexGuard<'_, Answered> {
    answered.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[tokio::test]
    async fn a_call_is_late_from_when_it_was_due() {
        let total = Pace::of(500, 10_000.0)
            .run(|number| async move {
                tokio::time::sleep(Duration::from_millis(if number == 0 { 300 } else { 0 })).await;
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(total.tally.messages, 500);
        assert!(total.elapsed >= Duration::from_millis(300));
        assert!(total.tally.quantile_ms(1.0).unwrap() >= 300.0);
    }

    #[tokio::test]
    async fn what_only_warms_up_is_not_measured() {
        let total = Pace { per_s: 10_000.0, calls: 500, warm_up: 500 }
            .run(|number| async move {
                tokio::time::sleep(Duration::from_millis(if number < 500 { 1_000 } else { 0 })).await;
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(total.tally.messages, 500);
        assert!(total.tally.quantile_ms(1.0).unwrap() < 1_000.0);
    }

    #[tokio::test]
    async fn the_first_error_is_told() {
        let failed = Pace::of(100, 10_000.0).run(|number| async move {
            if number == 3 {
                bail!("refused");
            }
            Ok(())
        });
        assert_eq!(failed.await.err().unwrap().to_string(), "refused");
    }
}
