//! `tallystone counter clear COUNTER`

use super::session::{CounterSession, InNamespace};
use super::token::TokenArgs;
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
    let (namespace, token) = (args.within.namespace, args.token.into_token());
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
