//! `tallystone queue delete NAME`

use crate::connection::Session;
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
}

#[derive(Serialize)]
struct Report {
    deleted: String,
}

pub(crate) async fn run(args: DeleteArgs, session: &Session) -> Result<(), CliError> {
    session.call(&args.name, session.client.delete_queue(&args.name, args.force)).await?;
    session.output.one(&Report { deleted: args.name }, |report| format!("Deleted {}.", report.deleted))
}
