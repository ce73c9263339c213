//! `tallystone bench`: the figures of docs/performance.md, ours and the reference side by side in one run.
//!
//! What lives here: load generators, the references they run against (the raw-Redis `floor` and the `peers`),
//! one file per figure under `figures`, `history` and `counters`, and the table that comes out. What may not: anything that the service
//! needs to run, and any judgement of correctness beyond "no call failed" (the tests see to that).

mod counters;
mod figures;
mod floor;
mod history;
mod load;
mod machine;
mod ours;
mod peers;
mod plan;
mod profile;
mod report;
mod rig;
mod sample;

pub use counters::{CounterFigure, CountersArgs};
pub use figures::Figure;
pub use history::{HistoryArgs, HistoryFigure};
pub use plan::{BenchArgs, QueueArgs, Verb};

/// Runs what the arguments ask for and prints it. A goal that is missed is no error; a call that fails is.
pub async fn run(args: BenchArgs) -> anyhow::Result<()> {
    match args.verb {
        Verb::Queue(args) => figures::run(args).await,
        Verb::History(args) => history::run(args).await,
        Verb::Counters(args) => counters::run(args).await,
    }
}
