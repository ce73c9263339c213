//! The times at which a lane acts without a command.

use super::waiting::Retry;
use rand::Rng;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A lane without work and without waiters ends after this long.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// Waiters are requested from the store again after this long (up to twice that, at random), even without a signal: well
/// before the mark of this server ends in the store. A lost notification is found sooner, by the store's own checks.
const SAFETY: Duration = Duration::from_secs(6 * 3_600);
/// The first delay before a retry when the store does not answer, or builds an index. It doubles with each retry.
const RETRY_MIN: Duration = Duration::from_millis(25);
/// The longest delay before a retry.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How often a lane checks for a subscription whether its queue is still paused. (An UpdateQueue on this server wakes the
/// lane at once.)
const PAUSED: Duration = Duration::from_secs(2);

/// All of them but `idle_at` matter only while callers wait.
pub(super) struct Timers {
    /// The next invisibility or lease ends.
    pub(super) due_at: Option<Instant>,
    retry_at: Option<Instant>,
    retries: u32,
    safety_at: Instant,
    idle_at: Instant,
}

/// Which times have come.
pub(super) struct Fired {
    /// Call the store for one waiter.
    pub(super) signal: bool,
    /// The lane has had no work for [`IDLE`].
    pub(super) idle: bool,
}

impl Timers {
    pub(super) fn new(now: Instant) -> Self {
        Timers { due_at: None, retry_at: None, retries: 0, safety_at: now + SAFETY, idle_at: now + IDLE }
    }

    /// The lane sends a flush.
    pub(super) fn flushed(&mut self, with_dequeue: bool, now: Instant) {
        self.idle_at = now + IDLE;
        if with_dequeue {
            self.safety_at = now + SAFETY.mul_f64(rand::rng().random_range(1.0..2.0));
        }
    }

    /// Sets the timer to the next of these times. It may fire early, never late.
    pub(super) fn arm(&self, timer: Pin<&mut Sleep>, expire_at: Option<Instant>, waiters: bool) {
        let next = match waiters {
            false => self.idle_at,
            true => {
                let times = [self.due_at, self.retry_at, expire_at];
                times.into_iter().flatten().fold(self.safety_at, Instant::min)
            }
        };
        if next < timer.deadline() {
            timer.reset(next);
        }
    }

    /// Takes the times that have come, and sets them again where they repeat.
    pub(super) fn fire(&mut self, now: Instant) -> Fired {
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        let mut signal = is_due(&mut self.due_at) | is_due(&mut self.retry_at);
        if self.safety_at <= now {
            self.safety_at = now + SAFETY;
            signal = true;
        }
        let idle = self.idle_at <= now;
        if idle {
            self.idle_at = now + IDLE;
        }
        Fired { signal, idle }
    }

    /// Schedules the next retry after a temporary refusal, each one later than the last.
    pub(super) fn retry(&mut self, retry: Option<Retry>, now: Instant) {
        let delay = match retry {
            // A scheduled retry stays scheduled: it may be that of another group.
            None => {
                self.retries = 0;
                return;
            }
            Some(Retry::Soon) => (RETRY_MIN * 2_u32.saturating_pow(self.retries)).min(RETRY_MAX),
            Some(Retry::Paused) => PAUSED,
        };
        self.retries = (self.retries + 1).min(16);
        self.retry_at = Some(now + delay.mul_f64(rand::rng().random_range(0.5..1.5)));
    }
}
