//! The store's time, estimated by this process from the replies of the store.

use crate::refusal::Refusal;
use futures::future::join_all;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tallystone_link::{Clock, wall_ms};
use tallystone_model::Refusal as StoreRefusal;

/// A reply counts for one to two periods: clocks drift and are set.
const ESTIMATE_PERIOD: Duration = Duration::from_secs(10);

/// A reply carries the store's time when it was made. That is never ahead of the store's time when the reply arrives, and
/// the fastest of many replies is nearly exact.
pub(super) struct StoreClock {
    clock: Clock,
    began: Instant,
    estimates: Mutex<ClockEstimates>,
}

/// Estimates of the store's time at the start of this process, by the fastest reply of this period and of the previous one.
#[derive(Default)]
struct ClockEstimates {
    period: u64,
    best_ms: Option<u64>,
    before_ms: Option<u64>,
}

impl StoreClock {
    pub(super) fn new(clock: Clock) -> StoreClock {
        StoreClock { clock, began: Instant::now(), estimates: Mutex::default() }
    }

    /// Takes in the time that a reply carries.
    pub(super) fn observe(&self, now_ms: u64) {
        let since = self.began.elapsed();
        let period = since.as_secs() / ESTIMATE_PERIOD.as_secs();
        let begin_ms = now_ms.saturating_sub(since.as_millis() as u64);
        let mut estimates = self.estimates.lock().unwrap_or_else(PoisonError::into_inner);
        if estimates.period != period {
            let before_ms = if period == estimates.period + 1 { estimates.best_ms } else { None };
            *estimates = ClockEstimates { period, best_ms: None, before_ms };
        }
        estimates.best_ms = estimates.best_ms.max(Some(begin_ms));
    }

    /// The store's time, in Unix ms; before the first reply, this machine's time.
    pub(super) fn now_ms(&self) -> u64 {
        if let test @ Clock::Test(_) = &self.clock {
            return test.argument();
        }
        let estimates = self.estimates.lock().unwrap_or_else(PoisonError::into_inner);
        match estimates.best_ms.max(estimates.before_ms) {
            Some(begin_ms) => begin_ms + self.began.elapsed().as_millis() as u64,
            None => wall_ms(),
        }
    }
}

/// The store's time for what cannot be undone, in Unix ms: the earliest that partitions of the store have answered, each compared
/// with this process's time. One that is unavailable holds up no other.
///
/// # Errors
/// [`Refusal::ClockSkew`]: one of them differs by more than the bound (X6).
pub(super) async fn earliest_ms(
    answers: impl Iterator<Item = impl Future<Output = Result<u64, StoreRefusal>>>,
) -> Result<u64, Refusal> {
    let (mut earliest_ms, mut failed) = (None, None);
    for answer in join_all(answers).await {
        match answer {
            Ok(ms) => earliest_ms = Some(earliest_ms.map_or(ms, |earliest_ms: u64| earliest_ms.min(ms))),
            Err(skew @ StoreRefusal::ClockSkew { .. }) => return Err(skew.into()),
            Err(error) => failed = Some(error),
        }
    }
    match (earliest_ms, failed) {
        (Some(ms), _) => Ok(ms),
        (None, Some(error)) => Err(error.into()),
        (None, None) => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use tallystone_model::Applied;

    /// Nothing is deleted by a clock that is wrong, and none that is ahead decides alone.
    #[tokio::test]
    async fn x6_the_earliest_right_time_decides_and_a_wrong_clock_forbids() {
        let away = || Err(StoreRefusal::Unavailable { applied: Applied::No, why: "away".to_owned() });
        let skew = || Err(StoreRefusal::ClockSkew { offset_ms: 691_200_000, skew_max_ms: 5_000 });
        let earliest =
            async |answers: Vec<Result<u64, StoreRefusal>>| earliest_ms(answers.into_iter().map(ready)).await;
        assert_eq!(earliest(vec![Ok(7), away(), Ok(5), Ok(6)]).await, Ok(5));
        assert!(matches!(earliest(vec![Ok(7), skew(), away()]).await, Err(Refusal::ClockSkew { .. })));
        assert!(matches!(earliest(vec![away(), away()]).await, Err(Refusal::Unavailable { .. })));
    }
}
