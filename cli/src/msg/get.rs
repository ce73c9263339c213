//! `tallystone msg get QUEUE ID`

use super::message_text;
use crate::connection::Session;
use crate::error::CliError;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The queue
    queue: String,
    /// The message
    id: String,
}

pub(crate) async fn run(args: GetArgs, session: &Session) -> Result<(), CliError> {
    let message = session.ask(&args.queue, session.client.get_message(&args.queue, &args.id)).await?;
    session.output.one(&message, message_text)
}
