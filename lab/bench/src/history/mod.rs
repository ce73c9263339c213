//! `tallystone bench history`: the figures of the history, each on services of our own.
//!
//! What lives here: one file per figure, the made-up events that they load (`lives`), and what they stand on: Kafka and
//! Elasticsearch (`services`), programs of ours and their use of CPU and memory (`process`). What may not: figures of
//! the queue itself, and a second way to sample, judge or print: `sample` and `report` are those of all figures.

mod beside;
mod embedded;
mod indexer;
mod lives;
mod memory;
mod plan;
mod process;
mod relay;
mod searchable;
mod services;
mod straight;

pub use plan::HistoryArgs;

use crate::figures::each;
use crate::machine::Machine;
use crate::report::{self, Row, Settings};
use anyhow::Result;
use clap::ValueEnum;
use plan::HistoryPlan;
use serde_json::json;
use services::Services;

/// A figure of the history in docs/performance.md. In this order: no figure pays for a service that only later ones need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryFigure {
    /// The embedded store: events recorded per second, and TraceMessage among them
    Embedded,
    /// The queue's throughput with a relay into Kafka, or into the embedded store, beside that without
    Relay,
    /// From Kafka into Elasticsearch by the indexer, beside the same documents sent straight
    Indexer,
    /// From a transition until it is found, at 2,000 events/s
    Searchable,
    /// Memory of the relay and of the indexer while they catch up
    Memory,
}

impl HistoryFigure {
    /// What the command line and the rows call it.
    fn name(self) -> &'static str {
        match self {
            HistoryFigure::Embedded => "embedded",
            HistoryFigure::Relay => "relay",
            HistoryFigure::Indexer => "indexer",
            HistoryFigure::Searchable => "searchable",
            HistoryFigure::Memory => "memory",
        }
    }

    async fn measure(self, plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
        match self {
            HistoryFigure::Embedded => embedded::measure(plan).await,
            HistoryFigure::Relay => relay::measure(plan, services).await,
            HistoryFigure::Indexer => indexer::measure(plan, services).await,
            HistoryFigure::Searchable => searchable::measure(plan, services).await,
            HistoryFigure::Memory => memory::measure(plan, services).await,
        }
    }
}

/// Measures the figures that are asked for and prints their rows; after a failure those that were measured before it.
pub(crate) async fn run(args: HistoryArgs) -> Result<()> {
    let plan = HistoryPlan::new(args);
    let machine = Machine::look(&std::env::temp_dir())?;
    let services = Services::new()?;
    let (rows, outcome) = each(&plan.args.only, async |figure: HistoryFigure| {
        let rows = figure.measure(&plan, &services).await?;
        let load = process::load_average()?;
        Ok(rows.into_iter().map(|row| row.with("load_average_1m", load)).collect())
    })
    .await;
    services.stop().await;
    let runs = plan.runs;
    let settings = Settings {
        fields: json!({
            "kafka": services::KAFKA,
            "elasticsearch": services::ELASTICSEARCH,
            "runs": runs,
        }),
        line: format!(
            "Redis with appendfsync always, {}, {}, SQLite in WAL mode with synchronous FULL; median of {runs}",
            services::KAFKA,
            services::ELASTICSEARCH
        ),
    };
    report::print(&rows, &machine, &settings, plan.args.json)?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_named_as_on_the_command_line() {
        for figure in HistoryFigure::value_variants() {
            assert_eq!(figure.to_possible_value().expect("it can be chosen").get_name(), figure.name());
        }
    }
}
