//! How many reads of old events this process has under way at the store: more while it answers quickly, fewer while it does not, so that
//! adds do not wait for audits (N12; the seed's dynamic batching).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// Reads under way: at the start, and at most. There is always one.
const START: usize = 4;
pub(super) const MAX: usize = 16;
/// An answer is slow if it takes so many times as long as a quick one, and a millisecond more.
const SLOW: f64 = 3.0;
const SLACK_S: f64 = 1e-3;
/// The time of a quick answer rises by this factor each second, until a quicker one comes: the store may have become slower for good.
const FORGET: f64 = 1.01;
/// Where one read at a time still makes answers slow, each is followed by a rest. It lasts so many times as long as the answer took, at least
/// and at most.
const REST_MIN: f64 = 1.0;
const REST_MAX: f64 = 16.0;
/// After so many quick answers, the rests become half as long.
const QUICK_MIN: usize = 8;

/// Shared by all reads of old events in this process.
pub(super) struct Pace {
    /// One for each read that may be under way.
    places: Semaphore,
    state: Mutex<State>,
}

struct State {
    at_once: usize,
    /// The length of a rest, in times of the answer before it; 0: there are none.
    rest: f64,
    /// No read begins before this.
    rests_until: Instant,
    /// Quick answers since the last change.
    quick: usize,
    /// How long a quick answer takes, in seconds, as of the last one.
    quick_s: f64,
    last: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        let state = State { at_once: START, rest: 0.0, rests_until: now, quick: 0, quick_s: f64::INFINITY, last: now };
        Pace { places: Semaphore::new(START), state: Mutex::new(state) }
    }
}

impl Pace {
    /// Waits for a place, and reads.
    pub(super) async fn read<T>(&self, read: impl Future<Output = T>) -> T {
        // It is never closed, so there always is a place.
        let place = self.places.acquire().await.ok();
        let rests_until = self.state.lock().unwrap_or_else(PoisonError::into_inner).rests_until;
        sleep_until(rests_until).await;
        let began = Instant::now();
        let done = read.await;
        self.answered(place, Instant::now(), began.elapsed());
        done
    }

    /// After a slow answer its place is given up, or the rests become longer; after some quick ones they become shorter, or there is
    /// one place more.
    fn answered(&self, place: Option<SemaphorePermit<'_>>, now: Instant, after: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let took_s = after.as_secs_f64();
        let is_slow = took_s > SLOW * state.quick_s + SLACK_S;
        let forgotten = FORGET.powf(now.saturating_duration_since(state.last).as_secs_f64());
        (state.quick_s, state.last) = ((state.quick_s * forgotten).min(took_s), now);
        state.quick = if is_slow { 0 } else { state.quick + 1 };
        if is_slow && state.at_once > 1 {
            state.at_once -= 1;
            place.into_iter().for_each(SemaphorePermit::forget);
        } else if is_slow {
            state.rest = (state.rest * 2.0).clamp(REST_MIN, REST_MAX);
        } else if state.rest > 0.0 && state.quick >= QUICK_MIN {
            state.rest = if state.rest > REST_MIN { state.rest / 2.0 } else { 0.0 };
            state.quick = 0;
        } else if state.rest == 0.0 && state.quick >= state.at_once && state.at_once < MAX {
            (state.at_once, state.quick) = (state.at_once + 1, 0);
            self.places.add_permits(1);
        }
        state.rests_until = now + after.mul_f64(state.rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers after so many ms, one after the other.
    fn answers(pace: &Pace, ms: f64, count: usize) {
        for _ in 0..count {
            let place = pace.places.try_acquire().ok();
            assert!(place.is_some(), "there is always a place");
            let after = Duration::from_secs_f64(ms / 1e3);
            let now = pace.state.lock().unwrap().last + after;
            pace.answered(place, now, after);
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
        answers(&pace, 10.0, MAX - 1);
        assert_eq!(pace.places.available_permits(), 1);
        answers(&pace, 1.0, 3);
        assert_eq!(pace.places.available_permits(), 3);
    }

    #[test]
    fn n12_while_one_read_at_a_time_is_slow_there_are_rests() {
        let pace = Pace::default();
        let rest = || {
            let state = pace.state.lock().unwrap();
            (state.rest, state.rests_until.saturating_duration_since(state.last).as_millis())
        };
        answers(&pace, 1.0, 1);
        answers(&pace, 10.0, START - 1);
        assert_eq!((pace.places.available_permits(), rest()), (1, (0.0, 0)));
        answers(&pace, 10.0, 3);
        assert_eq!(rest(), (4.0, 40));
        answers(&pace, 10.0, 9);
        assert_eq!(rest(), (REST_MAX, 160));
        answers(&pace, 1.0, 5 * QUICK_MIN);
        assert_eq!((pace.places.available_permits(), rest()), (1, (0.0, 0)));
        answers(&pace, 1.0, 1);
        assert_eq!(pace.places.available_permits(), 2);
    }

    #[test]
    fn n12_a_store_that_stays_slow_becomes_the_usual_one() {
        let pace = Pace::default();
        answers(&pace, 1.0, 10);
        // Two minutes, in which the usual time grows to a third.
        answers(&pace, 10.0, 12_000 + 5 * QUICK_MIN + MAX * START);
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
