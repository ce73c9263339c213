//! Single-counter requests of all kinds on a fixed schedule: the highest rate with a p99 below 10 ms, and the CPU that
//! 75,000 requests per second would need (the row of the counter paper).

use super::adds::{AddSource, CounterMix};
use super::latency::fill;
use super::plan::{CONNECTIONS, CountersPlan};
use super::service::{Caller, CountersUnderTest, NAMESPACE};
use crate::pace::Pace;
use crate::profile::threads_cpu_s;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples, TimedStats};
use anyhow::Result;
use serde_json::json;
use tallystone_client::NamespaceConfig;
use tallystone_proto::counter::v1::{AddAndGetCountRequest, AddCountRequest, ClearCountRequest, GetCountRequest};

/// The rates that are tried, until the first whose p99 is not below the limit (calls/s).
const RATES: [u64; 10] = [1_000, 2_000, 4_000, 6_000, 8_000, 10_000, 15_000, 20_000, 30_000, 40_000];
const P99_MS: f64 = 10.0;
/// The rate of the paper (calls/s).
const PAPER_PER_S: f64 = 75_000.0;
/// Of this number of calls in a row, one clears, the numbers below read, and add and read; all others add.
const ROUND: u64 = 20;
const READS: u64 = 4;
const ADD_AND_GETS: u64 = 3;

/// A rate that was tried.
struct Tried {
    total: TimedStats,
    /// CPU seconds of each call, of Redis, service, queue and worker together.
    cpu_s: f64,
}

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (mut rates, mut cores, mut tried_ms) = (Samples::new(), Samples::new(), Vec::new());
    for run in 0..plan.runs {
        // 0, if the lowest rate is too high already.
        let mut best_per_s = 0;
        let mut cpu_s = 0.0;
        for per_s in RATES.into_iter().take(plan.sizes.mixed_rates) {
            let tried = once(plan, rig, per_s, run.into()).await?;
            let p99_ms = tried.total.stats.quantile_ms(0.99).unwrap_or(f64::INFINITY);
            tried_ms.push(json!({"per_s": per_s, "p99_ms": p99_ms}));
            if p99_ms < P99_MS || best_per_s == 0 {
                cpu_s = tried.cpu_s;
            }
            if p99_ms >= P99_MS {
                break;
            }
            best_per_s = per_s;
        }
        rates.push(Sample { value: best_per_s as f64, ..Sample::default() });
        cores.push(Sample { value: cpu_s * PAPER_PER_S, ..Sample::default() });
    }
    let mix = format!("of {ROUND}: {READS} Get, {ADD_AND_GETS} AddAndGet, 1 Clear, otherwise Add");
    let what = format!("single calls ({mix}): highest rate tried with p99 < {P99_MS} ms");
    let needed = format!("the same: cores that {}/s would need", grouped(PAPER_PER_S as u64));
    Ok(vec![
        Row::new(what, "/s", &rates, Reference::None, Goal::None)
            .with("tried", tried_ms)
            .with("seconds_each", plan.sizes.latency.as_secs_f64())
            .with("connections", CONNECTIONS),
        Row::new(needed, "cores", &cores, Reference::None, Goal::None),
    ])
}

/// One rate, on an empty store whose counters have been rolled up once.
async fn once(plan: &CountersPlan, rig: &Rig, per_s: u64, seed: u64) -> Result<Tried> {
    rig.flush().await?;
    let counters = CounterMix::zipf(plan.sizes.counters);
    let service = CountersUnderTest::start_on_own_threads(plan, rig, NamespaceConfig::default()).await?;
    fill(&service, &counters).await?;
    let (callers, mut source) = (service.callers(CONNECTIONS).await?, AddSource::new(&counters, seed));
    let pace = Pace::lasting(per_s as f64, plan.sizes.latency).after(plan.sizes.warm_up);
    let before = cpu_s(rig).await?;
    let calls = pace.run(move |number| {
        let Caller(mut calls) = callers[number as usize % callers.len()].clone();
        let (namespace, counter) = (NAMESPACE.to_owned(), source.counter());
        async move {
            match number % ROUND {
                0 => drop(calls.clear_count(ClearCountRequest { namespace, counter, token: None }).await?),
                1..=READS => {
                    let request = GetCountRequest { namespace, counter, ..Default::default() };
                    drop(calls.get_count(request).await?);
                }
                at if at <= READS + ADD_AND_GETS => {
                    let request = AddAndGetCountRequest { namespace, counter, delta: 1, ..Default::default() };
                    drop(calls.add_and_get_count(request).await?);
                }
                _ => {
                    drop(calls.add_count(AddCountRequest { namespace, counter, delta: 1, ..Default::default() }).await?)
                }
            }
            Ok(())
        }
    });
    let total = plan.profiled(rig, &format!("mixed calls, {per_s}/s"), calls).await?;
    let spent_s = cpu_s(rig).await? - before;
    service.stop().await?;
    Ok(Tried { total, cpu_s: spent_s / (pace.calls + pace.warm_up) as f64 })
}

/// CPU of Redis and of the dedicated threads so far; not that of the callers.
async fn cpu_s(rig: &Rig) -> Result<f64> {
    let redis = rig.info_number("cpu", "used_cpu_user").await? + rig.info_number("cpu", "used_cpu_sys").await?;
    let threads = threads_cpu_s()?;
    let of = |name: &str| threads.get(name).copied().unwrap_or_default();
    Ok(redis + ["server", "counters", "worker"].map(of).into_iter().sum::<f64>())
}
