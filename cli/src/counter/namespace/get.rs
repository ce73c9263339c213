//! `tallystone counter namespace get NAME`

use super::text::describe_text;
use crate::counter::session::CounterSession;
use crate::error::CliError;
use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The namespace
    name: String,
}

pub(crate) async fn run(args: GetArgs, session: &CounterSession) -> Result<(), CliError> {
    let namespace = session.call(&args.name, session.client.get_namespace(&args.name)).await?;
    session.output.one(&namespace, describe_text)
}
