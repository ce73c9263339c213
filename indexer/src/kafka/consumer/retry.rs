//! Retries with growing pauses, for as long as the outage lasts.

use backon::{ExponentialBuilder, Retryable};
use std::time::Duration;

/// The first and the longest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Repeats `attempt` until it succeeds, or fails with an error that is not transient. `problem` says in the log what
/// does not work.
pub(super) async fn retry_while<T, E: std::fmt::Display, F: Future<Output = Result<T, E>>>(
    problem: &str,
    attempt: impl FnMut() -> F,
    is_transient: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .without_max_times()
        .with_jitter();
    let mut failures = 0_u32;
    attempt
        .retry(pauses)
        .when(is_transient)
        .notify(|error, pause| {
            failures += 1;
            // One warning per outage. A single failure may be harmless, and the rest would flood the log.
            if failures == 2 {
                tracing::warn!(%error, "{problem}; retrying until it succeeds");
            } else {
                tracing::debug!(%error, ?pause, "{problem}");
            }
        })
        .await
}
