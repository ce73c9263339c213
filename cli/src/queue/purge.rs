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
    /// Also messages that workers are running now: their leases are lost
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
        let step = session.client.purge_queue(&report.queue, args.include_running);
        let step = session.call(&report.queue, step).await?;
        report.purged += step.purged;
        if !step.more {
            break;
        }
    }
    session.output.one(&report, |report| format!("Purged {} messages of {}.", grouped(report.purged), report.queue))
}
