//! `tallystone bench`: the figures of docs/performance.md. Each is measured together with its reference in one run.
//!
//! What lives here: load generators, the references (the raw-Redis `floor`, other queues in `peers`), one file per figure
//! in `queue`, `history`, `counters`, `compact`, `local` and `views`, one way to run figures (`run`) and to print them (`report`), and the comparison
//! of two builds (`against`). What may not live here: anything that the service needs to run. The bench checks that no
//! call fails; correctness beyond that is the tests' task.

mod against;
mod child;
mod compact;
mod counters;
mod curve;
mod floor;
mod history;
mod load;
mod local;
mod machine;
mod ours;
mod outcome;
mod own_threads;
mod pace;
mod peers;
mod profile;
mod program;
mod programs;
mod queue;
mod report;
mod rig;
mod run;
mod sample;
mod shape;
mod views;
mod zipf;

pub use compact::{CompactArgs, CompactFigure};
pub use counters::{CounterFigure, CountersArgs};
pub use history::{HistoryArgs, HistoryFigure};
pub use local::{LocalArgs, LocalFigure};
pub use outcome::BenchOutcome;
pub use queue::{QueueArgs, QueueFigure};
pub use run::RunArgs;
pub use views::{ViewFigure, ViewsArgs};

use clap::{Args, Subcommand};
use std::pin::Pin;

/// Arguments of `tallystone bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// What can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchVerb {
    /// Measure the queue; references: minimal Lua scripts on Redis, BullMQ and beanstalkd
    Queue(QueueArgs),
    /// Measure history: the relay, Kafka, the indexer, Elasticsearch and the embedded store
    History(HistoryArgs),
    /// Measure the counters: adds, reads, rollups and memory; reference: plain Redis commands
    Counters(CountersArgs),
    /// Measure the compact counter store: memory, increments, reads, cold tables, restarts; reference: the engine's own types
    Compact(CompactArgs),
    /// Measure counters inside a process: adds, and what they cost the service; references: an atomic integer, DashMap
    Local(LocalArgs),
    /// Measure views over HTTP/2: their rate, lag, reads, memory; references: XADD, SET NX EX
    Views(ViewsArgs),
}

impl BenchArgs {
    /// Prints JSON, as if the verb had been given `--json`.
    pub fn print_json(&mut self) {
        match &mut self.verb {
            BenchVerb::Queue(args) => args.run.json = true,
            BenchVerb::History(args) => args.run.json = true,
            BenchVerb::Counters(args) => args.run.json = true,
            BenchVerb::Compact(args) => args.run.json = true,
            BenchVerb::Local(args) => args.run.json = true,
            BenchVerb::Views(args) => args.run.json = true,
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// A call or a service failed. A missed goal is not an error.
///
/// The future is boxed because a crate that awaits an `async fn` of another crate compiles its own copy of all of it.
pub fn run(args: BenchArgs) -> Pin<Box<dyn Future<Output = anyhow::Result<BenchOutcome>>>> {
    Box::pin(async {
        match args.verb {
            BenchVerb::Queue(args) => run::run(queue::QueueSuite::new(args)).await,
            BenchVerb::History(args) => run::run(history::HistorySuite::new(args)?).await,
            BenchVerb::Counters(args) => run::run(counters::CounterSuite::new(args)).await,
            BenchVerb::Compact(args) => run::run(compact::CompactSuite::new(args)?).await,
            BenchVerb::Local(args) => run::run(local::LocalSuite::new(args)).await,
            BenchVerb::Views(args) => run::run(views::ViewsSuite::new(args)).await,
        }
    })
}
