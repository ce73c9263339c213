//! One file per figure, or per group that is measured alike. A figure starts a Redis of its own, measures both sides
//! in turn, and gives its rows; it neither judges nor prints.

mod batches;
mod depth;
mod filter;
mod idle;
mod latency;
mod locked;
mod memory;
mod rounds;
mod unary;
mod work;

use crate::machine::Machine;
use crate::plan::{BATCH, CALLERS, CLIENTS, CONNECTIONS, PAYLOAD_BYTES, Plan, QueueArgs, RETENTION_MS};
use crate::report::{self, Row, Settings};
use crate::rig::Rig;
use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;

/// A figure of docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Batches of 32, 8 clients, simple queue, beside the raw-Redis floor
    Simple,
    /// The same on an exclusive queue with 100K keys
    Exclusive,
    /// Work stream: 64 workers with one message each in hand, beside BullMQ's Worker
    Work,
    /// Enqueue with one message per call, 64 callers, beside BullMQ's add
    Unary,
    /// From enqueue to delivery to a waiting worker, at 5,000 messages/s
    Latency,
    /// Dequeue rate with 10M pending, beside that with 10K
    Depth,
    /// Dequeue rate with 100K locked keys, ten waiting behind each, beside that with none
    Locked,
    /// Filtered dequeue where one in 10,000 matches, beside an unfiltered one
    Filter,
    /// Redis memory per pending message beyond its payload
    Memory,
    /// Redis calls per second while 1,000 workers wait
    Idle,
}

impl Figure {
    /// What the command line and the rows call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Figure::Simple => "simple",
            Figure::Exclusive => "exclusive",
            Figure::Work => "work",
            Figure::Unary => "unary",
            Figure::Latency => "latency",
            Figure::Depth => "depth",
            Figure::Locked => "locked",
            Figure::Filter => "filter",
            Figure::Memory => "memory",
            Figure::Idle => "idle",
        }
    }

    async fn measure(self, plan: &Plan, rig: &Rig) -> Result<Vec<Row>> {
        match self {
            Figure::Simple => batches::simple(plan, rig).await,
            Figure::Exclusive => batches::exclusive(plan, rig).await,
            Figure::Work => work::measure(plan, rig).await,
            Figure::Unary => unary::measure(plan, rig).await,
            Figure::Latency => latency::measure(plan, rig).await,
            Figure::Depth => depth::measure(plan, rig).await,
            Figure::Locked => locked::measure(plan, rig).await,
            Figure::Filter => filter::measure(plan, rig).await,
            Figure::Memory => memory::measure(plan, rig).await,
            Figure::Idle => idle::measure(plan, rig).await,
        }
    }
}

/// Measures the figures that are asked for and prints their rows; after a failure those that were measured before it.
pub(crate) async fn run(args: QueueArgs) -> Result<()> {
    let plan = Plan::new(args);
    let machine = Machine::look(&std::env::temp_dir())?;
    let mut redis_version = String::new();
    let (rows, outcome) = each(&plan.args.only, async |figure: Figure| {
        let rig = Rig::start().await?;
        redis_version = rig.version().await?;
        let measured = figure.measure(&plan, &rig).await;
        rig.stop().await;
        measured
    })
    .await;
    report::print(&rows, &machine, &settings(&plan, &redis_version), plan.args.json)?;
    outcome
}

/// Measures the figures that are asked for (none: all) until one fails; the rows of those before it.
pub(crate) async fn each<F: ValueEnum + PartialEq>(
    only: &[F],
    mut measure: impl AsyncFnMut(F) -> Result<Vec<Row>>,
) -> (Vec<Row>, Result<()>) {
    let mut rows = Vec::new();
    for figure in F::value_variants().iter().filter(|figure| only.is_empty() || only.contains(figure)) {
        let name = figure.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        eprintln!("bench: {name} …");
        match measure(figure.clone()).await {
            Ok(measured) => rows.extend(measured),
            Err(error) => return (rows, Err(error.context(format!("figure {name}")))),
        }
    }
    (rows, Ok(()))
}

fn settings(plan: &Plan, redis_version: &str) -> Settings {
    let runs = plan.runs;
    Settings {
        fields: json!({
            "redis_version": redis_version,
            "appendfsync": "always",
            "payload_bytes": PAYLOAD_BYTES,
            "batch": BATCH,
            "clients": CLIENTS,
            "callers": CALLERS,
            "caller_connections": CONNECTIONS,
            "terminal_retention_ms": RETENTION_MS,
            "runs": runs,
        }),
        line: format!(
            "Redis {redis_version}, appendfsync always, {PAYLOAD_BYTES}-byte payloads, random priorities, outbox on, \
             completed messages collected after {RETENTION_MS} ms; median of {runs}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_named_as_on_the_command_line() {
        for figure in Figure::value_variants() {
            assert_eq!(figure.to_possible_value().unwrap().get_name(), figure.name());
        }
    }
}
