//! `tallystone queue update NAME`

use super::config_args::ConfigArgs;
use super::describe_text::describe_text;
use crate::connection::Session;
use crate::error::CliError;
use clap::Args;
use tallystone_client::QueueConfig;

#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    /// The queue
    name: String,
    /// Number of shards, 1 to 64, of a queue that is in use: new messages go to new shards, and the earlier ones are removed when all
    /// their messages are gone, ended ones included; `queue describe` shows how many are left
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) async fn run(args: UpdateArgs, session: &Session) -> Result<(), CliError> {
    let config = args.config.into_config(args.shards);
    if config == QueueConfig::default() {
        return Err(CliError::usage("nothing to change").hint("`tallystone queue update --help` lists the flags"));
    }
    let queue = session.call(&args.name, session.client.update_queue(&args.name, config)).await?;
    session.output.one(&queue, describe_text)
}
