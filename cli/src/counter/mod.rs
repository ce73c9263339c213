//! `tallystone counter …`: one file per verb. Here is what they share: where the counters are, the token of an event, what
//! is said when a call fails, and how a count is shown.

mod add;
mod clear;
mod events;
mod get;
mod ls;
mod namespace;
mod ndjson;
mod watch;

use crate::config::nearest;
use crate::connection::{self, RETRY_FOR, server_url};
use crate::duration::{format_ago, format_time};
use crate::error::CliError;
use crate::history::parse_moment;
use crate::output::{Output, grouped};
use clap::{Args, Subcommand};
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_client::{Code, CounterClient, CounterType, Error, IdempotencyToken, Refused};

/// Counters or events asked for at once.
const PAGE_SIZE: u32 = 1_000;

#[derive(Args, Debug)]
pub(crate) struct CounterArgs {
    /// The server of counters to talk to
    #[arg(
        long = "counters",
        global = true,
        env = "TALLYSTONE_COUNTERS",
        value_name = "URL",
        default_value = "http://127.0.0.1:7610",
        hide_env_values = true
    )]
    server_of_counters: String,
    #[command(subcommand)]
    verb: CounterVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CounterVerb {
    /// Add to a counter, or to many as NDJSON; the same token counts once
    Add(add::AddArgs),
    /// Show counts, and up to when they are exact
    Get(get::GetArgs),
    /// Set a counter to zero
    Clear(clear::ClearArgs),
    /// Print a line whenever a count changes
    Watch(watch::WatchArgs),
    /// List the counters of a namespace, in no order
    Ls(ls::LsArgs),
    /// List what was added to a counter, one event at a time
    Events(events::EventsArgs),
    /// Make, change and look at namespaces
    #[command(subcommand)]
    Namespace(namespace::NamespaceVerb),
}

pub(crate) async fn run(args: CounterArgs, output: Output) -> Result<(), CliError> {
    let url = server_url(Some(&args.server_of_counters));
    let client = CounterClient::builder(url).retry_for(RETRY_FOR).connect().await;
    let session = &CounterSession { client: client.map_err(|error| cli_error(&error))?, output };
    match args.verb {
        CounterVerb::Add(args) => add::run(args, session).await,
        CounterVerb::Get(args) => get::run(args, session).await,
        CounterVerb::Clear(args) => clear::run(args, session).await,
        CounterVerb::Watch(args) => watch::run(args, session).await,
        CounterVerb::Ls(args) => ls::run(args, session).await,
        CounterVerb::Events(args) => events::run(args, session).await,
        CounterVerb::Namespace(verb) => namespace::run(verb, session).await,
    }
}

/// What a verb that talks to a server of counters works with.
pub(crate) struct CounterSession {
    client: CounterClient,
    output: Output,
}

impl CounterSession {
    /// Makes a call about a namespace; one that is not there is answered with one whose name is like it.
    async fn ask<T>(&self, namespace: &str, call: impl Future<Output = Result<T, Error>>) -> Result<T, CliError> {
        match call.await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explained(namespace, &error).await),
        }
    }

    async fn explained(&self, namespace: &str, error: &Error) -> CliError {
        let failure = cli_error(error);
        if error.refused().is_none_or(|refused| refused.reason != "NAMESPACE_NOT_FOUND") {
            return failure;
        }
        let there = self.client.list_namespaces().await.unwrap_or_default();
        let makes = format!("`tallystone counter namespace put {namespace}` makes it");
        failure.hint(match nearest(namespace, there.iter().map(|namespace| namespace.name.as_str())) {
            Some(near) => format!("did you mean '{near}'? {makes}"),
            None => makes,
        })
    }
}

/// Which namespace.
#[derive(Args, Debug)]
pub(crate) struct InNamespace {
    /// The namespace
    #[arg(long, env = "TALLYSTONE_NAMESPACE", value_name = "NAME", default_value = "default", hide_env_values = true)]
    namespace: String,
}

/// What makes an event one.
#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    /// What makes it one event, together with --at: sent again, it counts once [default: a new one]
    #[arg(long, requires = "at", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    token: Option<String>,
    /// When it happened: 2013-01-01T10:15:00.500Z, or 2s for that long ago [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    at: Option<u64>,
}

impl TokenArgs {
    fn is_given(&self) -> bool {
        self.token.is_some() || self.at.is_some()
    }

    /// Drawn here where it is not given, so that it can be said when the command has to be repeated.
    fn into_token(self) -> IdempotencyToken {
        match (self.token, self.at) {
            (Some(token), Some(at)) => IdempotencyToken::new(token, at),
            (None, Some(at)) => IdempotencyToken::drawn_for(at),
            (_, None) => IdempotencyToken::now(),
        }
    }
}

/// How a call that may have counted is repeated: by the token that it had.
fn repeat_hint(token: &IdempotencyToken) -> String {
    let at = format_time(token.generation_time_ms);
    format!("the same command with --token {} --at {at} counts once (but in a best-effort namespace)", token.token)
}

/// What a failed call means to the person at the keyboard.
fn cli_error(error: &Error) -> CliError {
    match error {
        Error::Refused(refused) => refusal(refused),
        Error::Connect { .. } => CliError::unavailable(error)
            .hint("`tallystone dev` starts counters here; --counters or TALLYSTONE_COUNTERS names another server"),
        Error::Unavailable { .. } | Error::Protocol(_) => connection::cli_error(error),
    }
}

/// What a refused call means.
fn refusal(refused: &Refused) -> CliError {
    if refused.code == Code::Unimplemented {
        return CliError::refused("this server has no counters")
            .hint("--counters or TALLYSTONE_COUNTERS names one that has");
    }
    let failure = CliError::refused(&refused.message).reason(refused.reason.clone());
    match refused.reason.as_str() {
        "TOO_OLD" => failure.hint(
            "its time is further back than the accept limit of `tallystone counter namespace get`; is the clock right?",
        ),
        "TOO_EARLY" => failure.hint("its time is ahead of the store's; is the clock right?"),
        "TOKEN_CONFLICT" => failure.hint("another event needs another token"),
        "NAMESPACE_CHANGED" => failure.hint("run the same command again"),
        _ => failure,
    }
}

/// -1234567 as `-1,234,567`.
fn count_text(count: i64) -> String {
    format!("{}{}", if count < 0 { "-" } else { "" }, grouped(count.unsigned_abs()))
}

/// How far a count can be relied on. `counter_type`: as far as it is known.
fn exactness(counter_type: Option<CounterType>, exact_to_ms: u64, now_ms: u64) -> String {
    match (counter_type, exact_to_ms) {
        (Some(CounterType::BestEffort), _) => "best effort".to_owned(),
        (Some(CounterType::Accurate), _) => "with all that was acknowledged".to_owned(),
        (Some(CounterType::Eventual), 0) => "not rolled up yet".to_owned(),
        (None, 0) => "not rolled up".to_owned(),
        (_, to_ms) => format!("exact to {}, {} ago", format_time(to_ms), format_ago(now_ms.saturating_sub(to_ms))),
    }
}

/// This machine's clock.
fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// A moment in a table; 0 is none.
fn time_or_nothing(ms: u64) -> String {
    if ms == 0 { String::new() } else { format_time(ms) }
}

#[cfg(test)]
mod tests;
