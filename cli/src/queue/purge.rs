//! `tallystone queue purge NAME`

use crate::connection::Session;
use crate::error::CliError;
use crate::output::grouped;
use clap::Args;
use serde::Serialize;

#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    /// The queue
    name: String,
    /// Also remove running messages; their workers lose the leases
    #[arg(long)]
    include_running: bool,
}

#[derive(Serialize)]
struct Report {
    queue: String,
    purged: u64,
}

pub(crate) async fn run(args: PurgeArgs, session: &Session) -> Result<(), CliError> {
    let mut report = Report { queue: args.name, purged: 0 };
    loop {
        let call = session.client.purge_queue(&report.queue, args.include_running);
        let part = session.call(&report.queue, call).await?;
        report.purged += part.purged;
        if !part.more {
            break;
        }
    }
    session.output.one(&report, |report| format!("Purged {} messages of {}.", grouped(report.purged), report.queue))
}
