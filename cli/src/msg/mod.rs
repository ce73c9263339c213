//! `tallystone msg …`: one file per verb, named as it is typed. `outcome.rs` shows what happened to each message,
//! `selection.rs` changes all messages that flags select, `ndjson.rs` reads messages from lines.

mod cancel;
mod enqueue;
mod explain;
mod get;
mod ls;
mod ndjson;
mod outcome;
mod redrive;
mod search;
mod selection;
mod trace;
mod update;

use crate::connection::Session;
use crate::error::CliError;
pub(crate) use search::run as search;
pub(crate) use trace::{drawn, run as trace};

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum MsgVerb {
    /// Add one message, or many as NDJSON
    Enqueue(enqueue::EnqueueArgs),
    /// Show a message
    Get(get::GetArgs),
    /// List the messages in one state
    Ls(ls::LsArgs),
    /// Change the priority of live messages, or the time at which pending or invisible ones become visible
    Update(update::UpdateArgs),
    /// Cancel messages: they will not run
    Cancel(cancel::CancelArgs),
    /// Make errored or canceled messages pending again, and reset their attempts
    Redrive(redrive::RedriveArgs),
    /// Explain why a message is not running
    Explain(explain::ExplainArgs),
    /// Draw the timeline of a message: every transition, with worker, attempt and time
    Trace(trace::TraceArgs),
    /// Search the history of messages by state, metadata, worker, reason or time
    Search(search::SearchArgs),
}

impl MsgVerb {
    /// As [`Verb::only_shows`](crate::args::Verb::only_shows).
    pub(crate) fn only_shows(&self) -> bool {
        use MsgVerb::{Explain, Get, Ls, Search, Trace};
        matches!(self, Get(_) | Ls(_) | Explain(_) | Trace(_) | Search(_))
    }
}

pub(crate) async fn run(verb: MsgVerb, session: &Session) -> Result<(), CliError> {
    match verb {
        MsgVerb::Enqueue(args) => enqueue::run(args, session).await,
        MsgVerb::Get(args) => get::run(args, session).await,
        MsgVerb::Ls(args) => ls::run(args, session).await,
        MsgVerb::Update(args) => update::run(args, session).await,
        MsgVerb::Cancel(args) => cancel::run(args, session).await,
        MsgVerb::Redrive(args) => redrive::run(args, session).await,
        MsgVerb::Explain(args) => explain::run(args, session).await,
        MsgVerb::Trace(args) => trace::run(args, session).await,
        MsgVerb::Search(args) => search::run(args, session).await,
    }
}
