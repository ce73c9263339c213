//! One of two servers hangs for a while (O8): the 99th percentile of single adds and reads at a steady rate, by clients
//! that hedge and by clients that do not.

use super::plan::CountersPlan;
use super::service::NAMESPACE;
use crate::child::signal;
use crate::pace::Pace;
use crate::program::Program;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Context, Result};
use std::time::Duration;
use tallystone_client::{CounterClient, Hedge, NamespaceConfig, NewAdd};

/// Clients, each with connections to both servers.
const CLIENTS: usize = 8;
const COUNTERS: u64 = 1_000;
/// Without a hedge, a call that has no answer by then goes to the other server.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
const HEDGE_AFTER: Duration = Duration::from_millis(20);

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (mut ours, mut unhedged) = (Samples::new(), Samples::new());
    for _ in 0..plan.runs {
        ours.push(sample(plan, rig, Some(Hedge::after(HEDGE_AFTER))).await?);
        unhedged.push(sample(plan, rig, None).await?);
    }
    let (per_s, still_s) = (grouped(plan.sizes.hedged_per_s), plan.sizes.standstill.as_secs_f64());
    let (hedge_ms, timeout_s) = (HEDGE_AFTER.as_millis(), CALL_TIMEOUT.as_secs());
    let what = format!("AddCount and GetCount at {per_s}/s, one of two servers hangs for {still_s} s: p99");
    let reference = Reference::Measured("without hedges", &unhedged);
    Ok(vec![
        Row::new(what, "ms", &ours, reference, Goal::None)
            .with("hedge_after_ms", hedge_ms as u64)
            .with("call_timeout_s", timeout_s)
            .with("clients", CLIENTS),
    ])
}

async fn sample(plan: &CountersPlan, rig: &Rig, hedge: Option<Hedge>) -> Result<Sample> {
    rig.flush().await?;
    let (redis_url, dir) = (rig.url(), tempfile::tempdir()?);
    let arguments = ["counters", "--redis-url", &redis_url];
    let program = plan.args.counters_program.as_deref();
    let (still, still_url) = Program::serve(program, dir.path(), &arguments).await?;
    let (other, other_url) = Program::serve(program, dir.path(), &arguments).await?;
    CounterClient::connect(&other_url).await?.put_namespace(NAMESPACE, NamespaceConfig::default()).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let builder = CounterClient::builder(&still_url).server(&other_url).call_timeout(CALL_TIMEOUT);
        let builder = hedge.into_iter().fold(builder, |builder, hedge| builder.hedge(hedge));
        clients.push(builder.connect().await?);
    }
    let before = plan.sizes.standstill / 2;
    let pace = Pace::lasting(plan.sizes.hedged_per_s as f64, plan.sizes.standstill * 2);
    let calls = pace.run(move |number| {
        let client = clients[number as usize % CLIENTS].clone();
        let counter = format!("counter-{}", number * 7 % COUNTERS);
        async move {
            match number / CLIENTS as u64 % 2 {
                0 => client.add(NAMESPACE, NewAdd::new(counter, 1)).await.map(drop)?,
                _ => client.get(NAMESPACE, &counter).await.map(drop)?,
            }
            Ok(())
        }
    });
    let standstill = async {
        tokio::time::sleep(before).await;
        signal(still.pid(), "-STOP")?;
        tokio::time::sleep(plan.sizes.standstill).await;
        signal(still.pid(), "-CONT")
    };
    let label = if hedge.is_some() { "hedged" } else { "not hedged" };
    let (total, signals) = tokio::join!(plan.profiled(rig, label, calls), standstill);
    signals?;
    let stats = total?.stats;
    still.stop().await?;
    other.stop().await?;
    Ok(stats.sample(stats.quantile_ms(0.99).context("calls were made")?))
}
