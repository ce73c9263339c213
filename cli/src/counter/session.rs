//! The connection of a verb to a counters server, and what its errors mean to the user.

use super::token::repeat_hint;
use crate::connection::{self, RETRY_FOR, checked, server_url};
use crate::error::CliError;
use crate::flag_names::in_flags;
use crate::global::Global;
use crate::nearest::nearest;
use crate::output::Output;
use clap::Args;
use tallystone_client::{Code, CounterClient, Error, IdempotencyToken, Refused};

/// What a verb needs: a client of the counters server, and the output.
pub(crate) struct CounterSession {
    pub(super) client: CounterClient,
    pub(super) output: Output,
}

impl CounterSession {
    /// Connects to a server, given as URL or HOST:PORT.
    pub(super) async fn connect(server: &str, global: &Global, output: Output) -> Result<CounterSession, CliError> {
        let builder = CounterClient::builder(server_url(Some(server))).retry_for(RETRY_FOR);
        let client = checked(global)?.apply(builder).connect().await;
        Ok(CounterSession { client: client.map_err(|error| cli_error(&error))?, output })
    }

    /// Makes a call about a namespace. If there is no such namespace, the error suggests the nearest name.
    pub(super) async fn call<T>(
        &self,
        namespace: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, CliError> {
        match call.await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explained(namespace, &error).await),
        }
    }

    /// Makes a call that writes the event of this token. If it may have been written, the error says how to repeat it.
    pub(super) async fn write<T>(
        &self,
        namespace: &str,
        token: &IdempotencyToken,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, CliError> {
        match call.await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let explained = self.explained(namespace, &error).await;
                Err(if error.is_unavailable() { explained.hint(repeat_hint(token)) } else { explained })
            }
        }
    }

    /// The error of a call about a namespace, with a hint.
    pub(super) async fn explained(&self, namespace: &str, error: &Error) -> CliError {
        let cli_error = cli_error(error);
        if error.refused().is_none_or(|refused| refused.reason != "NAMESPACE_NOT_FOUND") {
            return cli_error;
        }
        let namespaces = self.client.list_namespaces().await.unwrap_or_default();
        let create = format!("`tallystone counter namespace put {namespace}` creates it");
        cli_error.hint(match nearest(namespace, namespaces.iter().map(|namespace| namespace.name.as_str())) {
            Some(near) => format!("did you mean '{near}'? {create}"),
            None => create,
        })
    }
}

/// The namespace of the counters.
#[derive(Args, Debug)]
pub(super) struct InNamespace {
    /// The namespace
    #[arg(long, env = "TALLYSTONE_NAMESPACE", value_name = "NAME", default_value = "default", hide_env_values = true)]
    pub(super) namespace: String,
}

/// A failed call, for the user.
pub(super) fn cli_error(error: &Error) -> CliError {
    match error {
        Error::Refused(refused) => refusal(refused),
        Error::Connect { .. } => CliError::unavailable(error).hint(
            "`tallystone dev` starts a counters server here; --counters or TALLYSTONE_COUNTERS sets another address",
        ),
        Error::Unavailable { .. } | Error::Protocol(_) => connection::cli_error(error),
    }
}

/// A refused call, for the user.
pub(super) fn refusal(refused: &Refused) -> CliError {
    if refused.code == Code::Unimplemented {
        return CliError::refused("this server has no counters")
            .hint("--counters or TALLYSTONE_COUNTERS sets the address of a counters server");
    }
    let error = CliError::refused(in_flags(refused)).reason(refused.reason.clone()).metadata(refused.metadata.clone());
    match refused.reason.as_str() {
        "TOO_OLD" => error.hint(
            "the event is older than the namespace's accept limit (`tallystone counter namespace get`); is the clock right?",
        ),
        "TOO_EARLY" => error.hint("the event's time is ahead of the store's clock; is this machine's clock right?"),
        "TOKEN_CONFLICT" => error.hint("a new event, and a new recount, needs a new token"),
        "NOT_EXACT_YET" => error.hint(
            "counts are behind by the namespace's accept limit and about a second: allow more with --wait; do rollup workers run?",
        ),
        "EVENTS_DROPPED" => dropped(error),
        "POSITION_EXPIRED" => error.hint("without --after it begins with the oldest crossings that are kept; --after now: with those to come"),
        "COUNTER_CHANGED" => error.hint("run the same command again"),
        "COUNTER_NOT_FOUND" => error.hint("a new counter has its first count after the accept limit, the coalesce time and a few seconds"),
        "NAMESPACE_CHANGED" => error.hint("run the same command again"),
        _ => error,
    }
}

/// What to do about events that may have been dropped.
pub(super) fn dropped(error: CliError) -> CliError {
    error.hint(
        "--keep-count --adjust corrects the count without its events; --accept-dropped-events recounts those that are left",
    )
}
