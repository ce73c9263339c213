//! Adds per second, in batches: eventual counters by Zipf's law beside the raw Redis with tokens, all adds on one counter
//! beside those, and best-effort counters beside the raw INCRBY.

use super::adds::{Counters, Source};
use super::load::add_all;
use super::plan::{BATCH, CALLERS, CountersPlan};
use super::raw::Raw;
use super::service::{Rollups, Service};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples, Total};
use anyhow::Result;
use std::sync::Arc;
use tallystone_client::{CounterType, NamespaceConfig};

/// Who counts.
#[derive(Clone, Copy)]
enum Side {
    Eventual,
    BestEffort,
    RawTokens,
    RawCounts,
}

/// The samples of one side, and what each wrote into Redis's file.
#[derive(Default)]
struct Measured {
    samples: Samples,
    file_bytes_per_add: Vec<f64>,
}

impl Measured {
    async fn sample(&mut self, plan: &CountersPlan, rig: &Rig, side: Side, counters: &Arc<Counters>) -> Result<()> {
        let (sample, file_bytes) = sample(plan, rig, side, counters).await?;
        self.samples.push(sample);
        self.file_bytes_per_add.push((file_bytes / plan.sizes.adds as f64).round());
        Ok(())
    }
}

/// Both, in turn.
async fn side_by_side(
    plan: &CountersPlan,
    rig: &Rig,
    ours: (Side, &Arc<Counters>),
    reference: (Side, &Arc<Counters>),
) -> Result<[Measured; 2]> {
    let mut both = [Measured::default(), Measured::default()];
    for _ in 0..plan.runs {
        for (measured, (side, counters)) in both.iter_mut().zip([ours, reference]) {
            measured.sample(plan, rig, side, counters).await?;
        }
    }
    Ok(both)
}

pub(super) async fn zipf(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = Counters::zipf(plan.sizes.counters);
    let [ours, raw] = side_by_side(plan, rig, (Side::Eventual, &counters), (Side::RawTokens, &counters)).await?;
    let what = format!("AddCounts with tokens, {}", of(&counters));
    let reference = ("raw SET NX EX + HINCRBY", &raw);
    Ok(vec![
        row(plan, &what, &ours, None, Goal::AtLeast(100_000.0)),
        row(plan, &what, &ours, Some(reference), Goal::RatioAtLeast(0.6)),
    ])
}

pub(super) async fn one(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (single, many) = (Counters::zipf(1), Counters::zipf(plan.sizes.counters));
    let [ours, spread] = side_by_side(plan, rig, (Side::Eventual, &single), (Side::Eventual, &many)).await?;
    let what = format!("AddCounts with tokens, {}", of(&single));
    let name = format!("ours, {}", of(&many));
    let goal = Goal::RatioAtLeast(0.8);
    Ok(vec![row(plan, &what, &ours, Some((&name, &spread)), goal)])
}

pub(super) async fn best_effort(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = Counters::zipf(plan.sizes.counters);
    let [ours, raw] = side_by_side(plan, rig, (Side::BestEffort, &counters), (Side::RawCounts, &counters)).await?;
    let what = format!("AddCounts, best effort, {}", of(&counters));
    let goal = Goal::RatioAtLeast(0.8);
    Ok(vec![row(plan, &what, &ours, Some(("raw INCRBY", &raw)), goal)])
}

fn of(counters: &Counters) -> String {
    match counters.names().len() {
        1 => "one counter".to_owned(),
        count => format!("{} counters", grouped(count as u64)),
    }
}

fn row(plan: &CountersPlan, what: &str, ours: &Measured, reference: Option<(&str, &Measured)>, goal: Goal) -> Row {
    let measured = reference.map(|(name, reference)| Reference::Measured(name, &reference.samples));
    let what = format!("{what}, batches of {BATCH}");
    let row = Row::new(what, "adds/s", &ours.samples, measured.unwrap_or(Reference::None), goal)
        .with("adds", plan.sizes.adds)
        .with("file_bytes_per_add", ours.file_bytes_per_add.clone());
    match reference {
        Some((_, reference)) => row.with("reference_file_bytes_per_add", reference.file_bytes_per_add.clone()),
        None => row,
    }
}

fn typed(counter_type: CounterType) -> NamespaceConfig {
    NamespaceConfig { counter_type: Some(counter_type), ..NamespaceConfig::default() }
}

/// The rate, and by how much Redis's file grew.
async fn sample(plan: &CountersPlan, rig: &Rig, side: Side, counters: &Arc<Counters>) -> Result<(Sample, f64)> {
    rig.flush().await?;
    let adds = plan.sizes.adds;
    let source = |seed| {
        // Callers that are faster than others draw what is beyond that as they go.
        let source = Source::new(counters, seed).drawn_ahead(adds as usize / CALLERS * 5 / 4);
        match side {
            Side::Eventual | Side::RawTokens => source,
            Side::BestEffort | Side::RawCounts => source.without_tokens(),
        }
    };
    let service = match side {
        Side::Eventual => Service::start(plan, rig, typed(CounterType::Eventual), Rollups::by_worker()).await?,
        // Redis is not what it waits for: its callers and the service have a thread each.
        Side::BestEffort => Service::start_apart(plan, rig, typed(CounterType::BestEffort)).await?,
        Side::RawTokens | Side::RawCounts => {
            let callers = Raw::callers(rig, CALLERS).await?;
            return written(rig, plan.profiled(rig, "raw", add_all(callers, adds, source))).await;
        }
    };
    let callers = service.callers(CALLERS).await?;
    let measured = written(rig, plan.profiled(rig, "ours", add_all(callers, adds, source))).await?;
    service.stop().await?;
    Ok(measured)
}

async fn written(rig: &Rig, load: impl Future<Output = Result<Total>>) -> Result<(Sample, f64)> {
    let before = rig.info_number("persistence", "aof_current_size").await?;
    let total = load.await?;
    Ok((total.rate(), rig.info_number("persistence", "aof_current_size").await? - before))
}
