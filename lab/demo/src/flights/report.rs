//! The result of the demo as one object: `--json` prints it as it is, the summary shows parts of it.

use super::checks::{Check, counter_checks, queue_checks};
use super::counting::Counting;
use super::enqueue::{Enqueued, RefusedRows};
use super::flight_log::Run;
use super::history::HistoryAnswers;
use super::judge::judge;
use super::killed::KilledWorker;
use super::pilots::{FLIGHTS_PER_WORKER, Flown};
use super::plan::{Names, Plan};
use super::quantiles::{Quantiles, quantiles};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::Depth;

/// How many of the busiest aircraft are named.
const BUSIEST: usize = 5;

/// The result of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct FlightsReport {
    pub(super) queue: String,
    pub(super) file: String,
    pub(super) workers: u32,
    pub(super) flights_per_worker: u32,
    pub(super) rows: u64,
    /// Accepted messages.
    pub(super) enqueued: u64,
    /// Rows that were accepted before: same id, same content.
    pub(super) repeated: u64,
    /// Rows by the reason for which they were refused.
    pub(super) refused: BTreeMap<String, u64>,
    pub(super) refused_rows: Vec<RefusedRows>,
    pub(super) completed: u64,
    pub(super) aircraft: u64,
    pub(super) max_running_per_aircraft: u64,
    pub(super) order_violations: u64,
    /// Flights that took off more than once.
    pub(super) redelivered: u64,
    pub(super) duplicates_completed: u64,
    pub(super) elapsed_s: f64,
    pub(super) enqueue_s: f64,
    pub(super) enqueue_per_s: f64,
    pub(super) fly_s: f64,
    pub(super) completed_per_s: f64,
    /// Completions per second before the kill. After it, some aircraft wait for a lease to expire.
    pub(super) completed_per_s_before_kill: Option<f64>,
    pub(super) waits: Waits,
    pub(super) killed: Option<KilledWorker>,
    pub(super) carriers: Vec<Share>,
    pub(super) origins: Vec<Share>,
    pub(super) busiest_aircraft: Vec<Share>,
    /// The totals of the counters by name, such as `carrier/UA`; empty: nothing was counted.
    pub(super) counters: BTreeMap<String, i64>,
    /// How the counters were counted.
    pub(super) counting: Option<Counting>,
    /// What the history says; `None`: the server keeps none.
    pub(super) history: Option<HistoryAnswers>,
    /// The server's own counts: a cross-check, not a proof.
    pub(super) depth: Depth,
    pub(super) checks: Vec<Check>,
    pub(super) passed: bool,
}

/// How long things waited.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Waits {
    /// From acceptance to lease, by the store's clock. All flights are enqueued before the first takes off.
    pub(super) in_queue_ms: Quantiles,
    /// From a landing to the worker's next flight: one completion and one lease, both on disk.
    pub(super) next_flight_ms: Quantiles,
}

/// A part of all flights.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Share {
    pub(super) name: String,
    pub(super) flights: u64,
}

/// What the report needs in addition to the enqueued flights and the log.
pub(super) struct Circumstances {
    pub(super) queue: String,
    pub(super) file: String,
    pub(super) workers: u32,
    pub(super) elapsed: Duration,
    pub(super) enqueue: Duration,
    pub(super) depth: Depth,
}

impl FlightsReport {
    /// Adds the answers of history.
    pub(super) fn with_history(self, history: Option<HistoryAnswers>) -> Self {
        FlightsReport { history, ..self }
    }

    /// Adds the totals of the counters, and their checks.
    pub(super) fn with_counting(mut self, counters: BTreeMap<String, i64>, counting: Counting) -> Self {
        self.checks.extend(counter_checks(&counters, &counting));
        self.passed = self.checks.iter().all(|check| check.passed);
        FlightsReport { counters, counting: Some(counting), ..self }
    }

