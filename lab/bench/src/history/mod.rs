//! `tallystone bench history`: the figures of the history.
//!
//! What lives here: one file per figure, the synthetic events that they load (`lives`), and what they run on: Kafka and
//! Elasticsearch (`services`), our own programs with their CPU and memory (`process`). What may not live here: figures of
//! the queue, and another way to sample, judge or print.

mod embedded;
mod indexer;
mod lives;
mod memory;
mod plan;
mod process;
mod relay;
mod rollover;
mod searchable;
mod services;
mod straight;

pub use plan::{HistoryArgs, HistoryFigure};

use crate::report::{Row, Settings};
use crate::run::{RunArgs, Suite};
use anyhow::Result;
use plan::HistoryPlan;
use serde_json::json;
use services::Services;

/// The figures of the history, and the services that they share.
pub(crate) struct HistorySuite {
    plan: HistoryPlan,
    services: Services,
}

impl HistorySuite {
    pub(crate) fn new(args: HistoryArgs) -> Result<HistorySuite> {
        Ok(HistorySuite { plan: HistoryPlan::new(args), services: Services::new()? })
    }
}

impl Suite for HistorySuite {
    type Figure = HistoryFigure;
    const VERB: &'static str = "history";

    fn args(&self) -> &RunArgs<HistoryFigure> {
        &self.plan.args.run
    }

    fn size_arguments(&self) -> Vec<String> {
        vec!["--events".to_owned(), self.plan.sizes.events.to_string()]
    }

    async fn measure(&mut self, figure: HistoryFigure) -> Result<Vec<Row>> {
        let (plan, services) = (&self.plan, &self.services);
        let rows = match figure {
            HistoryFigure::Embedded => embedded::measure(plan).await,
            HistoryFigure::Relay => relay::measure(plan, services).await,
            HistoryFigure::Indexer => indexer::measure(plan, services).await,
            HistoryFigure::Searchable => searchable::measure(plan, services).await,
            HistoryFigure::Rollover => rollover::measure(plan, services).await,
            HistoryFigure::Memory => memory::measure(plan, services).await,
        };
        let load = process::load_average()?;
        Ok(rows?.into_iter().map(|row| row.with("load_average_1m", load)).collect())
    }

    async fn finish(self) -> Settings {
        self.services.stop().await;
        let runs = self.plan.runs;
        Settings {
            fields: json!({
                "appendfsync": "always",
                "kafka": services::KAFKA,
                "elasticsearch": services::ELASTICSEARCH,
                "events": self.plan.sizes.events,
                "runs": runs,
            }),
            line: format!(
                "Redis with appendfsync always, {}, {}, SQLite in WAL mode with synchronous FULL; median of {runs}",
                services::KAFKA,
                services::ELASTICSEARCH
            ),
        }
    }
}
