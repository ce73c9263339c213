//! A rate with a burst of one second, by the clock of tokio, which tests can move.

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A number of tokens per second.
pub(super) struct Rate {
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Instant>>,
}

#[derive(Clone, Debug, Default)]
struct TokioClock;

impl Clock for TokioClock {
    type Instant = Instant;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Rate {
    pub(super) fn new(per_s: u32) -> Rate {
        let quota = Quota::per_second(NonZeroU32::new(per_s).unwrap_or(NonZeroU32::MIN));
        Rate { limiter: RateLimiter::direct_with_clock(quota, TokioClock) }
    }

    /// One token, or how long until there is one.
    pub(super) fn take(&self) -> Result<(), Duration> {
        self.limiter.check().map_err(|not_until| not_until.wait_time_from(TokioClock.now()))
    }
}
