//! The connection of a verb to the server, and what is said when a call fails.

use crate::error::CliError;
use crate::flag_names::in_flags;
use crate::global::Global;
use crate::nearest::nearest;
use crate::output::Output;
use std::time::Duration;
use tallystone_assembly::ClientConfig;
use tallystone_client::{Client, Code, Error, QueueSummary, Refused};

const DEFAULT_SERVER: &str = "http://127.0.0.1:7600";
/// A person waits at the other end; programs repeat the command, which is safe.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(5);
/// Queues of one page.
const PAGE_SIZE: u32 = 1_000;

/// What a verb that talks to a server works with.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) output: Output,
}

impl Session {
    pub(crate) async fn connect(global: &Global, output: Output) -> Result<Session, CliError> {
        let url = server_url(global.named_server().as_deref());
        let credentials = checked(global)?;
        let client = credentials.apply(Client::builder(&url).retry_for(RETRY_FOR)).connect().await;
        Ok(Session { client: client.map_err(|error| cli_error(&error))?, output })
    }

    /// Makes a call about a queue. If there is no such queue, the error suggests the nearest name.
    pub(crate) async fn call<T>(
        &self,
        queue: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, CliError> {
        let error = match call.await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let failure = cli_error(&error);
        if error.refused().is_none_or(|refused| refused.reason != "QUEUE_NOT_FOUND") {
            return Err(failure);
        }
        let Ok(page) = self.client.list_queues("", PAGE_SIZE, "").await else { return Err(failure) };
        Err(match nearest(queue, page.items.iter().map(|summary| summary.queue.name.as_str())) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => {
                failure.hint(format!("`tallystone queue create {queue}` creates it; `tallystone queue ls` lists all"))
            }
        })
    }

    /// All queues whose names begin so.
    pub(crate) async fn queues(&self, prefix: &str) -> Result<Vec<QueueSummary>, CliError> {
        let (mut queues, mut page_token) = (Vec::new(), String::new());
        loop {
            let page =
                self.client.list_queues(prefix, PAGE_SIZE, &page_token).await.map_err(|error| cli_error(&error))?;
            queues.extend(page.items);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(queues);
            }
        }
    }
}

/// The credentials of this command.
pub(crate) fn checked(global: &Global) -> Result<ClientConfig, CliError> {
    let credentials = global.credentials.config();
    credentials.check().map_err(|error| CliError::usage(error).hint("--cert and --key belong together"))?;
    Ok(credentials)
}

/// The server's address. The client adds `http://` where it is only host and port.
pub(crate) fn server_url(given: Option<&str>) -> String {
    given.unwrap_or(DEFAULT_SERVER).to_owned()
}

/// What a failed call means to the person at the keyboard.
pub(crate) fn cli_error(error: &Error) -> CliError {
    match error {
        Error::Refused(refused) => refusal(refused),
        Error::Connect { .. } => CliError::unavailable(error)
            .hint("`tallystone dev` starts a server here; --server or TALLYSTONE_SERVER sets another address"),
        Error::Unavailable { .. } => CliError::unavailable(error).hint("it is safe to run the same command again"),
        Error::Protocol(_) => CliError::unavailable(error).hint("is this a Tallystone server of the same version?"),
    }
}

/// What a refused call or item means.
pub(crate) fn refusal(refused: &Refused) -> CliError {
    if refused.code == Code::Unimplemented {
        return CliError::refused("this server does not have the requested service").hint(
            "for history, start the server with --history-file or --elasticsearch-url; for queues, use the address of a server, not of an indexer",
        );
    }
    let failure = CliError::refused(in_flags(refused)).reason(refused.reason.clone());
    match refused.reason.as_str() {
        "NO_CREDENTIAL" => failure.hint("--token-file FILE sends a token; --cert and --key show a certificate"),
        "NO_RIGHT" => failure.hint("`tallystone auth check` on the server's machine explains which rule decides"),
        "QUEUE_NOT_EMPTY" => failure.hint(
            "`tallystone queue purge` removes its messages; `tallystone queue delete --force` also removes the queue",
        ),
        "QUEUE_EXISTS" => {
            failure.hint("`tallystone queue describe` shows its configuration, `tallystone queue update` changes it")
        }
        "DEQUEUE_BLOCKED" => failure.hint("`tallystone queue resume` ends the pause"),
        "ENQUEUE_BLOCKED" => {
            failure.hint("`tallystone queue update --enqueue-blocked false` allows new messages again")
        }
        "QUEUE_FULL" => failure.hint("`tallystone queue update --max-depth` changes the limit"),
        "OUTBOX_FULL" => failure
            .hint("history is too slow or unavailable: see `tallystone_outbox_*` and `tallystone_relay_*` in /metrics"),
        "STORE_FULL" => {
            failure.hint("give Redis more room, memory (maxmemory) or disk, or purge messages that are not needed")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_no_scheme() {
        assert_eq!(server_url(None), DEFAULT_SERVER);
        assert_eq!(server_url(Some("db:7600")), "db:7600");
        assert_eq!(server_url(Some("https://db:7600")), "https://db:7600");
    }
}
