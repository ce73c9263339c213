//! A thousand adds to one counter within a window: how many messages of the rollup queues that is, by what the worker
//! wrote down of every message that it was given.

use super::adds::{Counters, Source, now_ms};
use super::load::{Adder, Pace};
use super::plan::CountersPlan;
use super::service::{Rollups, Service};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::time::Duration;
use tallystone_workers::{Records, RollupStage, WorkerOptions};

/// How long the rollup may take beyond the time when it is due.
const PATIENCE: Duration = Duration::from_secs(30);
/// A job that is told of twice would come within this.
const TWICE: Duration = Duration::from_secs(1);

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (adds, window_ms) = (plan.sizes.window_adds, plan.sizes.default_coalesce_ms);
    let mut samples = Samples::new();
    for _ in 0..plan.runs {
        samples.push(Sample { value: sample(plan, rig).await? as f64, ..Sample::default() });
    }
    let what = format!("messages of the rollup queues after {} adds to one counter within a window", grouped(adds));
    let row = Row::new(what, "messages", &samples, Reference::None, Goal::AtMost(1.0));
    Ok(vec![row.with("coalesce_ms", window_ms).with("accept_limit_ms", plan.sizes.accept_limit_ms)])
}

async fn sample(plan: &CountersPlan, rig: &Rig) -> Result<usize> {
    rig.flush().await?;
    let (adds, window_ms) = (plan.sizes.window_adds, plan.sizes.default_coalesce_ms);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("records");
    let worker = WorkerOptions { name: "worker".to_owned(), records: Some(Arc::new(Records::open(&path)?)) };
    let config = plan.sizes.namespace(window_ms);
    let service = Service::start(plan, rig, config, Rollups::By(worker)).await?;
    let counters = Counters::zipf(1);
    let (caller, mut source) = (service.callers(1).await?.remove(0), Source::new(&counters, 0));
    // Nine tenths of the window: the first add opens it, wherever in a window that is.
    let per_s = adds as f64 / (0.9 * Duration::from_millis(window_ms).as_secs_f64());
    let pace = Pace::of(adds, per_s);
    pace.run(move |_| {
        let (mut caller, adds) = (caller.clone(), source.adds(1));
        async move { caller.add(adds).await }
    })
    .await?;
    let due_after = Duration::from_millis(window_ms + plan.sizes.accept_limit_ms);
    service.rolled_up(counters.names(), now_ms(), due_after + PATIENCE).await?;
    tokio::time::sleep(TWICE).await;
    service.stop().await?;
    let begun = Records::read(&path)?.into_iter().filter(|record| record.stage == RollupStage::Begin).count();
    ensure!(begun > 0, "the count is there without a rollup");
    Ok(begun)
}
