//! Adds per second, in batches: eventual counters by Zipf's law beside the raw Redis with tokens, all adds on one counter
//! beside those, and best-effort counters beside the raw INCRBY.

use super::CounterFigure;
use super::adds::Counters;
use super::load::add_all;
use super::plan::{BATCH, CALLERS, CountersPlan};
use super::raw::Raw;
use super::service::{Rollups, Service};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::sync::Arc;
use tallystone_client::{CounterType, NamespaceConfig};

/// One side of a figure.
#[derive(Clone, Copy)]
enum Side {
    Eventual,
    BestEffort,
    RawTokens,
    RawCounts,
}

pub(super) async fn zipf(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = Counters::zipf(plan.sizes.counters);
    let [mut ours, mut raw] = [const { Samples::new() }; 2];
    for _ in 0..plan.runs {
        ours.push(sample(plan, rig, Side::Eventual, &counters).await?);
        raw.push(sample(plan, rig, Side::RawTokens, &counters).await?);
    }
    let row = |reference, goal| {
        let what =
            format!("AddCounts with tokens, {} counters, batches of {BATCH}", grouped(counters.names().len() as u64));
        Row::new(CounterFigure::Adds.name(), what, "adds/s", &ours, reference, goal).with("adds", plan.sizes.adds)
    };
    Ok(vec![
        row(Reference::None, Goal::AtLeast(100_000.0)),
        row(Reference::Measured("raw SET NX EX + HINCRBY", &raw), Goal::RatioAtLeast(0.6)),
    ])
}

pub(super) async fn one(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (single, many) = (Counters::zipf(1), Counters::zipf(plan.sizes.counters));
    let [mut ours, mut spread] = [const { Samples::new() }; 2];
    for _ in 0..plan.runs {
        ours.push(sample(plan, rig, Side::Eventual, &single).await?);
        spread.push(sample(plan, rig, Side::Eventual, &many).await?);
    }
    let what = format!("AddCounts with tokens, one counter, batches of {BATCH}");
    let name = format!("ours, {} counters", grouped(many.names().len() as u64));
    let reference = Reference::Measured(&name, &spread);
    let row = Row::new(CounterFigure::AddsOne.name(), what, "adds/s", &ours, reference, Goal::RatioAtLeast(0.8));
    Ok(vec![row.with("adds", plan.sizes.adds)])
}

pub(super) async fn best_effort(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = Counters::zipf(plan.sizes.counters);
    let [mut ours, mut raw] = [const { Samples::new() }; 2];
    for _ in 0..plan.runs {
        ours.push(sample(plan, rig, Side::BestEffort, &counters).await?);
        raw.push(sample(plan, rig, Side::RawCounts, &counters).await?);
    }
    let what =
        format!("AddCounts, best effort, {} counters, batches of {BATCH}", grouped(counters.names().len() as u64));
    let reference = Reference::Measured("raw INCRBY", &raw);
    let row = Row::new(CounterFigure::BestEffort.name(), what, "adds/s", &ours, reference, Goal::RatioAtLeast(0.8));
    Ok(vec![row.with("adds", plan.sizes.adds)])
}

async fn sample(plan: &CountersPlan, rig: &Rig, side: Side, counters: &Arc<Counters>) -> Result<Sample> {
    rig.flush().await?;
    let adds = plan.sizes.adds;
    let config = match side {
        Side::Eventual => NamespaceConfig::default(),
        Side::BestEffort => {
            NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() }
        }
        Side::RawTokens | Side::RawCounts => {
            let callers = match side {
                Side::RawTokens => Raw::with_tokens(rig, CALLERS).await?,
                _ => Raw::without(rig, CALLERS).await?,
            };
            return Ok(plan.profiled(rig, "raw", add_all(callers, adds, counters)).await?.rate());
        }
    };
    let service = Service::start(plan, rig, config, Rollups::by_worker()).await?;
    let callers = service.callers(CALLERS).await?;
    let total = plan.profiled(rig, "ours", add_all(callers, adds, counters)).await?;
    service.stop().await?;
    Ok(total.rate())
}
