//! `tallystone queue purge NAME`

use crate::connection::Session;
use crate::consent::{Consent, Plan, messages};
use crate::error::CliError;
use clap::Args;
use serde::Serialize;

#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    /// The queue
    name: String,
    /// Also remove running messages; their workers lose the leases
    #[arg(long)]
    include_running: bool,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Serialize)]
struct Report {
    queue: String,
    purged: u64,
}

pub(crate) async fn run(args: PurgeArgs, session: &Session) -> Result<(), CliError> {
    // Who purges without a question needs no right to read.
    if args.consent.shows_number() {
        let depth = session.call(&args.name, session.client.depth(&args.name, None)).await?;
        let purged = depth.total() - if args.include_running { 0 } else { depth.running };
        // The purge takes what is there then: messages arrive while a person decides.
        let which = if args.include_running { "all messages" } else { "all messages but running ones" };
        let what = format!("Purge {which} of {}, now {}", args.name, messages(purged));
        if !args.consent.given(&Plan { what, queue: &args.name, messages: purged }, session.output)? {
            return Ok(());
        }
    }
    let mut report = Report { queue: args.name, purged: 0 };
    loop {
        let call = session.client.purge_queue(&report.queue, args.include_running);
        let part = session.call(&report.queue, call).await?;
        report.purged += part.purged;
        if !part.more {
            break;
        }
    }
    session.output.one(&report, |report| format!("Purged {} of {}.", messages(report.purged), report.queue))
}
