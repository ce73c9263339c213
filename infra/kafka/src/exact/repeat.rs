//! Memberships one after the other, until they are stopped.

use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The first and the longest pause before the group is joined again.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A member of a group, from when it has joined until it leaves.
pub trait Membership: Sized {
    /// Why one ends early.
    type Error;

    /// Works until the token is cancelled.
    fn run(&mut self, stopping: &CancellationToken) -> impl Future<Output = Result<(), Self::Error>>;

    /// Whether it has written anything, so that Kafka works.
    fn has_committed(&self) -> bool;

    /// Leaves the group.
    fn leave(self);
}

/// Joins a group again whenever a membership has failed, until the token is cancelled or one ends without a failure. `failed` gets
/// each failure before the pause.
///
/// # Errors
/// The first error of `failed`.
pub async fn repeat_membership<M: Membership, X>(
    stopping: &CancellationToken,
    mut join: impl FnMut() -> Result<M, M::Error>,
    mut failed: impl FnMut(M::Error) -> Result<(), X>,
) -> Result<(), X> {
    let mut pause = PAUSE_MIN;
    while !stopping.is_cancelled() {
        let (ended, has_committed) = match join() {
            Ok(member) => member_until_its_end(member, stopping).await,
            Err(failure) => (Err(failure), false),
        };
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

/// One membership: how it has ended, and whether it has written anything.
async fn member_until_its_end<M: Membership>(
    mut member: M,
    stopping: &CancellationToken,
) -> (Result<(), M::Error>, bool) {
    let ended = member.run(stopping).await;
    let has_committed = member.has_committed();
    member.leave();
    (ended, has_committed)
}
