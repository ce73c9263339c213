//! The size and number of a comparison's requests, and the wait for the watermark.

use crate::connection::{Session, cli_error};
use crate::error::CliError;
use std::time::Duration;

/// Messages or transitions of one page.
pub(crate) const PAGE: u32 = 1_000;
/// How long to wait for the watermark.
const WAIT: Duration = Duration::from_secs(60);
/// Concurrent requests.
pub(crate) const AT_ONCE: usize = 16;
/// A message, and the index of its queue in the list.
pub(crate) type Suspect = (usize, String);

/// Waits until the index has all that has happened until now.
pub(crate) async fn caught_up(session: &Session) -> Result<(), CliError> {
    match session.client.history_caught_up(WAIT).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(CliError::unavailable(format!("the index has not caught up with the queue within {WAIT:?}"))
            .hint("are the relay and the indexer running? /metrics says how far behind they are")),
        Err(error) => Err(cli_error(&error)),
    }
}
