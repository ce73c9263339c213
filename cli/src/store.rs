//! `tallystone store`: `show` prints the identity marks of a Redis; by `accept` an operator accepts one that has lost its data or
//! has an older copy of it.

use crate::config::{ConfigFile, Overrides, RedisFlags, load};
use crate::consent::consent_to;
use crate::error::CliError;
use crate::output::Output;
use crate::serving::cannot_connect;
use clap::{Args, Subcommand};
use serde::Serialize;
use tallystone_assembly::{AcceptedStore, StoreMarks, accept_store, store_marks};
use tallystone_model::without_password;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Continue with the data that Redis has now, after data was deleted or replaced by an older copy
    ///
    /// A process that notices such a loss refuses every call with DATA_LOSS, and no other process starts on that Redis.
    /// If you can, give Redis its data back: the processes then continue by themselves. After this command the
    /// processes continue without the lost data. Stop the workers first: they may hold leases that Redis no longer
    /// knows. Processes that refuse this Redis as another store continue with it, too.
    Accept(AcceptArgs),
    /// Print the identity marks of the data that Redis has now, as the line of the configuration that names them
    ///
    /// With `store_ids` in `[redis]`, a program starts only on a Redis that has one of these marks: not on one that was
    /// emptied while no program was running, and not on another one.
    Show(ShowArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    redis: RedisFlags,
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

/// The new identity marks; `None`: no server has noticed a loss of this data, or knows another mark of it.
#[derive(Serialize)]
struct Accepted {
    queues: Option<String>,
    counters: Option<String>,
    views: Option<String>,
}

pub(crate) async fn run(verb: StoreVerb, output: Output) -> Result<(), CliError> {
    match verb {
        StoreVerb::Accept(args) => accept(args, output).await,
        StoreVerb::Show(args) => show(args, output).await,
    }
}

async fn show(args: ShowArgs, output: Output) -> Result<(), CliError> {
    let config = load(args.file.path.as_deref(), args.redis.set(Overrides::default()))?;
    let marks = store_marks(&config.redis).await.map_err(cannot_connect)?;
    output.one(&marks, |StoreMarks { queues, counters, views }| {
        let marks: Vec<String> =
            [queues, counters, views].into_iter().flatten().map(|id| format!("\"{id}\"")).collect();
        match marks.is_empty() {
            true => format!("{} has no data of Tallystone.", without_password(&config.redis.url)),
            false => format!("store_ids = [{}]", marks.join(", ")),
        }
    })
}

async fn accept(args: AcceptArgs, output: Output) -> Result<(), CliError> {
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
            return format!(
                "No server has noticed a loss of data in {shown}, or knows another mark of it: nothing was changed."
            );
        }
        let which = which.join(" and ");
        format!("Accepted the {which} of {shown} as they are: running servers continue within a second.")
    })
}
