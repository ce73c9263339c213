//! Whether there is a queue of a name of which history shows nothing.

use crate::connection::{Session, cli_error};
use crate::error::CliError;
use tallystone_client::Search;

/// Fails with `QUEUE_NOT_FOUND`, and suggests the nearest name, if neither the server nor history has had the queue. For
/// verbs whose answer is empty: otherwise a mistyped name would look like a queue that is idle. Where the server has no
/// queues (an indexer, the file of an embedded store), or the caller may not read them, this is not known.
pub(crate) async fn check_known(queue: &str, session: &Session) -> Result<(), CliError> {
    let Err(error) = session.client.get_queue(queue).await else { return Ok(()) };
    if error.refused().is_none_or(|refused| refused.reason != "QUEUE_NOT_FOUND") {
        return Ok(());
    }
    // A deleted queue may still have messages in history.
    let search = Search { queue: queue.to_owned(), include_gone: true, page_size: 1, ..Search::default() };
    let found = session.client.search_messages(search).await.map_err(|error| cli_error(&error))?;
    if !found.messages.is_empty() {
        return Ok(());
    }
    session.call(queue, async { Err(error) }).await
}
