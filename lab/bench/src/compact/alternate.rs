//! Loads that alternate on one engine, and the rows that compare them.

use super::engine::Engine;
use super::generator::{self, Driven, Pipelines};
use super::plan::{CONNECTIONS, CompactPlan};
use crate::report::{Goal, Reference, Row};
use crate::sample::{Samples, median};
use anyhow::Result;
use std::sync::Arc;
use std::time::Duration;

/// What one kind of load measured.
#[derive(Default)]
pub(super) struct Side {
    pub(super) samples: Samples,
    generator: Vec<f64>,
    engine: Vec<f64>,
    engine_ns: Vec<f64>,
}

impl Side {
    pub(super) fn push(&mut self, driven: &Driven) {
        self.samples.push(driven.rate());
        self.generator.push(driven.generator);
        self.engine.push(driven.engine);
        self.engine_ns.push(driven.engine_ns);
    }

    /// Shares of a core, and the engine's time for an item, for `--json`.
    fn detail(&self, row: Row, side: &str) -> Row {
        let two = |value: f64| (value * 100.0).round() / 100.0;
        row.with(&format!("{side}_generator_cores"), two(median(&self.generator)))
            .with(&format!("{side}_engine_cores"), two(median(&self.engine)))
            .with(&format!("{side}_engine_ns_per_item"), median(&self.engine_ns).round())
    }

    /// A row that compares this side with another.
    pub(super) fn row(&self, what: String, unit: &'static str, name: &str, other: &Side, goal: Goal) -> Row {
        let reference = Reference::Measured(name, &other.samples);
        let row = Row::new(what, unit, &self.samples, reference, goal);
        other.detail(self.detail(row, "ours"), "reference")
    }
}

/// One sample of a load on this number of connections.
pub(super) async fn sample(
    engine: &Engine,
    pipelines: &Arc<Pipelines>,
    connections: usize,
    time: Duration,
) -> Result<Driven> {
    let (port, pid, pipelines) = (engine.port(), engine.pid(), pipelines.clone());
    tokio::task::spawn_blocking(move || generator::drive(port, pid, &pipelines, connections, time)).await?
}

/// Measures the loads in turn, forwards and backwards, and prints on stderr what each took.
pub(super) async fn alternate<const N: usize>(
    plan: &CompactPlan,
    engine: &Engine,
    loads: [&Arc<Pipelines>; N],
) -> Result<[Side; N]> {
    let mut sides = [(); N].map(|()| Side::default());
    for run in 0..plan.runs {
        for step in 0..N {
            let place = if run % 2 == 0 { step } else { N - 1 - step };
            sample(engine, loads[place], CONNECTIONS, plan.warm_up).await?;
            let driven = sample(engine, loads[place], CONNECTIONS, plan.time).await?;
            say(loads[place], &driven);
            sides[place].push(&driven);
        }
    }
    Ok(sides)
}

/// The generator must not be the limit: this shows it.
fn say(pipelines: &Pipelines, driven: &Driven) {
    let Driven { generator, engine, engine_ns, .. } = driven;
    let (rate, op) = (driven.rate().value, pipelines.op());
    let percent = |share: f64| (100.0 * share).round();
    let (generator, engine) = (percent(*generator), percent(*engine));
    eprintln!(
        "  {op:?}: {rate:.0}/s, {engine_ns:.0} ns of the engine each; engine {engine} %, generator {generator} % of a core"
    );
}
