//! What an add costs Redis's append-only file. The queue has its own Redis, so the file has what the counters write, and
//! nothing rewrites it meanwhile.

use super::adds::{AddSource, CounterMix};
use super::load::add_all;
use super::plan::{CONNECTIONS, CountersPlan, FILL_ACCEPT_LIMIT_MS};
use super::service::CountersUnderTest;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::NamespaceConfig;

/// Adds per call.
const BATCH: usize = 1_000;
/// Each has one call under way: together their adds stay within what a server lets wait.
const CALLERS: usize = CONNECTIONS;
const ROLLED_UP_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    Rig::with_another(async |queue_rig| measure_with(plan, rig, queue_rig).await).await
}

async fn measure_with(plan: &CountersPlan, rig: &Rig, queue_rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::uniform(plan.sizes.batch_counters);
    let (mut adds, mut rolled_up) = (Samples::new(), Samples::new());
    for run in 0..plan.runs {
        let [add_bytes, all_bytes] = sample(plan, rig, queue_rig, &counters, run).await?;
        adds.push(Sample { value: add_bytes, ..Sample::default() });
        rolled_up.push(Sample { value: all_bytes, ..Sample::default() });
    }
    let of = format!("batches of {} over {} counters", grouped(BATCH as u64), grouped(counters.names().len() as u64));
    let row = |what: &str, samples: &Samples, goal: Goal| {
        let what = format!("the append-only file per add with a token, {of}{what}");
        Row::new(what, "B", samples, Reference::None, goal).with("adds", plan.sizes.adds).with("callers", CALLERS)
    };
    Ok(vec![row("", &adds, Goal::AtMost(120.0)), row(", until all are rolled up", &rolled_up, Goal::None)])
}

/// Bytes per add, when the last add was answered and when all are rolled up.
async fn sample(
    plan: &CountersPlan,
    rig: &Rig,
    queue_rig: &Rig,
    counters: &Arc<CounterMix>,
    run: u32,
) -> Result<[f64; 2]> {
    rig.flush().await?;
    queue_rig.flush().await?;
    let accept_limit_ms = Some(FILL_ACCEPT_LIMIT_MS);
    let coalesce_ms = Some(plan.sizes.default_coalesce_ms);
    let config = NamespaceConfig { accept_limit_ms, coalesce_ms, ..NamespaceConfig::default() };
    let mut service = CountersUnderTest::start_without_worker(plan, rig, queue_rig, config).await?;
    let callers = service.callers(CALLERS).await?;
    let before = rig.written().await?;
    let seed = |caller| u64::from(run) * CALLERS as u64 + caller;
    let load = add_all(callers, plan.sizes.adds, BATCH, |caller| AddSource::new(counters, seed(caller)));
    plan.profiled(rig, "ours, adds in batches of 1,000", load).await?;
    let added = rig.written().await?;
    // Only now: on a slow machine the first counters are due before the last add.
    service.start_worker(plan, rig).await?;
    let rolled_up = service.all_rolled_up(ROLLED_UP_LIMIT);
    plan.profiled(rig, "ours, the rollups after them", rolled_up).await?;
    let rolled_up = rig.written().await?;
    service.stop().await?;
    Ok([added, rolled_up].map(|after| (after - before) / plan.sizes.adds as f64))
}
