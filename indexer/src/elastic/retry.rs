//! Repeats reads for a moment while a shard starts. A new index, such as that of each new day, is visible before its
//! shards have started.

use crate::store::HistoryError;
use backon::{ExponentialBuilder, Retryable};
use std::time::Duration;

/// The server's errors while one shard, or every shard of a search, has not started.
const SHARD_STARTS: [&str; 2] = ["no_shard_available_action_exception", "503 search_phase_execution_exception"];
/// Together some three seconds.
const RETRIES_MAX: usize = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Runs `read` again while it fails because a shard starts.
pub(super) async fn retry_while_shards_start<T, A>(read: impl FnMut() -> A) -> Result<T, HistoryError>
where
    A: Future<Output = Result<T, HistoryError>>,
{
    let shard_starts = |error: &HistoryError| match error {
        HistoryError::Unavailable(why) => SHARD_STARTS.iter().any(|kind| why.contains(kind)),
        HistoryError::Failed(_) => false,
    };
    let pauses = ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_times(RETRIES_MAX);
    read.retry(pauses).when(shard_starts).await
}
