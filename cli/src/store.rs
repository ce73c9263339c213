//! `tallystone store accept`: an operator accepts a Redis that has lost its data or has an older copy of it.

use crate::config::{ConfigFile, Overrides, RedisFlags, load};
use crate::consent::consent_to;
use crate::error::CliError;
use crate::output::Output;
use crate::serving::cannot_connect;
use clap::{Args, Subcommand};
use serde::Serialize;
use tallystone_assembly::{AcceptedStore, accept_store};
use tallystone_model::without_password;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Continue with the data that Redis has now, after data was deleted or replaced by an older copy
    ///
    /// A process that notices such a loss refuses every call with DATA_LOSS, and no other process starts on that Redis.
    /// If you can, give Redis its data back: the processes then continue by themselves. After this command the
    /// processes continue without the lost data. Stop the workers first: they may hold leases that Redis no longer
    /// knows.
    Accept(AcceptArgs),
}

#[derive(Args, Debug)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    redis: RedisFlags,
    /// Skip the confirmation, which is requested only on a terminal
    #[arg(long)]
    yes: bool,
}

/// The new identity marks; `None`: no server has noticed a loss of this data.
#[derive(Serialize)]
struct Accepted {
    queues: Option<String>,
    counters: Option<String>,
    views: Option<String>,
}

pub(crate) async fn run(verb: StoreVerb, output: Output) -> Result<(), CliError> {
    let StoreVerb::Accept(args) = verb;
    let config = load(args.file.path.as_deref(), args.redis.set(Overrides::default()))?;
    let shown = without_password(&config.redis.url);
    consent_to(&format!("Continue with the data that {shown} has now, without the data that it had before"), args.yes)?;
    let AcceptedStore { queues, counters, views } = accept_store(&config.redis).await.map_err(cannot_connect)?;
    let accepted = Accepted { queues, counters, views };
    output.one(&accepted, |accepted| {
        let Accepted { queues, counters, views } = accepted;
        let marks = [("queues", queues), ("counters", counters), ("views", views)];
        let which: Vec<&str> = marks.into_iter().filter_map(|(name, mark)| mark.as_ref().map(|_| name)).collect();
        if which.is_empty() {
            return format!("No server has noticed a loss of data in {shown}: nothing was changed.");
        }
        let which = which.join(" and ");
        format!("Accepted the {which} of {shown} as they are: running servers continue within a second.")
    })
}
