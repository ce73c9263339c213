//! `tallystone queue pause NAME`

use super::update::change;
use crate::connection::Session;
use crate::failure::Failure;
use clap::Args;
use tallystone_client::QueueConfig;

#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    /// The queue
    name: String,
}

pub(crate) async fn run(args: PauseArgs, session: &Session) -> Result<(), Failure> {
    change(&args.name, QueueConfig { dequeue_blocked: Some(true), ..QueueConfig::default() }, session).await
}
