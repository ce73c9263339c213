//! The memory of Redis while events leave it for an archive (N15): adds with tokens at a steady rate, for so long that events
//! would fill it. All services are separate processes with their default configuration, and so is the namespace. The queue has
//! its own Redis, so what is measured belongs to the counters.

use super::adds::{AddSource, CounterMix};
use super::load::Adder;
use super::plan::{BATCH, CONNECTIONS, CountersPlan};
use super::series::Series;
use super::service::{NAMESPACE, callers_of};
use crate::pace::Pace;
use crate::programs::Programs;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Samples, TimedStats};
use anyhow::{Result, anyhow};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tallystone_client::{CounterClient, NamespaceConfig};
use tallystone_counters::ArchiveConfig;
use tallystone_counters::plan::{Demand, Machine, Plan};
use tokio_util::task::AbortOnDropHandle;

/// How often the memory is read.
const EVERY: Duration = Duration::from_secs(2);
/// Calls that are open at once: a server that does not keep up makes the schedule late.
const OPEN_CALLS: u32 = 100;
/// A pause of a busy machine may fail some calls: their adds are too old by the default accept limit. More than this part of
/// all calls is a failure of the figure.
const FAILED_PART_MAX: f64 = 0.01;
/// What the goal allows an event that is not archived yet, and a counter.
const EVENT_BYTES: f64 = 160.0;
const COUNTER_BYTES: f64 = 93.0;
/// The memory is steady after this time, or this part of a shorter run.
const STEADY_AFTER: Duration = Duration::from_secs(180);
const STEADY_PART: f64 = 4.0 / 7.0;
/// The reference runs for this part of the time: without an archive its memory grows all the time.
const REFERENCE_PART: u32 = 5;
/// Flat: the maxima rise by at most this many percent.
const FLAT_PERCENT: f64 = 5.0;
/// The planner takes all counters to be equally busy, so it may predict more than is measured, but not by more than this.
const PLANNED_MAX: f64 = 1.5;
const MB: f64 = 1e6;

/// What one run has shown.
struct Measured {
    load: TimedStats,
    /// Growth of Redis's `used_memory` in MB.
    memory: Series,
    archived_events: f64,
    archived_bytes: f64,
    failed_calls: u64,
    /// CPU seconds by process.
    cpu_s: BTreeMap<&'static str, f64>,
    /// Counters that were rolled up.
    rollups: f64,
}

/// One sample is enough: it has millions of events.
pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    Rig::with_another(async |queue_rig| measure_with(plan, rig, queue_rig).await).await
}

async fn measure_with(plan: &CountersPlan, rig: &Rig, queue_rig: &Rig) -> Result<Vec<Row>> {
    let lasting = plan.sizes.archive_memory;
    let ours = run(plan, rig, queue_rig, true, lasting).await?;
    let reference = run(plan, rig, queue_rig, false, lasting / REFERENCE_PART).await?;
    Ok(rows(plan, lasting.as_secs_f64(), ours, reference))
}

fn rows(plan: &CountersPlan, lasting_s: f64, ours: Measured, reference: Measured) -> Vec<Row> {
    let steady_s = STEADY_AFTER.as_secs_f64().min(lasting_s * STEADY_PART);
    let ArchiveConfig { interval_ms, keep_ms, .. } = plan.sizes.archive;
    let kept_s = Duration::from_millis(interval_ms + keep_ms).as_secs_f64();
    let bound = plan.sizes.per_s as f64 * kept_s * EVENT_BYTES + plan.sizes.batch_counters as f64 * COUNTER_BYTES;
    let interval_s = Duration::from_millis(interval_ms).as_secs_f64();
    let maxima = ours.memory.maxima(lasting_s / 3.0, lasting_s, interval_s);
    let added = ours.calls() * BATCH as u64;
    let rate = grouped(plan.sizes.per_s);
    let counters = grouped(plan.sizes.batch_counters as u64);
    let memory = format!(
        "Redis memory at {rate} adds/s over {counters} counters with an archive, maximum from second {steady_s:.0} to \
         {lasting_s:.0}; {} of {} events were archived by then",
        grouped(ours.archived_events as u64),
        grouped(added),
    );
    let flat = format!("rise of the maxima of each {interval_s:.0} s in the last two thirds of that time");
    let planned = planned_memory(plan);
    let costs: BTreeMap<&str, f64> = ours.cpu_s.iter().map(|(name, s)| (*name, s * 1e6 / added as f64)).collect();
    let [ours_adds, reference_adds] = [&ours, &reference].map(Measured::adds_per_s);
    let name = format!("without an archive, for {:.0} s", lasting_s / f64::from(REFERENCE_PART));
    vec![
        Row::once(memory, "MB", ours.memory.max_from(steady_s), Goal::AtMost((bound / MB * 100.0).round() / 100.0))
            .with("memory_mb", ours.memory.rounded())
            .with("seconds_between", EVERY.as_secs())
            .with("reference_memory_mb", reference.memory.rounded())
            .with("archived_bytes_per_event", ours.archived_bytes / ours.archived_events.max(1.0)),
        Row::once(flat, "%", maxima.rise() * 100.0, Goal::AtMost(FLAT_PERCENT)).with("maxima_mb", maxima.rounded()),
        Row::new(
            format!("AddCounts with tokens in batches of {BATCH} at {rate} adds/s with an archive"),
            "adds/s",
            &ours_adds,
            Reference::Measured(&name, &reference_adds),
            Goal::RatioAtLeast(0.95),
        )
        .with("open_calls_max", OPEN_CALLS)
        .with("failed_calls", ours.failed_calls)
        .with("reference_failed_calls", reference.failed_calls),
        Row::once(
            "the memory that `counter namespace plan` predicts ÷ that maximum",
            "×",
            planned / MB / ours.memory.max_from(steady_s),
            Goal::AtMost(PLANNED_MAX),
        )
        .with("planned_mb", planned / MB),
        Row::once(
            "processor time of an add until it is archived, of all processes",
            "µs",
            costs.values().sum(),
            Goal::None,
        )
        .with("us_by_process", json!(costs))
        .with("adds_per_rollup", added as f64 / ours.rollups.max(1.0)),
    ]
}

