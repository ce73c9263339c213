//! `tallystone counter delete COUNTER`

use super::session::{CounterSession, InNamespace};
use super::text::{CountDryRun, count_text};
use super::token::TokenArgs;
use crate::consent::Consent;
use crate::duration::format_time;
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use tallystone_client::{IdempotencyToken, NewClear};

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The counter
    counter: String,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    within: InNamespace,
    #[command(flatten)]
    consent: Consent,
}

/// A deletion and its outcome.
#[derive(Serialize)]
struct Report<'a> {
    deleted: &'a str,
    #[serde(flatten)]
    token: &'a IdempotencyToken,
    event_time_ms: u64,
    duplicate: bool,
}

pub(crate) async fn run(args: DeleteArgs, session: &CounterSession) -> Result<(), CliError> {
    let (counter, namespace) = (&args.counter, &args.within.namespace);
    // Who deletes without a question needs no right to read.
    if args.consent.shows_number() {
        let counted = session.call(namespace, session.client.get(namespace, counter)).await?;
        let what = format!("Delete {counter} of {namespace} with a count of {}", count_text(counted.count));
        let dry_run = CountDryRun { counter, dry_run: true, count: Some(counted.count) };
        if !args.consent.given_for(&what, &dry_run, session.output)? {
            return Ok(());
        }
    }
    // Made now: what was added while a person decided is deleted, too.
    let token = args.token.into_token();
    let deletion = NewClear::new(counter).token(token.clone());
    let deleted = session.write(namespace, &token, session.client.delete(namespace, deletion)).await?;
    let (event_time_ms, duplicate) = (deleted.event_time_ms, deleted.duplicate);
    let report = Report { deleted: counter, token: &token, event_time_ms, duplicate };
    session.output.one(&report, |report| {
        let before = if duplicate { " It was deleted before." } else { "" };
        match event_time_ms {
            0 => format!("Deleted {}.{before}", visible(report.deleted)),
            ms => {
                format!("Deleted {}: adds up to {} no longer count.{before}", visible(report.deleted), format_time(ms))
            }
        }
    })
}
