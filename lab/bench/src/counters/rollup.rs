//! The rollups of many waiting counters (N10), with a Redis for the counters and one for the queue: how many a worker that
//! starts then executes in a second, what the life of a job adds to the queue's append-only file, and how long single adds
//! take meanwhile.

use super::adds::{Add, CounterMix};
use super::load::Adder;
use super::plan::CountersPlan;
use super::service::{Caller, CountersUnderTest};
use crate::report::{Goal, Row, grouped};
use crate::rig::Rig;
use crate::sample::CallStats;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use tallystone_client::NamespaceConfig;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Adds per call to the counters that wait.
const FILL: usize = 1_000;
/// The counters of the single adds: they are not those that wait.
const OTHERS: usize = 50;
/// Between two single adds.
const ADD_EVERY: Duration = Duration::from_millis(5);
/// How long single adds are made before the worker starts.
const ALONE: Duration = Duration::from_secs(3);
/// Time for the jobs of the counters that are due to reach the queue.
const OFFERED: Duration = Duration::from_secs(2);
const ROLLED_UP_LIMIT: Duration = Duration::from_secs(300);
/// Room for all jobs.
const CAPACITY_BYTES: u64 = 64 * 1024 * 1024;

/// One sample is enough: it has hundreds of thousands of rollups.
pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    Rig::with_another(async |queue_rig| measure_with(plan, rig, queue_rig).await).await
}

async fn measure_with(plan: &CountersPlan, rig: &Rig, queue_rig: &Rig) -> Result<Vec<Row>> {
    let config = NamespaceConfig {
        capacity_bytes: Some(CAPACITY_BYTES),
        accept_limit_ms: Some(plan.sizes.accept_limit_ms),
        coalesce_ms: Some(0),
        ..NamespaceConfig::default()
    };
    let mut service = CountersUnderTest::start_without_worker(plan, rig, queue_rig, config).await?;
    let counters = CounterMix::zipf(plan.sizes.waiting);
    let mut caller = service.callers(1).await?.remove(0);
    tokio::time::sleep(ALONE / 2).await;
    let before_bytes = queue_rig.written().await?;
    for names in counters.names().chunks(FILL) {
        caller.add(names.iter().map(|name| once(name)).collect()).await?;
    }
    tokio::time::sleep(Duration::from_millis(plan.sizes.accept_limit_ms) + OFFERED).await;
    let alone = adds_during(caller.clone(), async {
        tokio::time::sleep(ALONE).await;
        Ok(())
    })
    .await?;
    let began = Instant::now();
    service.start_worker(plan, rig).await?;
    let rolled_up = async { service.rolled_up(counters.names(), 1, ROLLED_UP_LIMIT).await.map(drop) };
    let stats = plan.profiled(rig, "ours, rollups of waiting counters", adds_during(caller, rolled_up)).await?;
    let took = began.elapsed();
    service.stop().await?;
    let bytes = (queue_rig.written().await? - before_bytes) / counters.names().len() as f64;
    ensure!(stats.messages > 0, "no add was made during the rollups");

    let count = grouped(counters.names().len() as u64);
    let rate = counters.names().len() as f64 / took.as_secs_f64();
    let name_bytes = counters.names()[0].len();
    let quantile_ms = |stats: &CallStats, quantile| stats.quantile_ms(quantile).unwrap_or_default();
    Ok(vec![
        Row::once(format!("rollups of {count} waiting counters by one worker"), "/s", rate, Goal::None),
        Row::once(
            format!("the queue's append-only file per rollup, names of {name_bytes} bytes"),
            "B",
            bytes,
            Goal::AtMost(500.0),
        ),
        Row::once(
            format!("AddCount during the rollups of {count} counters: p99"),
            "ms",
            quantile_ms(&stats, 0.99),
            Goal::AtMost(20.0),
        )
        .with("p50_ms", quantile_ms(&stats, 0.5))
        .with("max_ms", quantile_ms(&stats, 1.0))
        .with("p99_ms_before", quantile_ms(&alone, 0.99))
        .with("adds", stats.messages),
    ])
}

fn once(name: &str) -> Add {
    Add { counter: name.to_owned(), delta: 1, token: None }
}

/// Single adds at a steady rate until the work is done: their latencies, from the time at which each was due.
async fn adds_during(caller: Caller, work: impl Future<Output = Result<()>>) -> Result<CallStats> {
    let done = CancellationToken::new();
    let adds = async {
        let (mut calls, mut ticks) = (JoinSet::new(), tokio::time::interval(ADD_EVERY));
        for number in 0_usize.. {
            let Some(due) = done.run_until_cancelled(ticks.tick()).await else { break };
            let mut caller = caller.clone();
            // A slow add does not delay the next one.
            calls.spawn(async move {
                caller.add(vec![once(&format!("other-{}", number % OTHERS))]).await?;
                anyhow::Ok(due.elapsed())
            });
        }
        let mut stats = CallStats::new();
        while let Some(took) = calls.join_next().await {
            stats.note(1, took??);
        }
        anyhow::Ok(stats)
    };
    let work = async {
        let _done = done.clone().drop_guard();
        work.await
    };
    let (stats, work) = tokio::join!(adds, work);
    work?;
    stats
}
