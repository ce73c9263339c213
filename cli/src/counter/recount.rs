//! `tallystone counter recount COUNTER --reason TEXT`: replaces a count by the sum of its events, or adjusts it (N12).

use super::session::{CounterSession, InNamespace, dropped};
use super::text::count_text;
use crate::consent::Consent;
use crate::duration::format_time;
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use tallystone_client::{IdempotencyToken, NewRecount, Recount};

#[derive(Args, Debug)]
pub(crate) struct RecountArgs {
    /// The counter
    counter: String,
    /// Why the count is replaced; `counter recounts` shows it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Add this to the new count; may be negative. Later audits include it, until the counter is cleared
    #[arg(long, value_name = "DELTA", default_value_t = 0, allow_negative_numbers = true)]
    adjust: i64,
    /// Keep the present count, and only adjust it
    #[arg(long, requires = "adjust")]
    keep_count: bool,
    /// Recount although events may have been dropped; their adds are then lost from the count
    #[arg(long, conflicts_with = "keep_count")]
    accept_dropped_events: bool,
    /// A token: the same command with the same token recounts once [default: a new token]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    token: Option<String>,
    #[command(flatten)]
    within: InNamespace,
    #[command(flatten)]
    consent: Consent,
}

/// A dry run.
#[derive(Serialize)]
struct DryRun<'a> {
    counter: &'a str,
    dry_run: bool,
    count: i64,
    new_count: i64,
}

/// A recount and its counter.
#[derive(Serialize)]
struct Report<'a> {
    counter: &'a str,
    #[serde(flatten)]
    recount: Recount,
}

pub(crate) async fn run(args: RecountArgs, session: &CounterSession) -> Result<(), CliError> {
    let (counter, namespace) = (args.counter.as_str(), args.within.namespace.as_str());
    let token = args.token.unwrap_or_else(|| IdempotencyToken::now().token);
    let (count, base, recount) = match args.keep_count {
        true => {
            let counted = session.call(namespace, session.client.get(namespace, counter)).await?;
            (counted.count, counted.count, NewRecount::of_count(args.adjust, args.reason))
        }
        false => {
            let audit = session.call(namespace, session.client.audit(namespace, counter)).await?;
            // As the server does, also in a dry run.
            if !audit.agrees && !audit.complete && !args.accept_dropped_events {
                let kept_from = format_time(audit.kept_from_ms);
                let why = format!("the events differ, and those before {kept_from} may have been dropped");
                return Err(dropped(CliError::refused(why).reason("EVENTS_DROPPED")));
            }
            (audit.count, audit.recounted, NewRecount::from_events(&audit, args.adjust, args.reason))
        }
    };
    let new_count = base.saturating_add(args.adjust);
    let what = format!("Recount {counter} of {namespace}: {} becomes {}", count_text(count), count_text(new_count));
    if !args.consent.given_for(&what, &DryRun { counter, dry_run: true, count, new_count }, session.output)? {
        return Ok(());
    }
    let recount = recount.token(&token).accept_dropped_events(args.accept_dropped_events);
    let recounted = match session.client.recount(namespace, counter, recount).await {
        Ok(recounted) => recounted,
        Err(error) => {
            let explained = session.explained(namespace, &error).await;
            let is_unknown = error.is_unavailable();
            let repeated = || format!("the same command with --token {token} recounts once");
            return Err(if is_unknown { explained.hint(repeated()) } else { explained });
        }
    };
    session.output.one(&Report { counter, recount: recounted }, |Report { counter, recount }| {
        let (old, new) = (count_text(recount.old_count), count_text(recount.new_count));
        format!("{} is {new}; it was {old}. Its epoch is {}.", visible(counter), recount.epoch)
    })
}