/// What the planner says of the same load, in bytes.
fn planned_memory(plan: &CountersPlan) -> f64 {
    let demand = Demand::new(plan.sizes.per_s, plan.sizes.batch_counters as u64);
    // The machines do not matter to it.
    let planned = Plan::new(&demand, &Machine { cores: 8, memory_bytes: 32 << 30 });
    planned.map_or(f64::NAN, |planned| planned.memory.total_bytes() as f64)
}

impl Measured {
    /// Those that have not failed.
    fn calls(&self) -> u64 {
        self.load.stats.messages - self.failed_calls
    }

    fn adds_per_s(&self) -> Samples {
        let mut rate = self.load.rate();
        rate.value *= BATCH as f64 * self.calls() as f64 / self.load.stats.messages as f64;
        let mut samples = Samples::new();
        samples.push(rate);
        samples
    }
}

async fn run(
    plan: &CountersPlan,
    rig: &Rig,
    queue_rig: &Rig,
    has_archive: bool,
    lasting: Duration,
) -> Result<Measured> {
    rig.flush().await?;
    queue_rig.flush().await?;
    let programs = Programs::start(rig, queue_rig, has_archive.then_some(&plan.sizes.archive)).await?;
    let config = NamespaceConfig { archived: Some(has_archive), ..NamespaceConfig::default() };
    CounterClient::connect(&programs.url).await?.put_namespace(NAMESPACE, config).await?;
    let callers = callers_of(&programs.url, CONNECTIONS).await?;
    tokio::time::sleep(plan.sizes.settle).await;
    let before = used(rig).await?;
    let cpu_before_s = programs.cpu_s(rig, queue_rig)?;
    let mut source = AddSource::new(&CounterMix::zipf(plan.sizes.batch_counters), 0);
    let failures = Arc::new(Mutex::new(Vec::new()));
    let noted = failures.clone();
    let load = Pace::of_batches(plan.sizes.per_s, BATCH, lasting).at_most(OPEN_CALLS).run(move |number| {
        let mut caller = callers[number as usize % callers.len()].clone();
        let adds = source.adds(BATCH);
        let noted = noted.clone();
        async move {
            let failed = caller.add(adds).await.err();
            noted.lock().unwrap_or_else(PoisonError::into_inner).extend(failed);
            Ok(())
        }
    });
    let label = if has_archive { "ours, with an archive" } else { "ours, without an archive" };
    let sampled = plan.profiled(rig, label, sampled(rig, before, AbortOnDropHandle::new(tokio::spawn(load))));
    let (load, memory) = sampled.await?;
    let mut cpu_s = programs.cpu_s(rig, queue_rig)?;
    cpu_s.iter_mut().for_each(|(name, seconds)| *seconds -= cpu_before_s[name]);
    let rollups = programs.worker_metric("tallystone_rollups_total{outcome=\"committed\"}").await?;
    let (mut archived_events, mut archived_bytes) = (0.0, 0.0);
    if has_archive {
        archived_events = programs.worker_metric("tallystone_archived_events_total").await?;
        archived_bytes = programs.worker_metric("tallystone_archived_bytes_total").await?;
    }
    programs.stop().await?;
    let failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
    let (failed_calls, calls) = (failures.len() as u64, load.stats.messages);
    if let Some(error) = failures.into_iter().next()
        && failed_calls as f64 > calls as f64 * FAILED_PART_MAX
    {
        return Err(error.context(format!("{failed_calls} of {calls} calls failed")));
    }
    Ok(Measured { load, memory, archived_events, archived_bytes, failed_calls, cpu_s, rollups })
}

/// Reads the memory until the load ends.
async fn sampled(
    rig: &Rig,
    before: f64,
    mut load: AbortOnDropHandle<Result<TimedStats>>,
) -> Result<(TimedStats, Series)> {
    let (began, mut clock, mut memory) = (Instant::now(), tokio::time::interval(EVERY), Series::default());
    loop {
        tokio::select! {
            ended = &mut load => {
                let load = ended.map_err(|error| anyhow!("the load: {error}"))??;
                return Ok((load, memory));
            }
            _ = clock.tick() => memory.push(began.elapsed().as_secs_f64(), (used(rig).await? - before) / MB),
        }
    }
}

async fn used(rig: &Rig) -> Result<f64> {
    rig.info_number("memory", "used_memory").await
}
