//! The embedded store: the events per second that it records, the latency of a trace among them, and how long one step of
//! a prune occupies the writer.

use super::lives::{EVENTS, Lives, id};
use super::plan::HistoryPlan;
use super::process::process_cpu_s;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{CallStats, Sample, Samples};
use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::time::{Duration, Instant};
use tallystone_indexer::{Embedded, EmbeddedOptions, HistoryStore, TraceQuery};
use tallystone_model::Sink;

/// Events per call, in rotation: what a relay delivers when it keeps up and when it catches up.
const BATCHES: [usize; 3] = [1_000, 4_000, 16_000];
/// The maximum number of steps of a prune.
const STEPS: usize = 300;

pub(super) async fn measure(plan: &HistoryPlan) -> Result<Vec<Row>> {
    let [mut rates, mut traces, mut steps] = [const { Samples::new() }; 3];
    let (mut bytes_per_event, mut record_max, mut cpu_us) = (0.0, Duration::ZERO, Vec::new());
    for _ in 0..plan.runs {
        let folder = tempfile::tempdir().context("a temporary folder")?;
        let path = folder.path().join("history.db");
        let options = EmbeddedOptions { retention_ms: u64::MAX, max_bytes: u64::MAX, ..EmbeddedOptions::new(&path) };
        let store = Embedded::open(options)?;
        let mut lives = Lives::new("bench/history")?;
        let recorded = record(&store, &mut lives, plan.sizes.embedded).await?;
        rates.push(recorded.rate);
        record_max = record_max.max(recorded.longest);
        cpu_us.push((recorded.cpu_us * 100.0).round() / 100.0);
        let traced = trace(&store, &lives, plan.sizes.traces).await?;
        traces.push(traced.sample(traced.quantile_ms(0.99).unwrap_or_default()));
        bytes_per_event = std::fs::metadata(&path)?.len() as f64 / recorded.events as f64;
        drop(store);
        let pruned = prune(&path, lives.now_ms()).await?;
        steps.push(pruned.sample(pruned.quantile_ms(1.0).unwrap_or_default()));
    }
    let events = grouped(plan.sizes.embedded);
    let row = |what: String, unit, samples: &Samples, goal| Row::new(what, unit, samples, Reference::None, goal);
    Ok(vec![
        row(format!("embedded store: {events} events recorded"), "/s", &rates, Goal::AtLeast(50_000.0))
            .with("events_per_call", BATCHES.to_vec())
            .with("cpu_us_per_event", cpu_us)
            .with("longest_call_ms", record_max.as_millis() as u64)
            .with("file_bytes_per_event", bytes_per_event.round()),
        row(format!("embedded store: TraceMessage among {events} events: p99"), "ms", &traces, Goal::Below(5.0))
            .with("traces", plan.sizes.traces),
        row("embedded store: longest step of a prune by age".to_owned(), "ms", &steps, Goal::None).with("steps", STEPS),
    ])
}

struct RecordedAll {
    events: u64,
    /// Events made durable per second, without the time to create them.
    rate: Sample,
    longest: Duration,
    /// CPU per event of all threads, including the checkpointer's.
    cpu_us: f64,
}

async fn record(store: &Embedded, lives: &mut Lives, events: u64) -> Result<RecordedAll> {
    let (mut recorded, mut recording, mut longest, mut cpu_s) = (0, Duration::ZERO, Duration::ZERO, 0.0);
    for batch in BATCHES.into_iter().cycle() {
        if recorded >= events {
            break;
        }
        let batch = lives.next(batch.min(usize::try_from(events - recorded)?));
        recorded += batch.len() as u64;
        let (cpu_before_s, began) = (process_cpu_s()?, Instant::now());
        // The relay delivers events in the same way.
        store.deliver(batch.into()).await?;
        longest = longest.max(began.elapsed());
        recording += began.elapsed();
        cpu_s += process_cpu_s()? - cpu_before_s;
    }
    let rate = Sample { value: recorded as f64 / recording.as_secs_f64(), ..Sample::default() };
    Ok(RecordedAll { events: recorded, rate, longest, cpu_us: cpu_s * 1e6 / recorded as f64 })
}

/// Traces random messages.
async fn trace(store: &Embedded, lives: &Lives, traces: u64) -> Result<CallStats> {
    let mut stats = CallStats::new();
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..traces {
        let id = id(rng.random_range(0..lives.messages()));
        let query =
            TraceQuery { queue: lives.queue().clone(), id: id.clone(), sequence: None, limit: 1_000, after: None };
        let began = Instant::now();
        let trace = store.trace(&query).await?;
        stats.note(1, began.elapsed());
        let is_whole = (1..=EVENTS as usize).contains(&trace.transitions.len()) && !trace.more;
        ensure!(is_whole && trace.message.is_some(), "the trace of {id} is {trace:?}");
    }
    Ok(stats)
}

/// Prunes everything by age, step by step.
async fn prune(path: &Path, now_ms: u64) -> Result<CallStats> {
    let store = Embedded::open(EmbeddedOptions { retention_ms: 0, max_bytes: u64::MAX, ..EmbeddedOptions::new(path) })?;
    let mut stats = CallStats::new();
    for _ in 0..STEPS {
        let began = Instant::now();
        let more = store.prune(now_ms).await?;
        stats.note(1, began.elapsed());
        if !more {
            break;
        }
    }
    Ok(stats)
}
