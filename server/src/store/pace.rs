//! How fast indexes that were not declared are built (S1). A caller who filters by other keys each time must not take the
//! time of Redis from the others: one step of a build at a time, at the full rate as long as there is credit, then slowly.

use metrics::{Gauge, describe_gauge, gauge};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The time of Redis that such builds may take at once: enough for an index over a million messages.
const CREDIT_S_MAX: f64 = 10.0;
/// The share of the time that they may take in the long run.
const SHARE: f64 = 0.1;

const BUILDS: &str = "tallystone_index_builds";

/// What a background build does at the moment.
#[derive(Clone, Copy)]
pub(super) enum BuildState {
    /// It takes a step.
    Running,
    /// Another build of an undeclared index takes a step.
    Waiting,
    /// It has taken its share of the time of Redis.
    Pausing,
}

/// Counts a build in the metrics as long as it is in one state.
pub(super) struct InState(Gauge);

impl BuildState {
    pub(super) fn enter(self) -> InState {
        // Every time: the store is open before the recorder of metrics.
        describe_gauge!(BUILDS, "background builds of filter indexes, by state");
        let name = match self {
            BuildState::Running => "running",
            BuildState::Waiting => "waiting",
            BuildState::Pausing => "pausing",
        };
        let gauge = gauge!(BUILDS, "state" => name);
        gauge.increment(1.0);
        InState(gauge)
    }
}

impl Drop for InState {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The pace of one server.
pub(super) struct Pace {
    turn: Semaphore,
    credit: Mutex<Credit>,
}

/// What is left, as of a time; negative: a pause has to earn it.
struct Credit {
    left_s: f64,
    at: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Pace { turn: Semaphore::new(1), credit: Mutex::new(Credit { left_s: CREDIT_S_MAX, at: Instant::now() }) }
    }

    /// Waits until no other build takes a step, and keeps others out until the permit is dropped. Those that wait get it in
    /// order.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        self.turn.acquire().await.expect("never closed")
    }

    /// A step took so long: the pause of its build before the next. What several builds have taken adds up, so their pauses do,
    /// too, and together they keep to the share.
    pub(super) fn pause(&self, took: Duration) -> Duration {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner).spend(took, Instant::now())
    }
}

impl Credit {
    fn spend(&mut self, took: Duration, now: Instant) -> Duration {
        let earned_s = now.saturating_duration_since(self.at).as_secs_f64() * SHARE;
        self.at = now;
        self.left_s = (self.left_s + earned_s).min(CREDIT_S_MAX) - took.as_secs_f64();
        Duration::from_secs_f64((-self.left_s).max(0.0) / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 10 ms one after another; returns how many ran within the time.
    fn steps(credit: &mut Credit, now: &mut Instant, within: Duration) -> u32 {
        const STEP: Duration = Duration::from_millis(10);
        let (end, mut steps) = (*now + within, 0);
        while *now < end {
            *now += STEP;
            *now += credit.spend(STEP, *now);
            steps += 1;
        }
        steps
    }

    #[test]
    fn s1_builds_that_take_turns_keep_to_one_share_together() {
        const STEP: Duration = Duration::from_millis(10);
        let begin = Instant::now();
        let mut credit = Credit { left_s: 0.0, at: begin };
        // When each of them takes its next step. One step at a time.
        let (mut builds, mut now) = ([begin; 8], begin);
        let mut steps = [0_u32; 8];
        while now < begin + Duration::from_secs(200) {
            let (build, at) = builds.iter().copied().enumerate().min_by_key(|(_, at)| *at).expect("eight");
            now = now.max(at) + STEP;
            builds[build] = now + credit.spend(STEP, now);
            steps[build] += 1;
        }
        assert!((1_900..=2_100).contains(&steps.iter().sum::<u32>()), "{steps:?} steps of 10 ms in 200 s");
        assert!(steps.iter().all(|taken| (200..=300).contains(taken)), "each has its turn: {steps:?}");
    }

    #[test]
    fn s1_builds_run_at_full_rate_at_first_and_then_take_a_small_share() {
        let mut now = Instant::now();
        let mut credit = Credit { left_s: CREDIT_S_MAX, at: now };
        let first = steps(&mut credit, &mut now, Duration::from_secs(10));
        assert_eq!(first, 1_000, "a build has all of the first ten seconds");
        let second = steps(&mut credit, &mut now, Duration::from_secs(100));
        assert!((1_000..=1_200).contains(&second), "{second} steps of 10 ms in 100 s");
        let third = steps(&mut credit, &mut now, Duration::from_secs(100));
        assert!((950..=1_050).contains(&third), "{third} steps of 10 ms in 100 s");
        now += Duration::from_secs(1_000);
        assert_eq!(steps(&mut credit, &mut now, Duration::from_secs(10)), 1_000, "a pause gives the credit back");
    }
}
