//! Adds per second, in batches: eventual counters by Zipf's law, with raw Redis and tokens as reference; all adds to one
//! counter, with counters by Zipf's law as reference; and best-effort counters, with raw INCRBY as reference.

use super::adds::{AddSource, CounterMix};
use super::load::add_all;
use super::plan::{BATCH, CALLERS, CountersPlan};
use super::raw::Raw;
use super::service::{CountersUnderTest, Rollups};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples, TimedStats};
use anyhow::Result;
use std::sync::Arc;
use tallystone_client::{CounterType, NamespaceConfig};

/// What counts.
#[derive(Clone, Copy)]
enum Side {
    Eventual,
    BestEffort,
    RawTokens,
    RawCounts,
}

/// The samples of one side, and the bytes that each wrote into Redis's file.
#[derive(Default)]
struct SideSamples {
    samples: Samples,
    file_bytes_per_add: Vec<f64>,
}

impl SideSamples {
    async fn sample(&mut self, plan: &CountersPlan, rig: &Rig, side: Side, counters: &Arc<CounterMix>) -> Result<()> {
        let (sample, file_bytes) = sample(plan, rig, side, counters).await?;
        self.samples.push(sample);
        self.file_bytes_per_add.push((file_bytes / plan.sizes.adds as f64).round());
        Ok(())
    }
}

/// Measures both sides alternately.
async fn side_by_side(
    plan: &CountersPlan,
    rig: &Rig,
    ours: (Side, &Arc<CounterMix>),
    reference: (Side, &Arc<CounterMix>),
) -> Result<[SideSamples; 2]> {
    let mut both = [SideSamples::default(), SideSamples::default()];
    for _ in 0..plan.runs {
        for (measured, (side, counters)) in both.iter_mut().zip([ours, reference]) {
            measured.sample(plan, rig, side, counters).await?;
        }
    }
    Ok(both)
}

pub(super) async fn zipf(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::zipf(plan.sizes.counters);
    let [ours, raw] = side_by_side(plan, rig, (Side::Eventual, &counters), (Side::RawTokens, &counters)).await?;
    let what = format!("AddCounts with tokens, {}", of(&counters));
    let reference = ("raw SET NX EX + HINCRBY", &raw);
    Ok(vec![
        row(plan, &what, &ours, None, Goal::AtLeast(100_000.0)),
        row(plan, &what, &ours, Some(reference), Goal::RatioAtLeast(0.8)),
    ])
}

pub(super) async fn one(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (single, many) = (CounterMix::zipf(1), CounterMix::zipf(plan.sizes.counters));
    let [ours, spread] = side_by_side(plan, rig, (Side::Eventual, &single), (Side::Eventual, &many)).await?;
    let what = format!("AddCounts with tokens, {}", of(&single));
    let name = format!("ours, {}", of(&many));
    let goal = Goal::RatioAtLeast(0.8);
    Ok(vec![row(plan, &what, &ours, Some((&name, &spread)), goal)])
}

pub(super) async fn best_effort(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::zipf(plan.sizes.counters);
    let [ours, raw] = side_by_side(plan, rig, (Side::BestEffort, &counters), (Side::RawCounts, &counters)).await?;
    let what = format!("AddCounts, best effort, {}", of(&counters));
    let goal = Goal::RatioAtLeast(0.8);
    Ok(vec![row(plan, &what, &ours, Some(("raw INCRBY", &raw)), goal)])
}

fn of(counters: &CounterMix) -> String {
    match counters.names().len() {
        1 => "one counter".to_owned(),
        count => format!("{} counters", grouped(count as u64)),
    }
}

fn row(
    plan: &CountersPlan,
    what: &str,
    ours: &SideSamples,
    reference: Option<(&str, &SideSamples)>,
    goal: Goal,
) -> Row {
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

/// The rate, and the growth of Redis's file in bytes.
async fn sample(plan: &CountersPlan, rig: &Rig, side: Side, counters: &Arc<CounterMix>) -> Result<(Sample, f64)> {
    rig.flush().await?;
    let adds = plan.sizes.adds;
    let source = |seed| {
        // A caller that needs more draws them as it sends.
        let source = AddSource::new(counters, seed).drawn_ahead(adds as usize / CALLERS * 5 / 4);
        match side {
            Side::Eventual | Side::RawTokens => source,
            Side::BestEffort | Side::RawCounts => source.without_tokens(),
        }
    };
    let service = match side {
        Side::Eventual => {
            CountersUnderTest::start(plan, rig, typed(CounterType::Eventual), Rollups::by_worker()).await?
        }
        // Redis is not its limit: the callers and the service need a thread each.
        Side::BestEffort => CountersUnderTest::start_on_own_threads(plan, rig, typed(CounterType::BestEffort)).await?,
        Side::RawTokens | Side::RawCounts => {
            let callers = Raw::callers(rig, CALLERS).await?;
            return written(rig, plan.profiled(rig, "raw", add_all(callers, adds, BATCH, source))).await;
        }
    };
    let callers = service.callers(CALLERS).await?;
    let measured = written(rig, plan.profiled(rig, "ours", add_all(callers, adds, BATCH, source))).await?;
    service.stop().await?;
    Ok(measured)
}

async fn written(rig: &Rig, load: impl Future<Output = Result<TimedStats>>) -> Result<(Sample, f64)> {
    let before = rig.written().await?;
    let total = load.await?;
    Ok((total.rate(), rig.written().await? - before))
}
