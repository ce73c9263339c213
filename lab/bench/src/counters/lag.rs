//! From an add until the count includes it. Counters by Zipf's law get adds in batches at a steady rate. Probes are single
//! adds to random counters, so mostly to counters without other pending adds, which wait longest. The count includes an add
//! when its checkpoint is exact to a later time than that of the add. The bench reads the checkpoint from the store: a
//! GetCount would make the rollup due earlier.

use super::adds::{AddSource, CounterMix, now_ms};
use super::load::Adder;
use super::plan::{BATCH, CONNECTIONS, CountersPlan};
use super::service::{Caller, CountersUnderTest, NAMESPACE, Rollups};
use crate::pace::Pace;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{CallStats, Samples};
use anyhow::{Result, ensure};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::index::sample as draw;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_counters::{Checkpoints, CounterName};
use tallystone_proto::counter::v1::{AddCountRequest, IdempotencyToken};
use tokio_util::task::AbortOnDropHandle;

/// The resolution of the figure.
const POLL: Duration = Duration::from_millis(10);
/// A rollup is not due before the window of its first event is over.
const WINDOW: Duration = Duration::from_millis(tallystone_counters::log::WINDOW_MS);
/// How much longer the last probes may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much later than the accept limit the count may include an add.
const GOAL_BEYOND_MS: u64 = 2_000;

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let sizes = &plan.sizes;
    let counters = CounterMix::zipf(sizes.counters);
    let [mut near, mut default] = [const { Lags::new() }; 2];
    for _ in 0..plan.runs {
        near.push(&sample(plan, rig, &counters, sizes.near_coalesce_ms, 0).await?);
        default.push(&sample(plan, rig, &counters, sizes.default_coalesce_ms, sizes.default_coalesce_ms).await?);
    }
    let rate = grouped(sizes.per_s);
    let row = |what: String, lags: &Lags, coalesce_ms: u64| {
        let goal = Goal::Below((sizes.accept_limit_ms + GOAL_BEYOND_MS) as f64);
        Row::new(what, "ms", &lags.p99, Reference::None, goal)
            .with("p90_ms", lags.p90_ms.clone())
            .with("max_ms", lags.max_ms.clone())
            .with("accept_limit_ms", sizes.accept_limit_ms)
            .with("coalesce_ms", coalesce_ms)
            .with("probes", sizes.probes)
            .with("poll_ms", POLL.as_millis() as u64)
    };
    let near_ms = sizes.near_coalesce_ms;
    let default_ms = sizes.default_coalesce_ms;
    Ok(vec![
        row(format!("add → included in the count, {rate} adds/s, coalesce_ms {near_ms}: p99"), &near, near_ms),
        row(
            format!("end of the window → included in the count, {rate} adds/s, coalesce_ms {default_ms}: p99"),
            &default,
            default_ms,
        ),
    ])
}

/// The lags of all runs.
struct Lags {
    p99: Samples,
    p90_ms: Vec<f64>,
    max_ms: Vec<f64>,
}

impl Lags {
    const fn new() -> Lags {
        Lags { p99: Samples::new(), p90_ms: Vec::new(), max_ms: Vec::new() }
    }

    fn push(&mut self, stats: &CallStats) {
        let quantile = |quantile| stats.quantile_ms(quantile).unwrap_or_default();
        self.p99.push(stats.sample(quantile(0.99)));
        self.p90_ms.push(quantile(0.9).round());
        self.max_ms.push(quantile(1.0).round());
    }
}

/// The lag of each probe, counted from `after_ms` after its time.
async fn sample(
    plan: &CountersPlan,
    rig: &Rig,
    counters: &Arc<CounterMix>,
    coalesce_ms: u64,
    after_ms: u64,
) -> Result<CallStats> {
    rig.flush().await?;
    let sizes = &plan.sizes;
    let service = CountersUnderTest::start(plan, rig, sizes.namespace(coalesce_ms), Rollups::by_worker()).await?;
    let due_after = WINDOW + Duration::from_millis(sizes.accept_limit_ms + coalesce_ms);
    let warm_up = due_after + sizes.warm_up;
    let probing = sizes.probe_every * u32::try_from(sizes.probes)?;
    let (callers, mut source) = (service.callers(CONNECTIONS).await?, AddSource::new(counters, 0));
    // The load lasts until the last probes should be included.
    let pace = Pace::of_batches(sizes.per_s, BATCH, warm_up + probing + due_after);
    let load = pace.run(move |number| {
        let mut caller = callers[number as usize % callers.len()].clone();
        let adds = source.adds(BATCH);
        async move { caller.add(adds).await }
    });
    let load = AbortOnDropHandle::new(tokio::spawn(load));
    tokio::time::sleep(warm_up).await;
    let drawn = draw(&mut SmallRng::seed_from_u64(1), counters.names().len(), sizes.probes);
    let probes = Probes {
        waiting: Vec::new(),
        left: drawn.into_iter().map(|number| counters.names()[number].clone()).collect(),
        stats: CallStats::new(),
        after_ms,
    };
    let label = format!("ours, lag with coalesce_ms {coalesce_ms}");
    let stats = plan.profiled(rig, &label, probes.run(&service, sizes.probe_every, due_after)).await?;
    load.await??;
    service.stop().await?;
    Ok(stats)
}

/// The adds whose lag is measured.
struct Probes {
    /// Counters of probes that are not added yet.
    left: Vec<String>,
    /// Probes that the count does not include yet, with their times.
    waiting: Vec<(CounterName, u64)>,
    stats: CallStats,
    after_ms: u64,
}

impl Probes {
    async fn run(mut self, service: &CountersUnderTest, every: Duration, due_after: Duration) -> Result<CallStats> {
        let (store, mut caller) = (service.store().await?, service.callers(1).await?.remove(0));
        let give_up_at = Instant::now() + every * u32::try_from(self.left.len())? + due_after + PATIENCE;
        let (mut clock, mut add_at) = (tokio::time::interval(POLL), Instant::now());
        while !self.left.is_empty() || !self.waiting.is_empty() {
            clock.tick().await;
            if Instant::now() >= add_at
                && let Some(counter) = self.left.pop()
            {
                add_at += every;
                let time_ms = now_ms();
                probe(&mut caller, &counter, time_ms).await?;
                self.waiting.push((CounterName::parse(counter)?, time_ms));
            }
            let names: Vec<CounterName> = self.waiting.iter().map(|(counter, _)| counter.clone()).collect();
            let (checkpoints, now_ms) = (store.read(&names).await?, now_ms());
            let mut checkpoints = checkpoints.into_iter();
            self.waiting.retain(|(_, time_ms)| {
                let is_in = checkpoints.next().is_some_and(|checkpoint| checkpoint.exact_to_ms > *time_ms);
                if is_in {
                    let lag_ms = now_ms.saturating_sub(time_ms + self.after_ms);
                    self.stats.note(1, Duration::from_millis(lag_ms));
                }
                !is_in
            });
            ensure!(Instant::now() < give_up_at, "{} adds are not included in the count", self.waiting.len());
        }
        Ok(self.stats)
    }
}

async fn probe(Caller(calls): &mut Caller, counter: &str, time_ms: u64) -> Result<()> {
    let token = uuid::Uuid::now_v7().simple().to_string();
    let token = Some(IdempotencyToken { token, generation_time_ms: time_ms as i64 });
    let request = AddCountRequest {
        namespace: NAMESPACE.to_owned(),
        counter: counter.to_owned(),
        delta: 1,
        token,
        ..Default::default()
    };
    calls.add_count(request).await?;
    Ok(())
}
