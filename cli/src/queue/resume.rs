//! `tallystone queue resume NAME`

use super::update::change;
use crate::connection::Session;
use crate::failure::Failure;
use clap::Args;
use tallystone_client::QueueConfig;

#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    /// The queue
    name: String,
}

pub(crate) async fn run(args: ResumeArgs, session: &Session) -> Result<(), Failure> {
    change(&args.name, QueueConfig { dequeue_blocked: Some(false), ..QueueConfig::default() }, session).await
}
