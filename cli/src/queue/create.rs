//! `tallystone queue create NAME`

use super::config_args::ConfigArgs;
use super::describe_text::describe_text;
use crate::connection::Session;
use crate::error::CliError;
use clap::Args;
use tallystone_client::{QueueConfig, QueueType};

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The name: 1 to 128 characters of A-Z a-z 0-9 . _ - : /
    name: String,
    /// Run at most one message at a time for each value of this metadata key
    #[arg(long, value_name = "KEY", conflicts_with = "simple")]
    exclusive: Option<String>,
    /// Create a simple queue, even if the server's queue template for this name is exclusive
    #[arg(long)]
    simple: bool,
    /// Spread the queue over this number of shards, at most 64, so that several primaries of a Redis Cluster share its load;
    /// `queue update` can change it [default of a new queue: 1]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) async fn run(args: CreateArgs, session: &Session) -> Result<(), CliError> {
    let queue_type = match args.exclusive {
        Some(key) => Some(QueueType::Exclusive { key }),
        None => args.simple.then_some(QueueType::Simple),
    };
    let config = QueueConfig { queue_type, ..args.config.into_config(args.shards) };
    let queue = session.call(&args.name, session.client.create_queue(&args.name, config)).await?;
    session.output.one(&queue, describe_text)
}
