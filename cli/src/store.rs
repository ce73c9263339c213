//! `tallystone store accept`: the operator's word on a Redis that is not what it was.

use crate::config::{ConfigFile, Overrides, RedisFlags, load};
use crate::consent::consent_to;
use crate::error::CliError;
use crate::output::Output;
use crate::serving::cannot_connect;
use clap::{Args, Subcommand};
use serde::Serialize;
use tallystone_assembly::{AcceptedStore, accept_store};
use tallystone_link::without_password;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Go on with the data that a Redis has now, after it was deleted or replaced by an older copy
    ///
    /// A server that notices such a loss refuses every call with DATA_LOSS, and no other server starts on that Redis. Give
    /// Redis its data back if you can: then the servers go on by themselves. What is accepted here is lost for good.
    Accept(AcceptArgs),
}

#[derive(Args, Debug)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    redis: RedisFlags,
    /// Do not wait for a confirmation on a terminal
    #[arg(long)]
    yes: bool,
}

/// The new identity marks; `None`: no server has noticed a loss of this data.
#[derive(Serialize)]
struct Accepted {
    queues: Option<String>,
    counters: Option<String>,
}

pub(crate) async fn run(verb: StoreVerb, output: Output) -> Result<(), CliError> {
    let StoreVerb::Accept(args) = verb;
    let config = load(args.file.path.as_deref(), args.redis.set(Overrides::default()))?;
    let (url, shown) = (&config.redis.url, without_password(&config.redis.url));
    consent_to(&format!("Go on with the data that {shown} has now, without the data that it had before"), args.yes)?;
    let AcceptedStore { queues, counters } = accept_store(url).await.map_err(cannot_connect)?;
    let accepted = Accepted { queues, counters };
    output.one(&accepted, |accepted| {
        let which = match (&accepted.queues, &accepted.counters) {
            (None, None) => return format!("No server has noticed a loss of data in {shown}: nothing was changed."),
            (Some(_), None) => "queues",
            (None, Some(_)) => "counters",
            (Some(_), Some(_)) => "queues and counters",
        };
        format!("Accepted the {which} of {shown} as they are: running servers go on within a second.")
    })
}
