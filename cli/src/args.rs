//! The command line as a whole: the verbs, and the options that every verb knows.

use crate::bench::BenchArgs;
use crate::check::CheckArgs;
use crate::completions::CompletionsArgs;
use crate::counter::CounterArgs;
use crate::counters::{CountersArgs, RollupWorkerArgs};
use crate::demo::FlightsArgs;
use crate::dev::DevArgs;
use crate::error::EXIT_CODES;
use crate::global::Global;
use crate::history::HistoryVerb;
use crate::indexer::IndexerArgs;
use crate::msg::MsgVerb;
use crate::queue::QueueVerb;
use crate::server::ServerArgs;
use crate::work::WorkArgs;
use clap::{Parser, Subcommand};

/// A priority work queue: earliest deadline first, one at a time per key, durable; and exact distributed counters.
#[derive(Debug, Parser)]
#[command(name = "tallystone", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve the queue from a Redis
    Server(ServerArgs),
    /// Write what happens, from Kafka into Elasticsearch, and answer questions about it
    Indexer(IndexerArgs),
    /// Serve counters from a Redis, over gRPC and HTTP
    Counters(CountersArgs),
    /// Roll counters up, as the queue says
    RollupWorker(RollupWorkerArgs),
    /// Serve queue and counters from a private Redis whose data survives restarts
    Dev(DevArgs),
    /// Create, look at and change queues
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Enqueue, look at and change messages
    #[command(subcommand)]
    Msg(MsgVerb),
    /// Look after what happened
    #[command(subcommand)]
    History(HistoryVerb),
    /// Add to counters and read them
    Counter(CounterArgs),
    /// Run a program for each message
    Work(WorkArgs),
    /// Prove every invariant of queues, in bounded steps
    Check(CheckArgs),
    /// See it work
    #[command(subcommand)]
    Demo(Demo),
    /// Measure it, with peers side by side
    Bench(BenchArgs),
    /// Print a completion script for your shell
    Completions(CompletionsArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Demo {
    /// Fly a month of real flights: no aircraft twice at once, each in order of departure
    Flights(FlightsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
