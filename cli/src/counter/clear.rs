//! `tallystone counter clear COUNTER`

use super::session::{CounterSession, InNamespace};
use super::text::{CountDryRun, count_text};
use super::token::TokenArgs;
use crate::consent::Consent;
use crate::duration::format_time;
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use tallystone_client::{Cleared, IdempotencyToken, NewClear};

#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
    /// The counter
    counter: String,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    within: InNamespace,
    #[command(flatten)]
    consent: Consent,
}

/// A clear and its outcome.
#[derive(Serialize)]
struct Outcome<'a> {
    counter: &'a str,
    #[serde(flatten)]
    token: &'a IdempotencyToken,
    #[serde(flatten)]
    cleared: Cleared,
}

pub(crate) async fn run(args: ClearArgs, session: &CounterSession) -> Result<(), CliError> {
    let namespace = args.within.namespace;
    let count = if args.consent.shows_number() { count(&args.counter, &namespace, session).await? } else { None };
    let from = count.map_or_else(String::new, |count| format!(", from {}", count_text(count)));
    let what = format!("Set {} of {namespace} to zero{from}", args.counter);
    let dry_run = CountDryRun { counter: &args.counter, dry_run: true, count };
    if !args.consent.given_for(&what, &dry_run, session.output)? {
        return Ok(());
    }
    // Made now: what was added while a person decided is cleared, too.
    let token = args.token.into_token();
    let clear = NewClear::new(&args.counter).token(token.clone());
    let cleared = session.write(&namespace, &token, session.client.clear(&namespace, clear)).await?;
    let outcome = Outcome { counter: &args.counter, token: &token, cleared };
    session.output.one(&outcome, |outcome| {
        let before = if cleared.duplicate { " It was cleared before." } else { "" };
        match cleared.event_time_ms {
            0 => format!("{} is zero.{before}", visible(outcome.counter)),
            ms => format!(
                "{} is cleared: adds up to {} no longer count.{before}",
                visible(outcome.counter),
                format_time(ms)
            ),
        }
    })
}

/// `None`: no rollup has counted anything yet.
async fn count(counter: &str, namespace: &str, session: &CounterSession) -> Result<Option<i64>, CliError> {
    match session.call(namespace, session.client.get(namespace, counter)).await {
        Ok(counted) => Ok(Some(counted.count)),
        Err(error) if error.reason.as_deref() == Some("COUNTER_NOT_FOUND") => Ok(None),
        Err(error) => Err(error),
    }
}
