//! The command line as a whole: the verbs, and the options that every verb knows.

use crate::bench::BenchArgs;
use crate::check::CheckArgs;
use crate::completions::CompletionsArgs;
use crate::counter::CounterArgs;
use crate::counters::{CountersArgs, WorkerArgs};
use crate::demo::FlightsArgs;
use crate::dev::DevArgs;
use crate::failure::EXIT_CODES;
use crate::history::HistoryVerb;
use crate::indexer::IndexerArgs;
use crate::logs::LogFormat;
use crate::msg::MsgVerb;
use crate::queue::QueueVerb;
use crate::server::ServerArgs;
use crate::work::WorkArgs;
use clap::{Args, Parser, Subcommand};

/// A priority work queue: earliest deadline first, one at a time per key, durable; and exact distributed counters.
#[derive(Debug, Parser)]
#[command(name = "tallystone", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb knows.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Global {
    /// The server to talk to [default: http://127.0.0.1:7600]
    #[arg(long, global = true, env = "TALLYSTONE_SERVER", value_name = "URL", hide_env_values = true)]
    pub(crate) server: Option<String>,

    /// Write JSON: one object, or one per line for lists
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// What to log on stderr, such as debug or tallystone_server=trace [default: info for what serves, else warn]
    #[arg(long, global = true, env = "RUST_LOG", value_name = "FILTER", hide_env_values = true)]
    pub(crate) log: Option<String>,

    /// What log lines look like
    #[arg(long, global = true, env = "TALLYSTONE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
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
    Worker(WorkerArgs),
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
