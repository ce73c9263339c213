//! How often callers that may not wait get a try at what is runnable.

use std::time::Duration;
use tokio::time::Instant;

/// Callers that may not wait, but get what is runnable, in each [`TRIES_EVERY`]. More of them are refused without
/// a call of the store: otherwise callers with ever other filters would cost the queue as much as if they waited.
pub(super) const TRIES_MAX: u32 = 16;
pub(super) const TRIES_EVERY: Duration = Duration::from_millis(100);

/// The callers of the current interval that would not be allowed to wait.
#[derive(Default)]
pub(super) struct Tries {
    began: Option<Instant>,
    number: u32,
}

impl Tries {
    /// Whether one more may try now.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| began + TRIES_EVERY <= now) {
            *self = Tries { began: Some(now), number: 0 };
        }
        self.number += 1;
        self.number <= TRIES_MAX
    }
}
