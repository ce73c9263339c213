//! A load beyond what a server takes: ever more callers, and how rate, latency and memory change with their number (O8).
//!
//! Callers continue for a time, whatever the server answers: a refused call is sent again after the time that the refusal names,
//! one without an answer at once. The server is a separate process, as users run it.

use crate::program::Program;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{CallStats, Sample, Samples};
use anyhow::Result;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The numbers of callers; the goals are for the second last.
pub(crate) const CALLERS: [usize; 6] = [1, 8, 64, 256, 1_000, 4_000];
pub(crate) const MANY: usize = 1_000;
/// Connections of gRPC callers.
pub(crate) const CONNECTIONS: usize = 16;
/// How long a caller waits for an answer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// What happened to a call.
pub(crate) enum CallOutcome {
    /// It was answered; the number of messages or adds.
    Done(usize),
    /// It was refused for overload, and may retry after this time.
    Refused(Duration),
    /// There was no answer.
    Missing,
}

/// One caller.
pub(crate) trait Caller: Send + 'static {
    /// Makes its next call. An error ends the figure: an answer that no load explains.
    fn call(&mut self) -> impl Future<Output = Result<CallOutcome>> + Send;
}

/// What happened to the calls of all callers.
pub(crate) struct Called {
    /// Of those that were answered.
    pub(crate) stats: CallStats,
    refused: u64,
    missing: u64,
}

impl Called {
    fn new() -> Called {
        Called { stats: CallStats::new(), refused: 0, missing: 0 }
    }
}

/// All callers at once, until this time. They end with their last calls.
pub(crate) async fn call_until<C: Caller>(callers: Vec<C>, until: Instant) -> Result<Called> {
    let mut tasks: JoinSet<Result<Called>> = callers.into_iter().map(|caller| one(caller, until)).collect();
    let mut all = Called::new();
    while let Some(ended) = tasks.join_next().await {
        let Called { stats, refused, missing } = ended??;
        all.stats.add(&stats);
        all.refused += refused;
        all.missing += missing;
    }
    Ok(all)
}

async fn one<C: Caller>(mut caller: C, until: Instant) -> Result<Called> {
    let mut called = Called::new();
    while Instant::now() < until {
        let began = Instant::now();
        match tokio::time::timeout(DEADLINE, caller.call()).await {
            Ok(Ok(CallOutcome::Done(count))) => called.stats.note(count, began.elapsed()),
            Ok(Ok(CallOutcome::Refused(delay))) => {
                called.refused += 1;
                tokio::time::sleep_until((Instant::now() + delay).min(until).into()).await;
            }
            Ok(Ok(CallOutcome::Missing)) | Err(_) => called.missing += 1,
            Ok(Err(error)) => return Err(error),
        }
    }
    Ok(called)
}

/// The answer that a failed gRPC call is.
pub(crate) fn failed(status: &Status) -> CallOutcome {
    retry_delay(status).map_or(CallOutcome::Missing, CallOutcome::Refused)
}

/// The time after which a call that was refused for overload may retry.
pub(crate) fn retry_delay(status: &Status) -> Option<Duration> {
    if status.code() != Code::ResourceExhausted {
        return None;
    }
    status.get_details_retry_info()?.retry_delay
}

/// One point of the curve.
pub(crate) struct Point {
    callers: usize,
    called: Called,
    rate: f64,
    grown_mib: f64,
}

impl Point {
    /// Loads a server that had `idle_mib` of memory until `until`.
    pub(crate) async fn measure<C: Caller>(
        program: &mut Program,
        idle_mib: f64,
        callers: Vec<C>,
        until: Instant,
    ) -> Result<Point> {
        let (count, began) = (callers.len(), Instant::now());
        let called = call_until(callers, until).await?;
        let elapsed = called.stats.last.max(until) - began;
        let rate = called.stats.messages as f64 / elapsed.as_secs_f64();
        Ok(Point { callers: count, called, rate, grown_mib: program.resident()?.peak_mib - idle_mib })
    }
}

/// The rows of a curve of `what`, such as "Enqueue", in this unit.
pub(crate) fn rows(what: &str, unit: &'static str, points: &[Point]) -> Vec<Row> {
    let best = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let mut rows: Vec<Row> = points.iter().map(|point| rate_row(what, unit, point, best)).collect();
    if let Some(many) = points.iter().find(|point| point.callers == MANY) {
        let p99_ms = many.called.stats.quantile_ms(0.99).unwrap_or_default();
        let calls = format!("{what}: latency of a call that is not refused, {} callers: p99", grouped(MANY as u64));
        rows.push(Row::once(calls, "ms", p99_ms, Goal::AtMost(2_000.0)));
        let memory =
            format!("{what}: memory of the server with {} callers, beyond that at its start", grouped(MANY as u64));
        rows.push(Row::once(memory, "MiB", many.grown_mib, Goal::AtMost(100.0)));
    }
    rows
}

fn rate_row(what: &str, unit: &'static str, point: &Point, best: f64) -> Row {
    let Point { callers, called, rate, grown_mib } = point;
    let (mut ours, mut best_samples) = (Samples::new(), Samples::new());
    ours.push(called.stats.sample(*rate));
    best_samples.push(Sample { value: best, ..Sample::default() });
    let goal = if *callers == MANY { Goal::RatioAtLeast(0.8) } else { Goal::None };
    let reference = Reference::Measured("the best of these rates", &best_samples);
    Row::new(format!("{what}, {} callers", grouped(*callers as u64)), unit, &ours, reference, goal)
        .with("refused_calls", called.refused)
        .with("calls_without_an_answer", called.missing)
        .with("grown_mib", grown_mib.round())
}
