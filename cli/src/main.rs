//! `tallystone`: one binary with the server, a server for development, the operator's verbs, the demo and the bench.
//!
//! What lives here: parsing of arguments and configuration, and what people and programs read. One file per verb,
//! named as it is typed (`tallystone queue ls` is `queue/ls.rs`). What may not: anything that knows how a queue works.

#![warn(clippy::print_stderr, clippy::print_stdout, reason = "they panic if nothing reads any more")]

mod args;
mod auth;
mod bench;
mod check;
mod compact;
mod completions;
mod config;
mod connection;
mod consent;
mod counter;
mod counters;
mod data_dir;
mod demo;
mod dev;
mod duration;
mod error;
mod flag_names;
mod global;
mod health;
mod history;
mod indexer;
mod ingest;
mod limits;
mod logs;
mod msg;
mod ndjson;
mod nearest;
mod output;
mod queue;
mod rollup_worker;
mod server;
mod serving;
mod shutdown;
mod store;
mod table;
mod terminal;
mod text;
mod token;
mod traces;
mod views;
mod work;

use args::{Cli, Demo, Verb};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};
use connection::Session;
use error::CliError;
use msg::MsgVerb;
use output::Output;
use queue::QueueVerb;
use std::process::ExitCode;
use tallystone_model::without_passwords;
use terminal::note;

/// Many small buffers cross threads on every call; the system's allocator takes a lock for each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| usage(error));
    if matches!(cli.verb, Verb::WorkGuard) {
        return work::run_guard();
    }
    let output = Output { json: cli.global.json, only_shows: cli.verb.only_shows() };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    match std::env::var("TOKIO_WORKER_THREADS") {
        // The runtime reads it, and panics on a bad value.
        Ok(text) if text.parse::<usize>().is_ok_and(|threads| threads > 0) => {}
        Ok(text) => {
            let error = CliError::usage(format!("TOKIO_WORKER_THREADS is {text:?}; it must be a number from 1"));
            return error.print(output.json);
        }
        Err(_) => {
            runtime.worker_threads(threads());
        }
    }
    let done = match runtime.enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(traces::within_environment(run(cli, output)));
            traces::end();
            done
        }
        Err(error) => Err(CliError::unavailable(format_args!("cannot start threads: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.print(output.json),
    }
}

/// Prints why the arguments are wrong, and ends; addresses in them are shown without passwords. Of an argument that had another name in an earlier version, it says the
/// name.
fn usage(error: clap::Error) -> ! {
    let given = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].map(|kind| error.get(kind));
    for given in given.into_iter().flatten() {
        if let ContextValue::String(given) = given
            && let Some(renamed) = config::renamed_argument(given)
        {
            note(&format!("error: {renamed}"));
            std::process::exit(error.exit_code());
        }
    }
    let text = error.render().to_string();
    let shown = without_passwords(&text);
    if shown == text {
        error.exit()
    }
    note(shown.trim_end_matches('\n'));
    std::process::exit(error.exit_code())
}

/// One core is for Redis: on a machine that both share, threads on every core only push it off its own
/// (docs/decisions/0012).
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

async fn run(cli: Cli, output: Output) -> Result<(), CliError> {
    let global = cli.global;
    let serves = matches!(
        cli.verb,
        Verb::Server(_)
            | Verb::Indexer(_)
            | Verb::Counters(_)
            | Verb::RollupWorker(_)
            | Verb::Views(_)
            | Verb::Ingest(_)
    );
    let filter = global.log.as_deref().unwrap_or(if serves { "info" } else { "warn" });
    logs::start(filter, global.log_format)?;
    if !serves && !matches!(cli.verb, Verb::Dev(_) | Verb::Completions(_)) {
        // The others check the environment, and start their traces, when they have read their configuration. A shell that starts gets
        // its completions whatever its environment has.
        config::check_variables()?;
        traces::start(&global.telemetry.config(), "tallystone")?;
    }
    let connect = async || Session::connect(&global, output).await;
    match cli.verb {
        Verb::Server(args) => server::run(args, &global).await,
        Verb::Indexer(args) => indexer::run(args, &global).await,
        Verb::Counters(args) => counters::run(args, &global, output).await,
        Verb::RollupWorker(args) => rollup_worker::run(args, &global).await,
        Verb::Views(args) => views::run(args, &global).await,
        Verb::Ingest(args) => ingest::run(args, &global).await,
        Verb::Dev(args) => dev::run(args, &global, output).await,
        Verb::Queue(QueueVerb::Depth(args)) => {
            let session = args.history.session(&global, output).await?;
            queue::depth(args, &session).await
        }
        Verb::Queue(QueueVerb::Stats(args)) => {
            let session = args.history.session(&global, output).await?;
            queue::stats(args, &session).await
        }
        Verb::Queue(verb) => queue::run(verb, &connect().await?).await,
        Verb::Msg(MsgVerb::Trace(args)) => {
            let session = args.history.session(&global, output).await?;
            msg::trace(args, &session).await
        }
        Verb::Msg(MsgVerb::Search(args)) => {
            let session = args.history.session(&global, output).await?;
            msg::search(args, &session).await
        }
        Verb::Msg(verb) => msg::run(verb, &connect().await?).await,
        Verb::History(verb) => history::run(verb, &connect().await?).await,
        Verb::Compact(args) => compact::run(args, output).await,
        Verb::Counter(args) => counter::run(args, &global, output).await,
        Verb::WorkGuard => Ok(()), // ended before the runtime started
        Verb::Work(args) => work::run(args, &connect().await?).await,
        Verb::Check(args) => check::run(args, &connect().await?).await,
        Verb::Health(args) => health::run(args, &global, output).await,
        Verb::Store(verb) => store::run(verb, output).await,
        Verb::Token(verb) => token::run(verb, output),
        Verb::Auth(verb) => auth::run(verb, output),
        Verb::Demo(Demo::Flights(args)) => demo::flights(args, global.named_server(), output).await,
        Verb::Bench(args) => bench::run(args, output).await,
        Verb::Completions(args) => completions::run(args, &mut Cli::command(), output),
    }
}
