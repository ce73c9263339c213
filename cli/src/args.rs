//! The command line as a whole: the verbs, and the options that every verb knows.

use crate::auth::AuthVerb;
use crate::bench::BenchArgs;
use crate::check::CheckArgs;
use crate::compact::CompactArgs;
use crate::completions::CompletionsArgs;
use crate::counter::CounterArgs;
use crate::counters::CountersArgs;
use crate::demo::FlightsArgs;
use crate::dev::DevArgs;
use crate::error::EXIT_CODES;
use crate::global::Global;
use crate::health::HealthArgs;
use crate::history::HistoryVerb;
use crate::indexer::IndexerArgs;
use crate::ingest::IngestArgs;
use crate::msg::MsgVerb;
use crate::queue::QueueVerb;
use crate::rollup_worker::RollupWorkerArgs;
use crate::server::ServerArgs;
use crate::store::StoreVerb;
use crate::token::TokenVerb;
use crate::views::ViewsArgs;
use crate::work::WorkArgs;
use clap::{Parser, Subcommand};

/// A durable priority work queue, and exact distributed counters
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
    /// Start the queue, counters, view counter and history for development, with their own Redis
    Dev(DevArgs),
    /// Run a demonstration
    #[command(subcommand)]
    Demo(Demo),
    /// Create, show and change queues
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Enqueue, show and change messages
    #[command(subcommand)]
    Msg(MsgVerb),
    /// Run a command for each message of a queue
    Work(WorkArgs),
    /// Kill the commands of a worker that dies; `work` starts it
    #[command(hide = true)]
    WorkGuard,
    /// Add to counters and read them
    Counter(CounterArgs),
    /// Create, read, check and copy counter sets of the compact store
    ///
    /// A counter set is one key of a Redis that has loaded the module of the compact store (docs/compact.md). `tallystone dev` has it.
    Compact(CompactArgs),
    /// Compare history with the queues, and repair it
    #[command(subcommand)]
    History(HistoryVerb),
    /// Check the invariants of queues; safe while they are in use
    Check(CheckArgs),
    /// Show whether a server serves calls
    ///
    /// The exit status is 0 if it does, 1 if it does not, and 3 if it does not answer.
    Health(HealthArgs),
    /// Show the identity marks of a Redis, or accept a Redis that has lost data
    #[command(subcommand)]
    Store(StoreVerb),
    /// Make tokens for the callers of servers
    #[command(subcommand)]
    Token(TokenVerb),
    /// Explain what a principal may do
    #[command(subcommand)]
    Auth(AuthVerb),
    /// Serve queues over gRPC; their data is in Redis
    Server(ServerArgs),
    /// Serve counters over gRPC and HTTP; their data is in Redis
    Counters(CountersArgs),
    /// Count views of videos, posted over HTTP; each user at most once per time window
    Views(ViewsArgs),
    /// Count adds from a Kafka topic, each exactly once
    Ingest(IngestArgs),
    /// Process the rollup jobs of counters
    RollupWorker(RollupWorkerArgs),
    /// Write queue events from Kafka into Elasticsearch, and serve history queries
    Indexer(IndexerArgs),
    /// Measure throughput, latency and memory, and compare them with other queues
    Bench(BenchArgs),
    /// Print a completion script for your shell
    Completions(CompletionsArgs),
}

impl Verb {
    /// Whether the verb changes nothing, and its exit status says nothing about what it reads.
    pub(crate) fn only_shows(&self) -> bool {
        match self {
            Verb::Queue(verb) => verb.only_shows(),
            Verb::Msg(verb) => verb.only_shows(),
            Verb::Counter(args) => args.only_shows(),
            Verb::Compact(args) => args.only_shows(),
            Verb::Completions(_) => true,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Demo {
    /// Process a month of real flights: each aircraft flies one flight at a time, in order of departure
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

    #[test]
    fn the_verbs_that_read_a_configuration_are_those_of_the_test_of_unknown_names() {
        fn collect(command: &clap::Command, path: &str, verbs: &mut Vec<String>) {
            for verb in command.get_subcommands() {
                let path = format!("{path} {}", verb.get_name());
                if verb.get_arguments().any(|argument| argument.get_long() == Some("config")) {
                    verbs.push(path.trim_start().to_owned());
                }
                collect(verb, &path, verbs);
            }
        }
        let mut verbs = Vec::new();
        collect(&Cli::command(), "", &mut verbs);
        verbs.sort();
        // `every_verb_refuses_names_that_no_verb_knows` in tests/suite/system/configuration.rs runs each of them.
        let expected = [
            "compact",
            "counter namespace republish",
            "counters",
            "counters clock",
            "dev",
            "indexer",
            "ingest",
            "rollup-worker",
            "server",
            "store accept",
            "store show",
            "views",
        ];
        assert_eq!(verbs, expected);
    }

    #[test]
    fn verbs_without_a_counters_server_do_not_show_its_address() {
        let mut command = Cli::command();
        command.build();
        let mut namespace =
            command.find_subcommand_mut("counter").unwrap().find_subcommand_mut("namespace").unwrap().clone();
        for (verb, is_shown) in [("get", true), ("plan", false), ("republish", false)] {
            let help = namespace.find_subcommand_mut(verb).unwrap().render_long_help().to_string();
            assert_eq!(help.contains("--counters"), is_shown, "{verb}: {help}");
        }
    }

    #[test]
    fn each_verb_says_what_its_redis_has() {
        let mut command = Cli::command();
        for (verb, what) in [
            ("server", "the queues"),
            ("counters", "the counters"),
            ("rollup-worker", "the counters"),
            ("views", "the log of views"),
        ] {
            let help = command.find_subcommand_mut(verb).unwrap().render_long_help().to_string();
            let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("Address of the Redis that has {what} [default")), "{verb}: {help}");
        }
    }

    /// A profile in the workspace's Cargo.toml switches clap's checks on.
    #[test]
    #[should_panic(expected = "Long option names must be unique")]
    fn two_options_with_one_name_are_found() {
        let option = |id| clap::Arg::new(id).long("counters");
        clap::Command::new("plan").args([option("url"), option("number")]).debug_assert();
    }
}
