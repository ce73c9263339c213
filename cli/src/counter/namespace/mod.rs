//! `tallystone counter namespace …`: one file per verb. `text.rs` shows a namespace, and `no_server.rs` has the flag of verbs that call no
//! server.

mod delete;
mod get;
mod ls;
mod no_server;
pub(crate) mod plan;
mod put;
pub(crate) mod republish;
mod text;

use super::session::CounterSession;
use crate::error::CliError;
use clap::Subcommand;

#[cfg(test)]
pub(crate) use put::PutArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceVerb {
    /// Create a namespace, or change some of its parameters; adds and rollups use the new values at once, reads within
    /// a second
    Put(put::PutArgs),
    /// Show the configuration of a namespace
    Get(get::GetArgs),
    /// List the namespaces
    Ls,
    /// Delete a namespace with its counters
    Delete(delete::DeleteArgs),
    /// Show what an installation needs for a load: configuration, memory, disk, processes and machines
    ///
    /// The command connects to nothing. All counters get equally many adds, which is the worst case: a load with hot counters
    /// needs fewer rollups and less memory.
    Plan(plan::PlanArgs),
    /// Write all counts of namespaces to their counter sets again, after a set was lost or added
    ///
    /// The command reads the counters' Redis itself, with the configuration of a rollup worker. It may run while rollups
    /// run, and may be repeated: a counter set keeps the later count of each counter.
    Republish(republish::RepublishArgs),
}

pub(crate) async fn run(verb: NamespaceVerb, session: &CounterSession) -> Result<(), CliError> {
    match verb {
        NamespaceVerb::Put(args) => put::run(args, session).await,
        NamespaceVerb::Get(args) => get::run(args, session).await,
        NamespaceVerb::Ls => ls::run(session).await,
        NamespaceVerb::Delete(args) => delete::run(args, session).await,
        NamespaceVerb::Plan(args) => plan::run(&args, session.output),
        NamespaceVerb::Republish(args) => republish::run(args, session.output).await,
    }
}
