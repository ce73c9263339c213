//! From an add until the count has it. Counters by Zipf's law get adds in batches at a steady rate; beside that, probes: one
//! add each to a counter of them all, so mostly to one that nothing else is pending of, which waits longest. It is in the
//! count when the checkpoint, which is what GetCount answers, is exact to a later time than the add's. The checkpoint is
//! read past the service: GetCount would hurry the rollup on.

use super::adds::{Counters, Source, now_ms};
use super::load::{Adder, Pace};
use super::plan::{BATCH, CONNECTIONS, CountersPlan};
use super::service::{Caller, NAMESPACE, Rollups, Service};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Samples, Tally};
use anyhow::{Result, ensure};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::index::sample as draw;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_counters::{Checkpoints, CounterName};
use tallystone_proto::counter::v1::{AddCountRequest, IdempotencyToken};
use tokio_util::task::AbortOnDropHandle;

/// What the figure cannot tell apart.
const POLL: Duration = Duration::from_millis(10);
/// A rollup is due when the window of its first event is over, too.
const WINDOW: Duration = Duration::from_millis(tallystone_counters::log::WINDOW_MS);
/// How long the last probes may take beyond that.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much later than the accept limit an add may be in the count.
const GOAL_BEYOND_MS: u64 = 2_000;

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let sizes = &plan.sizes;
    let counters = Counters::zipf(sizes.counters);
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
        row(format!("add → in the count, {rate} adds/s, coalesce_ms {near_ms}: p99"), &near, near_ms),
        row(
            format!("end of the window → in the count, {rate} adds/s, coalesce_ms {default_ms}: p99"),
            &default,
            default_ms,
        ),
    ])
}

/// Of each run.
struct Lags {
    p99: Samples,
    p90_ms: Vec<f64>,
    max_ms: Vec<f64>,
}

impl Lags {
    const fn new() -> Lags {
        Lags { p99: Samples::new(), p90_ms: Vec::new(), max_ms: Vec::new() }
    }

    fn push(&mut self, tally: &Tally) {
        let quantile = |quantile| tally.quantile_ms(quantile).unwrap_or_default();
        self.p99.push(tally.sample(quantile(0.99)));
        self.p90_ms.push(quantile(0.9).round());
        self.max_ms.push(quantile(1.0).round());
    }
}

/// How long each probe took from `after_ms` past its time.
async fn sample(
    plan: &CountersPlan,
    rig: &Rig,
    counters: &Arc<Counters>,
    coalesce_ms: u64,
    after_ms: u64,
) -> Result<Tally> {
    rig.flush().await?;
    let sizes = &plan.sizes;
    let service = Service::start(plan, rig, sizes.namespace(coalesce_ms), Rollups::by_worker()).await?;
    let due_after = WINDOW + Duration::from_millis(sizes.accept_limit_ms + coalesce_ms);
    let warm_up = due_after + sizes.warm_up;
    let probing = sizes.probe_every * u32::try_from(sizes.probes)?;
    let (callers, mut source) = (service.callers(CONNECTIONS).await?, Source::new(counters, 0));
    // Until the last probes should be in.
    let pace = Pace::of_batches(sizes.per_s, warm_up + probing + due_after);
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
        tally: Tally::new(),
        after_ms,
    };
    let label = format!("ours, lag with coalesce_ms {coalesce_ms}");
    let tally = plan.profiled(rig, &label, probes.run(&service, sizes.probe_every, due_after)).await?;
    load.await??;
    service.stop().await?;
    Ok(tally)
}

/// Adds that are waited for.
struct Probes {
    /// Not yet added.
    left: Vec<String>,
    /// Not yet in the count, with their times.
    waiting: Vec<(CounterName, u64)>,
    tally: Tally,
    after_ms: u64,
}

impl Probes {
    async fn run(mut self, service: &Service, every: Duration, due_after: Duration) -> Result<Tally> {
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
                    self.tally.note(1, Duration::from_millis(lag_ms));
                }
                !is_in
            });
            ensure!(Instant::now() < give_up_at, "{} adds are not in the count", self.waiting.len());
        }
        Ok(self.tally)
    }
}

async fn probe(Caller(calls): &mut Caller, counter: &str, time_ms: u64) -> Result<()> {
    let token = uuid::Uuid::now_v7().simple().to_string();
    let token = Some(IdempotencyToken { token, generation_time_ms: time_ms as i64 });
    let request = AddCountRequest { namespace: NAMESPACE.to_owned(), counter: counter.to_owned(), delta: 1, token };
    calls.add_count(request).await?;
    Ok(())
}
