//! `tallystone queue update NAME`

use super::{ConfigArgs, describe_text};
use crate::connection::Session;
use crate::failure::Failure;
use clap::Args;
use tallystone_client::QueueConfig;

#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    /// The queue
    name: String,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) async fn run(args: UpdateArgs, session: &Session) -> Result<(), Failure> {
    let config = args.config.into_config();
    if config == QueueConfig::default() {
        return Err(Failure::usage("nothing to change").hint("`tallystone queue update --help` lists what can be changed"));
    }
    change(&args.name, config, session).await
}

/// Changes what is set, and shows the queue as it stands then.
pub(super) async fn change(name: &str, config: QueueConfig, session: &Session) -> Result<(), Failure> {
    let queue = session.ask(name, session.client.update_queue(name, config)).await?;
    session.output.one(&queue, describe_text)
}
