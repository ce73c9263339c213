//! Memberships one after the other, until they are stopped.

use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The first and the longest pause before the group is joined again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Joins a group again whenever a membership has failed, until the token is cancelled or one ends without a failure. `membership`
/// is one of them: how it has ended, and whether it has written anything, so that Kafka works. `failed` gets each failure before the
/// pause.
///
/// # Errors
/// The first error of `failed`.
pub async fn repeat_membership<F, E, X>(
    stopping: &CancellationToken,
    mut membership: impl FnMut() -> F,
    mut failed: impl FnMut(E) -> Result<(), X>,
) -> Result<(), X>
where
    F: Future<Output = (Result<(), E>, bool)>,
{
    let mut pause = PAUSE_MIN;
    while !stopping.is_cancelled() {
        let (ended, has_committed) = membership().await;
        let Err(failure) = ended else { return Ok(()) };
        failed(failure)?;
        if has_committed {
            pause = PAUSE_MIN;
        }
        let _ = stopping.run_until_cancelled(sleep(pause)).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
    Ok(())
}
