//! `tallystone compact …`: the compact counter store in a Redis that has loaded its module. One file per verb, named as it is typed.
//! `session.rs` connects and sends commands, `refusal.rs` explains errors, `options.rs` has the flags of options, `set.rs` knows the
//! schema of a key, `file/` reads and writes what `export` and `import` exchange.
//!
//! These verbs call Redis directly, as `redis-cli` does: no server of Tallystone is in between.

mod alter;
mod check;
mod create;
mod export;
mod file;
mod get;
mod import;
mod incr;
mod info;
mod options;
mod progress;
mod refusal;
mod repair;
mod session;
mod set;
mod tables;

use crate::error::CliError;
use crate::output::Output;
use clap::{Args, Subcommand};
use session::{CompactSession, Target};

#[derive(Args, Debug)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    verb: CompactVerb,
}

#[derive(Debug, Subcommand)]
enum CompactVerb {
    /// Create a counter set with a schema: the fields of each id
    Create(create::CreateArgs),
    /// Add, widen or retire fields, or change options
    Alter(alter::AlterArgs),
    /// Show the fields of ids; an id that was never written reads 0
    Get(get::GetArgs),
    /// Add to fields of an id; either all additions count or none
    Incr(incr::IncrArgs),
    /// Show the schema, the size and the options of a counter set
    Info(info::InfoArgs),
    /// Show the tables of a counter set, in memory and in files
    Tables(tables::TablesArgs),
    /// Verify every record of a counter set; safe while it is in use
    ///
    /// The command reads every page of cold tables. The exit status is 1 if it finds a fault.
    Check(check::CheckArgs),
    /// Write all ids with their fields to a file or to stdout
    Export(export::ExportArgs),
    /// Set the fields of ids to the values in a file; a file of `export` also creates a missing key
    Import(import::ImportArgs),
    /// Restore the records of damaged pages from a replica
    ///
    /// The command first verifies the whole counter set. Then it waits until the replica has every write of the primary, and copies the
    /// records of damaged ranges. Other records do not change.
    Repair(repair::RepairArgs),
}

impl CompactArgs {
    /// As [`Verb::only_shows`](crate::args::Verb::only_shows).
    pub(crate) fn only_shows(&self) -> bool {
        matches!(self.verb, CompactVerb::Get(_) | CompactVerb::Info(_) | CompactVerb::Tables(_))
    }
}

pub(crate) async fn run(args: CompactArgs, output: Output) -> Result<(), CliError> {
    let session = &mut CompactSession::connect(args.target, output).await?;
    match args.verb {
        CompactVerb::Create(args) => create::run(args, session).await,
        CompactVerb::Alter(args) => alter::run(args, session).await,
        CompactVerb::Get(args) => get::run(args, session).await,
        CompactVerb::Incr(args) => incr::run(args, session).await,
        CompactVerb::Info(args) => info::run(args, session).await,
        CompactVerb::Tables(args) => tables::run(args, session).await,
        CompactVerb::Check(args) => check::run(args, session).await,
        CompactVerb::Export(args) => export::run(args, session).await,
        CompactVerb::Import(args) => import::run(args, session).await,
        CompactVerb::Repair(args) => repair::run(args, session).await,
    }
}
