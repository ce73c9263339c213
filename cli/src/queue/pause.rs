//! `tallystone queue pause NAME`

use crate::connection::Session;
use crate::error::CliError;
use clap::Args;
use tallystone_client::QueueConfig;

#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    /// The queue
    name: String,
}

pub(crate) async fn run(args: PauseArgs, session: &Session) -> Result<(), CliError> {
    let config = QueueConfig { dequeue_blocked: Some(true), ..QueueConfig::default() };
    let queue = session.call(&args.name, session.client.update_queue(&args.name, config)).await?;
    session.output.one(&queue, |queue| {
        format!("{} is paused: running messages continue, and workers get no further ones.", queue.name)
    })
}
