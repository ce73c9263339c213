//! The number of messages in the rollup queues that a thousand adds to one counter within a window cause, counted by the
//! records of the worker.

use super::adds::{AddSource, CounterMix, now_ms};
use super::load::Adder;
use super::plan::CountersPlan;
use super::service::{CountersUnderTest, Rollups};
use crate::pace::Pace;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::time::Duration;
use tallystone_workers::{Records, RollupStage, WorkerOptions};

/// How long after its due time the rollup may end.
const PATIENCE: Duration = Duration::from_secs(30);
/// A second message for the same job would arrive within this time.
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
    let records = Some(Arc::new(Records::open(&path)?));
    let worker = WorkerOptions { name: "worker".to_owned(), records, ..WorkerOptions::default() };
    let config = plan.sizes.namespace(window_ms);
    let service = CountersUnderTest::start(plan, rig, config, Rollups::By(worker)).await?;
    let counters = CounterMix::zipf(1);
    let (caller, mut source) = (service.callers(1).await?.remove(0), AddSource::new(&counters, 0));
    // Nine tenths of a window, which the first add opens.
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
    ensure!(begun > 0, "the count is exact without a rollup");
    Ok(begun)
}
