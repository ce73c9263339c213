//! How many reads of old events this process has under way at the store: more while it answers quickly, fewer while it does not, so that
//! adds do not wait for audits (N12; the seed's dynamic batching).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Reads under way: at the start, and at most. There is always one.
const START: usize = 4;
pub(super) const MAX: usize = 16;
/// An answer is slow if it takes longer than this factor times a quick one, plus a millisecond.
const SLOW: f64 = 3.0;
const SLACK_S: f64 = 1e-3;
/// The time of a quick answer rises by this factor with each answer, until a quicker one comes: the store may have become slower for good.
const FORGET: f64 = 1.01;

/// Shared by all reads of old events in this process.
pub(super) struct Pace {
    /// One for each read that may be under way.
    places: Semaphore,
    state: Mutex<State>,
}

struct State {
    at_once: usize,
    /// Quick answers since the last change.
    quick: usize,
    /// How long a quick answer takes, in seconds.
    quick_s: f64,
}

impl Default for Pace {
    fn default() -> Self {
        let state = State { at_once: START, quick: 0, quick_s: f64::INFINITY };
        Pace { places: Semaphore::new(START), state: Mutex::new(state) }
    }
}

impl Pace {
    /// Waits for a place, and reads.
    pub(super) async fn read<T>(&self, read: impl Future<Output = T>) -> T {
        // It is never closed, so there always is a place.
        let place = self.places.acquire().await.ok();
        let began = Instant::now();
        let done = read.await;
        self.answered(place, began.elapsed());
        done
    }

    /// After a slow answer its place is given up; after as many quick ones as there are places, there is one more.
    fn answered(&self, place: Option<SemaphorePermit<'_>>, after: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let took_s = after.as_secs_f64();
        let is_slow = took_s > SLOW * state.quick_s + SLACK_S;
        state.quick_s = (state.quick_s * FORGET).min(took_s);
        if is_slow {
            state.quick = 0;
            if state.at_once > 1 {
                state.at_once -= 1;
                place.into_iter().for_each(SemaphorePermit::forget);
            }
            return;
        }
        state.quick += 1;
        if state.quick >= state.at_once && state.at_once < MAX {
            (state.at_once, state.quick) = (state.at_once + 1, 0);
            self.places.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This number of answers, one after the other, each after this many ms.
    fn answers(pace: &Pace, ms: f64, count: usize) {
        for _ in 0..count {
            let place = pace.places.try_acquire().ok();
            assert!(place.is_some(), "there is always a place");
            pace.answered(place, Duration::from_secs_f64(ms / 1e3));
        }
    }

    #[test]
    fn n12_quick_answers_add_places_and_slow_ones_take_them() {
        let pace = Pace::default();
        assert_eq!(pace.places.available_permits(), START);
        answers(&pace, 1.0, START);
        assert_eq!(pace.places.available_permits(), START + 1);
        answers(&pace, 1.0, 1_000);
        assert_eq!(pace.places.available_permits(), MAX);
        answers(&pace, 10.0, MAX + 10);
        assert_eq!(pace.places.available_permits(), 1);
        answers(&pace, 1.0, 3);
        assert_eq!(pace.places.available_permits(), 3);
    }

    #[test]
    fn n12_a_store_that_stays_slow_becomes_the_usual_one() {
        let pace = Pace::default();
        answers(&pace, 1.0, 10);
        answers(&pace, 10.0, 300);
        assert!(pace.places.available_permits() > START);
    }

    #[tokio::test]
    async fn n12_a_read_that_is_given_up_returns_its_place() {
        let pace = Pace::default();
        let given_up = async { tokio::time::timeout(Duration::ZERO, pace.read(std::future::pending::<()>())).await };
        given_up.await.expect_err("it never ends");
        assert_eq!(pace.places.available_permits(), START);
        assert_eq!(pace.read(async { 7 }).await, 7);
    }
}
