//! `tallystone counter …`: one file per verb, named as it is typed. `session.rs` connects and explains errors, `token.rs`
//! has the flags of an event's token, `text.rs` shows counts, `sums.rs` shows sums by period, `global.rs`
//! counts in all regions, `outcome.rs` reads many counters, `ndjson.rs` reads adds from lines.

mod add;
mod audit;
mod clear;
mod crossings;
mod delete;
mod events;
mod get;
mod global;
mod ls;
mod namespace;
mod ndjson;
mod outcome;
mod recount;
mod recounts;
mod session;
mod sums;
mod text;
mod token;
mod top;
mod watch;

use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use clap::{Args, Subcommand};
use namespace::NamespaceVerb;
use session::CounterSession;

#[derive(Args, Debug)]
pub(crate) struct CounterArgs {
    /// Address of the counters server
    #[arg(
        long = "counters",
        global = true,
        env = "TALLYSTONE_COUNTERS",
        value_name = "URL",
        default_value = "http://127.0.0.1:7610",
        hide_env_values = true
    )]
    server_of_counters: String,
    #[command(subcommand)]
    verb: CounterVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CounterVerb {
    /// Add to a counter, or to many counters as NDJSON
    Add(add::AddArgs),
    /// Show counts, and the time up to which they are exact; with --by, what was added in each minute, hour or day
    Get(get::GetArgs),
    /// Set a counter to zero
    Clear(clear::ClearArgs),
    /// Delete a counter; it then answers like one that was never written
    Delete(delete::DeleteArgs),
    /// Print a line each time a count changes
    Watch(watch::WatchArgs),
    /// List the counters of a namespace, in no particular order
    Ls(ls::LsArgs),
    /// List the counters with the highest counts
    Top(top::TopArgs),
    /// List the events of a counter: its adds and clears
    Events(events::EventsArgs),
    /// Count the events of counters again, and compare
    Audit(audit::AuditArgs),
    /// Replace the count of a counter by the sum of its events, or adjust it
    Recount(recount::RecountArgs),
    /// List the recounts of a counter
    Recounts(recounts::RecountsArgs),
    /// List the counts of a namespace that have passed its thresholds
    Crossings(crossings::CrossingsArgs),
    /// Create, change, show and delete namespaces
    #[command(subcommand)]
    Namespace(NamespaceVerb),
}

impl CounterArgs {
    /// As [`Verb::only_shows`](crate::args::Verb::only_shows).
    pub(crate) fn only_shows(&self) -> bool {
        use CounterVerb::{Crossings, Events, Get, Ls, Namespace, Recounts, Top, Watch};
        match &self.verb {
            Get(_) | Watch(_) | Ls(_) | Top(_) | Events(_) | Recounts(_) | Crossings(_) => true,
            Namespace(verb) => matches!(verb, NamespaceVerb::Get(_) | NamespaceVerb::Ls | NamespaceVerb::Plan(_)),
            _ => false,
        }
    }
}

pub(crate) async fn run(args: CounterArgs, global: &Global, output: Output) -> Result<(), CliError> {
    // These need no counters server.
    match args.verb {
        CounterVerb::Namespace(NamespaceVerb::Republish(args)) => return namespace::republish::run(args, output).await,
        CounterVerb::Namespace(NamespaceVerb::Plan(args)) => return namespace::plan::run(&args, output),
        _ => {}
    }
    let session = &CounterSession::connect(&args.server_of_counters, global, output).await?;
    match args.verb {
        CounterVerb::Add(args) => add::run(args, session).await,
        CounterVerb::Get(args) => get::run(args, session).await,
        CounterVerb::Clear(args) => clear::run(args, session).await,
        CounterVerb::Delete(args) => delete::run(args, session).await,
        CounterVerb::Watch(args) => watch::run(args, session).await,
        CounterVerb::Ls(args) => ls::run(args, session).await,
        CounterVerb::Top(args) => top::run(args, session).await,
        CounterVerb::Events(args) => events::run(args, session).await,
        CounterVerb::Audit(args) => audit::run(args, session).await,
        CounterVerb::Recount(args) => recount::run(args, session).await,
        CounterVerb::Recounts(args) => recounts::run(args, session).await,
        CounterVerb::Crossings(args) => crossings::run(args, session).await,
        CounterVerb::Namespace(verb) => namespace::run(verb, session).await,
    }
}

#[cfg(test)]
mod tests;
