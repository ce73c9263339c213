//! `tallystone queue delete NAME`

use crate::connection::Session;
use crate::consent::{Consent, Plan, messages};
use crate::error::CliError;
use clap::Args;
use serde::Serialize;
use tallystone_client::Error;

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The queue
    name: String,
    /// Remove its messages first, running ones included
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Serialize)]
struct Report {
    deleted: String,
}

fn has_reason(error: &Error, reason: &str) -> bool {
    error.refused().is_some_and(|refused| refused.reason == reason)
}

pub(crate) async fn run(args: DeleteArgs, session: &Session) -> Result<(), CliError> {
    match session.client.depth(&args.name, None).await {
        // Without --force the call is refused: there is nothing to confirm.
        Ok(depth) if depth.live() > 0 && !args.force && !args.consent.is_dry_run() => {}
        Ok(depth) => {
            let what = format!("Delete {} with all its messages, now {}", args.name, messages(depth.total()));
            let plan = Plan { what, queue: &args.name, messages: depth.total() };
            if !args.consent.given(&plan, session.output)? {
                return Ok(());
            }
        }
        // If the queue was deleted a moment ago, the call is a repetition and succeeds.
        Err(error) if has_reason(&error, "QUEUE_NOT_FOUND") && !args.consent.is_dry_run() => {}
        // Who may not read the queue may still delete it.
        Err(error) if has_reason(&error, "NO_RIGHT") && !args.consent.is_dry_run() => {
            args.consent.to(&format!("Delete {} with all its messages", args.name))?;
        }
        Err(error) => return session.call(&args.name, async { Err(error) }).await,
    }
    session.call(&args.name, session.client.delete_queue(&args.name, args.force)).await?;
    session.output.one(&Report { deleted: args.name }, |report| format!("Deleted {}.", report.deleted))
}
