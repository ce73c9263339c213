//! `tallystone queue …`: one file per verb, named as it is typed. `config_args.rs` has the flags of a queue's
//! configuration, `describe_text.rs` shows a queue.

mod config_args;
mod create;
mod delete;
mod depth;
mod describe;
mod describe_text;
mod ls;
mod pause;
mod purge;
mod resume;
mod stats;
mod update;

pub(crate) use depth::run as depth;
pub(crate) use stats::run as stats;

use crate::connection::Session;
use crate::error::CliError;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueVerb {
    /// Create a queue; succeeds if it exists with the same configuration
    Create(create::CreateArgs),
    /// List queues, with the number of messages in each state
    Ls(ls::LsArgs),
    /// Show a queue's configuration and the number of messages in each state
    Describe(describe::DescribeArgs),
    /// Change a queue's configuration; takes effect at once on every server
    Update(update::UpdateArgs),
    /// Stop leasing messages to workers; running messages continue
    Pause(pause::PauseArgs),
    /// Lease messages to workers again
    Resume(resume::ResumeArgs),
    /// Cancel and remove the messages of a queue, except running ones
    Purge(purge::PurgeArgs),
    /// Delete a queue that has no live messages, or with --force any queue
    Delete(delete::DeleteArgs),
    /// Count messages by metadata, priority and age, from history
    Depth(depth::DepthArgs),
    /// Show rates, time spent in each state, and reasons of transitions, from history
    Stats(stats::StatsArgs),
}

impl QueueVerb {
    /// As [`Verb::only_shows`](crate::args::Verb::only_shows).
    pub(crate) fn only_shows(&self) -> bool {
        matches!(self, QueueVerb::Ls(_) | QueueVerb::Describe(_) | QueueVerb::Depth(_) | QueueVerb::Stats(_))
    }
}

pub(crate) async fn run(verb: QueueVerb, session: &Session) -> Result<(), CliError> {
    match verb {
        QueueVerb::Create(args) => create::run(args, session).await,
        QueueVerb::Ls(args) => ls::run(args, session).await,
        QueueVerb::Describe(args) => describe::run(args, session).await,
        QueueVerb::Update(args) => update::run(args, session).await,
        QueueVerb::Pause(args) => pause::run(args, session).await,
        QueueVerb::Resume(args) => resume::run(args, session).await,
        QueueVerb::Purge(args) => purge::run(args, session).await,
        QueueVerb::Delete(args) => delete::run(args, session).await,
        QueueVerb::Depth(args) => depth::run(args, session).await,
        QueueVerb::Stats(args) => stats::run(args, session).await,
    }
}