    /// The killed worker's story.
    pub(super) fn killed(&self) -> Option<&KilledWorker> {
        self.killed.as_ref()
    }

    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.passed
    }

    pub(super) fn new(enqueued: &Enqueued, plan: &Plan, flown: &Flown, about: Circumstances) -> Self {
        let verdict = judge(&plan.flights, &flown.log);
        let killed = flown.killed.map(|killed| KilledWorker::find(killed, plan, &flown.log));
        let accepted = plan.flights.len() as u64;
        let checks = queue_checks(&verdict, enqueued, plan, killed.as_ref(), about.depth);
        let mut refused = BTreeMap::new();
        for rows in &enqueued.refused {
            *refused.entry(rows.reason.clone()).or_default() += rows.rows;
        }
        let landed_before = |at_ns: u64| flown.log.runs.iter().filter(|run| run.landed && run.ended_ns < at_ns).count();
        let shares =
            |names: &Names, number: fn(&super::plan::Planned) -> u32| shares(names, plan.flights.iter().map(number));
        let mut busiest_aircraft = shares(&plan.aircraft, |flight| flight.aircraft);
        busiest_aircraft.truncate(BUSIEST);
        FlightsReport {
            queue: about.queue,
            file: about.file,
            workers: about.workers,
            flights_per_worker: FLIGHTS_PER_WORKER,
            rows: enqueued.rows,
            enqueued: accepted,
            repeated: enqueued.repeated,
            refused,
            refused_rows: enqueued.refused.clone(),
            completed: verdict.completed,
            aircraft: plan.aircraft.len() as u64,
            max_running_per_aircraft: verdict.max_running_per_aircraft,
            order_violations: verdict.order_violations,
            redelivered: verdict.redelivered,
            duplicates_completed: verdict.duplicates_completed,
            elapsed_s: about.elapsed.as_secs_f64(),
            enqueue_s: about.enqueue.as_secs_f64(),
            enqueue_per_s: per_second(accepted, about.enqueue.as_secs_f64()),
            fly_s: flown.elapsed.as_secs_f64(),
            completed_per_s: per_second(verdict.completed, flown.elapsed.as_secs_f64()),
            completed_per_s_before_kill: flown
                .killed
                .map(|killed| per_second(landed_before(killed.at_ns) as u64, killed.at_ns as f64 / 1e9)),
            waits: Waits {
                in_queue_ms: quantiles(flown.log.runs.iter().map(|run| run.queued_ms as f64).collect()),
                next_flight_ms: quantiles(next_flight_ms(&flown.log.runs, about.workers)),
            },
            killed,
            carriers: shares(&plan.carriers, |flight| flight.carrier),
            origins: shares(&plan.origins, |flight| flight.origin),
            busiest_aircraft,
            counters: BTreeMap::new(),
            counting: None,
            history: None,
            depth: about.depth,
            passed: checks.iter().all(|check| check.passed),
            checks,
        }
    }
}

/// The time from each landing to the take-off that it made room for: of one worker, the n-th landing gives the credit
/// for the take-off that comes a full hand after the n-th.
fn next_flight_ms(runs: &[Run], workers: u32) -> Vec<f64> {
    let mut of_worker: Vec<(Vec<u64>, Vec<u64>)> = vec![Default::default(); workers as usize];
    for run in runs {
        let (take_offs, landings) = &mut of_worker[run.worker as usize];
        take_offs.push(run.took_off_ns);
        if run.landed {
            landings.push(run.ended_ns);
        }
    }
    let mut gaps = Vec::with_capacity(runs.len());
    for (take_offs, mut landings) in of_worker {
        landings.sort_unstable();
        let next = take_offs.iter().skip(FLIGHTS_PER_WORKER as usize);
        gaps.extend(next.zip(landings).map(|(next, landed)| next.saturating_sub(landed) as f64 / 1e6));
    }
    gaps
}

/// Flights by name, most first.
fn shares(names: &Names, numbers: impl Iterator<Item = u32>) -> Vec<Share> {
    let mut counts = vec![0_u64; names.len()];
    for number in numbers {
        counts[number as usize] += 1;
    }
    let share = |(number, flights)| Share { name: names.name(number).to_owned(), flights };
    let mut shares: Vec<Share> = (0..).zip(counts).map(share).collect();
    shares.sort_by(|a, b| b.flights.cmp(&a.flights).then_with(|| a.name.cmp(&b.name)));
    shares
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
