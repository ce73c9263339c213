//! `tallystone queue delete NAME`

use crate::connection::Session;
use crate::consent::{Consent, Plan, messages};
use crate::error::CliError;
use clap::Args;
use serde::Serialize;

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
        Err(error) if error.refused().is_some() && !args.consent.is_dry_run() => {}
        Err(error) => return session.call(&args.name, async { Err(error) }).await,
    }
    session.call(&args.name, session.client.delete_queue(&args.name, args.force)).await?;
    session.output.one(&Report { deleted: args.name }, |report| format!("Deleted {}.", report.deleted))
}
