//! `tallystone bench counters`: the figures of the counters, on the whole service with its queue and its worker.
//!
//! What lives here: one file per figure, what is added to which counter (`adds`), loads that are bounded (`load`), the
//! service under test (`service`) and the raw Redis beside it (`raw`). What may not: a second way to sample, judge or
//! print: `sample` and `report` are those of all figures.

mod add_rate;
mod adds;
mod jobs;
mod lag;
mod latency;
mod load;
mod memory;
mod plan;
mod raw;
mod service;

pub use plan::CountersArgs;

use crate::figures::each;
use crate::machine::Machine;
use crate::report::{self, Row, Settings};
use crate::rig::Rig;
use anyhow::Result;
use clap::ValueEnum;
use plan::{BATCH, CALLERS, CONNECTIONS, CountersPlan};
use serde_json::json;

/// A figure of the counters in docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum CounterFigure {
    /// AddCounts with tokens in batches of 64, eventual counters by Zipf's law, beside SET NX EX + HINCRBY in pipelines
    Adds,
    /// The same, all on one counter, beside those by Zipf's law
    AddsOne,
    /// AddCount, one per call, at a steady rate
    AddLatency,
    /// GetCount, one per call, at a steady rate
    GetLatency,
    /// From an add until the count has it, under load
    Lag,
    /// AddCounts of best-effort counters in batches of 64, beside INCRBY in pipelines
    BestEffort,
    /// Rollups of a thousand adds to one counter within a window
    Jobs,
    /// Redis memory per event that is not rolled up, and per idle counter
    Memory,
}

impl CounterFigure {
    /// What the command line and the rows call it.
    fn name(self) -> &'static str {
        match self {
            CounterFigure::Adds => "adds",
            CounterFigure::AddsOne => "adds_one",
            CounterFigure::AddLatency => "add_latency",
            CounterFigure::GetLatency => "get_latency",
            CounterFigure::Lag => "lag",
            CounterFigure::BestEffort => "best_effort",
            CounterFigure::Jobs => "jobs",
            CounterFigure::Memory => "memory",
        }
    }

    async fn measure(self, plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
        match self {
            CounterFigure::Adds => add_rate::zipf(plan, rig).await,
            CounterFigure::AddsOne => add_rate::one(plan, rig).await,
            CounterFigure::AddLatency => latency::add(plan, rig).await,
            CounterFigure::GetLatency => latency::get(plan, rig).await,
            CounterFigure::Lag => lag::measure(plan, rig).await,
            CounterFigure::BestEffort => add_rate::best_effort(plan, rig).await,
            CounterFigure::Jobs => jobs::measure(plan, rig).await,
            CounterFigure::Memory => memory::measure(plan, rig).await,
        }
    }
}

/// Measures the figures that are asked for and prints their rows; after a failure those that were measured before it.
pub(crate) async fn run(args: CountersArgs) -> Result<()> {
    let plan = CountersPlan::new(args);
    let machine = Machine::look(&std::env::temp_dir())?;
    let mut redis_version = String::new();
    let (rows, outcome) = each(&plan.args.only, async |figure: CounterFigure| {
        let rig = Rig::start().await?;
        redis_version = rig.version().await?;
        let measured = figure.measure(&plan, &rig).await;
        rig.stop().await;
        measured
    })
    .await;
    let (runs, counters) = (plan.runs, plan.sizes.counters);
    let settings = Settings {
        fields: json!({
            "redis_version": redis_version,
            "appendfsync": "always",
            "counters": counters,
            "batch": BATCH,
            "callers": CALLERS,
            "connections": CONNECTIONS,
            "runs": runs,
        }),
        line: format!(
            "Redis {redis_version}, appendfsync always on both sides; {} counters, batches of {BATCH} by {CALLERS} \
             callers; queue, counters and one worker share the Redis; median of {runs}",
            report::grouped(counters as u64)
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
        for figure in CounterFigure::value_variants() {
            assert_eq!(figure.to_possible_value().expect("it can be chosen").get_name(), figure.name());
        }
    }
}
