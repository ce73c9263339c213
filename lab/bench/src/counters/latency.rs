//! Single calls at a steady rate: AddCount, and GetCount of counters that are rolled up. The latency of a call counts from
//! its scheduled time.

use super::adds::{AddSource, CounterMix, now_ms};
use super::load::Adder;
use super::plan::{BATCH, CONNECTIONS, CountersPlan};
use super::service::{Caller, CountersUnderTest, NAMESPACE};
use crate::pace::Pace;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Samples, TimedStats};
use anyhow::{Result, ensure};
use futures::future::{BoxFuture, FutureExt};
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::NamespaceConfig;
use tallystone_proto::counter::v1::{AddCountRequest, GetCountRequest, IdempotencyToken};

/// The time limit for the first rollup of all counters.
const ROLLED_UP_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn add(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::zipf(plan.sizes.counters);
    let (mut samples, mut rates) = (Samples::new(), Vec::new());
    for run in 0..plan.runs {
        rig.flush().await?;
        let service = CountersUnderTest::start_on_own_threads(plan, rig, NamespaceConfig::default()).await?;
        let (callers, source) = (service.callers(CONNECTIONS).await?, AddSource::new(&counters, run.into()));
        let calls = pace(plan).run(added(callers, source));
        note(plan.profiled(rig, "ours, AddCount", calls).await?, &mut samples, &mut rates);
        service.stop().await?;
    }
    Ok(vec![row(plan, "AddCount with a token", &samples, rates, 10.0)])
}

/// Makes one add with each call.
pub(super) fn added(
    callers: Vec<Caller>,
    mut source: AddSource,
) -> impl FnMut(u64) -> BoxFuture<'static, Result<()>> + Send + 'static {
    move |number| {
        let Caller(mut calls) = callers[number as usize % callers.len()].clone();
        let add = source.add();
        let token = add.token.map(|token| IdempotencyToken { token, generation_time_ms: now_ms() as i64 });
        let request = AddCountRequest {
            namespace: NAMESPACE.to_owned(),
            counter: add.counter,
            delta: add.delta,
            token,
            ..Default::default()
        };
        let add = async move {
            ensure!(!calls.add_count(request).await?.into_inner().duplicate, "a fresh token was a duplicate");
            Ok(())
        };
        add.boxed()
    }
}

pub(super) async fn get(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::zipf(plan.sizes.counters);
    let near = plan.sizes.namespace(plan.sizes.near_coalesce_ms);
    let (mut samples, mut rates) = (Samples::new(), Vec::new());
    for run in 0..plan.runs {
        rig.flush().await?;
        let service = CountersUnderTest::start_on_own_threads(plan, rig, near.clone()).await?;
        fill(&service, &counters).await?;
        let (callers, mut source) = (service.callers(CONNECTIONS).await?, AddSource::new(&counters, run.into()));
        let calls = pace(plan).run(move |number| {
            let Caller(mut calls) = callers[number as usize % callers.len()].clone();
            let (namespace, counter) = (NAMESPACE.to_owned(), source.counter());
            let request = GetCountRequest { namespace, counter, ..Default::default() };
            async move {
                let got = calls.get_count(request).await?.into_inner();
                ensure!(got.count > 0 && got.exact_to_ms > 0, "a counter that is rolled up returned {got:?}");
                Ok(())
            }
        });
        note(plan.profiled(rig, "ours, GetCount", calls).await?, &mut samples, &mut rates);
        service.stop().await?;
    }
    Ok(vec![row(plan, "GetCount", &samples, rates, 3.0)])
}

/// Adds once to each counter and waits until every counter is rolled up.
pub(super) async fn fill(service: &CountersUnderTest, counters: &Arc<CounterMix>) -> Result<()> {
    let mut source = AddSource::new(counters, 0);
    let mut caller = service.callers(1).await?.remove(0);
    for names in counters.names().chunks(BATCH) {
        let mut adds = source.adds(names.len());
        adds.iter_mut().zip(names).for_each(|(add, name)| add.counter.clone_from(name));
        caller.add(adds).await?;
    }
    // Each counter has one add: its first rollup includes it.
    service.rolled_up(counters.names(), 1, ROLLED_UP_LIMIT).await?;
    Ok(())
}

fn pace(plan: &CountersPlan) -> Pace {
    Pace::lasting(plan.sizes.per_s as f64, plan.sizes.latency).after(plan.sizes.warm_up)
}

pub(super) fn note(total: TimedStats, samples: &mut Samples, rates: &mut Vec<f64>) {
    samples.push(total.stats.sample(total.stats.quantile_ms(0.99).unwrap_or_default()));
    rates.push(total.rate().value.round());
}

fn row(plan: &CountersPlan, call: &str, samples: &Samples, rates: Vec<f64>, goal_ms: f64) -> Row {
    let what = format!("{call} at {}/s: p99", grouped(plan.sizes.per_s));
    Row::new(what, "ms", samples, Reference::None, Goal::Below(goal_ms))
        .with("rates_reached_per_s", rates)
        .with("seconds", plan.sizes.latency.as_secs_f64())
        .with("warm_up_seconds", plan.sizes.warm_up.as_secs_f64())
        .with("connections", CONNECTIONS)
}
