//! `tallystone queue resume NAME`

use crate::connection::Session;
use crate::error::CliError;
use clap::Args;
use tallystone_client::QueueConfig;

#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// The queue
    name: String,
}

pub(crate) async fn run(args: ResumeArgs, session: &Session) -> Result<(), CliError> {
    let config = QueueConfig { dequeue_blocked: Some(false), ..QueueConfig::default() };
    let queue = session.call(&args.name, session.client.update_queue(&args.name, config)).await?;
    session.output.one(&queue, |queue| format!("{} leases messages to workers again.", queue.name))
}
