//! The size and number of a comparison's requests, and the wait for the watermark.

use crate::connection::{Session, cli_error};
use crate::error::CliError;
use std::time::Duration;
use tallystone_client::{Found, Search};

/// Messages or transitions of one page.
pub(crate) const PAGE: u32 = 1_000;
/// How long to wait for the watermark.
const WAIT: Duration = Duration::from_secs(60);
/// Concurrent requests.
pub(crate) const AT_ONCE: usize = 16;
/// Messages of one id that the index shows and that are not gone: one, and perhaps earlier ones that should be gone.
const SAME_ID: u32 = 100;
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

/// What the index shows of one id that is not gone.
pub(crate) async fn of_id(queue: &str, id: &str, session: &Session) -> Result<Found, CliError> {
    let search = Search { queue: queue.to_owned(), id: id.to_owned(), page_size: SAME_ID, ..Search::default() };
    session.client.search_messages(search).await.map_err(|error| cli_error(&error))
}
