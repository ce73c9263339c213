//! What the demo found out, as one object: `--json` writes it as it is, the summary is drawn from it.

use super::asked::Asked;
use super::enqueue::{Enqueued, RefusedRows};
use super::fly::{FLIGHTS_PER_WORKER, Flown, Killed};
use super::judge::{Verdict, judge};
use super::log::{Entries, Run};
use super::plan::{Names, Plan};
use super::tally::Tally;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::Depth;

/// How many of the busiest aircraft are named.
const BUSIEST: usize = 5;

/// What the demo found out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlightsReport {
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
    /// Completions per second before the kill, from which on some aircraft wait for a lease to lapse.
    pub(super) completed_per_s_before_kill: Option<f64>,
    pub(super) waits: Waits,
    pub(super) killed: Option<KilledWorker>,
    pub(super) carriers: Vec<Share>,
    pub(super) origins: Vec<Share>,
    pub(super) busiest_aircraft: Vec<Share>,
    /// The totals of the counters by name, such as `carrier/UA`; empty: nothing was counted.
    pub(super) counters: BTreeMap<String, i64>,
    /// How they came about.
    pub(super) counting: Option<Tally>,
    /// What history says; `None`: the server keeps none.
    pub(super) history: Option<Asked>,
    /// What the server says: a cross-check, no proof.
    pub(super) depth: Depth,
    pub(super) checks: Vec<Check>,
    pub(super) passed: bool,
}

/// How long things waited.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Waits {
    /// From acceptance to lease, by the store's clock. All flights are enqueued before the first takes off.
    pub(super) in_queue_ms: Quantiles,
    /// From a flight landed to the next in the same hands: one completion and one lease, both on disk.
    pub(super) next_flight_ms: Quantiles,
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// The killed worker's story.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KilledWorker {
    pub(super) worker: u32,
    pub(super) killed_at_s: f64,
    /// The flights that it had in the air.
    pub(super) flights: Vec<KilledFlight>,
}

/// A flight that its worker had in hand when it was killed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KilledFlight {
    pub(super) id: String,
    pub(super) aircraft: String,
    /// The other worker that flew it; `None`: nobody did.
    pub(super) flown_by: Option<u32>,
    pub(super) attempt: u32,
    /// From the kill to the new take-off.
    pub(super) taken_over_after_s: f64,
}

/// A part of all flights.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Share {
    pub(super) name: String,
    pub(super) flights: u64,
}

/// Something that had to hold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(super) name: String,
    pub(super) passed: bool,
    pub(super) detail: String,
}

/// What the report is made of, beside what was enqueued and flown.
pub(super) struct Circumstances {
    pub(super) queue: String,
    pub(super) file: String,
    pub(super) workers: u32,
    pub(super) elapsed: Duration,
    pub(super) enqueue: Duration,
    pub(super) depth: Depth,
}

impl FlightsReport {
    /// With what history says.
    pub(super) fn with_history(self, history: Option<Asked>) -> Self {
        FlightsReport { history, ..self }
    }

    /// With what was counted.
    pub(super) fn with_tally(mut self, (counters, tally): (BTreeMap<String, i64>, Tally)) -> Self {
        self.checks.extend(tally.checks(&counters));
        self.passed = self.checks.iter().all(|check| check.passed);
        FlightsReport { counters, counting: Some(tally), ..self }
    }

    /// The killed worker's story.
    pub(super) fn killed(&self) -> Option<&KilledWorker> {
        self.killed.as_ref()
    }

    /// Whether every check passed.
    pub(crate) fn passed(&self) -> bool {
        self.passed
    }

    pub(super) fn new(enqueued: &Enqueued, plan: &Plan, flown: &Flown, about: Circumstances) -> Self {
        let verdict = judge(&plan.flights, &flown.log);
        let killed = flown.killed.map(|killed| killed_worker(killed, plan, &flown.log));
        let accepted = plan.flights.len() as u64;
        let checks = checks(&verdict, enqueued, plan, killed.as_ref(), about.depth);
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

impl Tally {
    fn checks(&self, counters: &BTreeMap<String, i64>) -> Vec<Check> {
        let check = |name: &str, passed: bool, detail: String| Check { name: name.to_owned(), passed, detail };
        let Tally { adds, counted, duplicates, refused, rollups, direct, .. } = self;
        let equal = counters.iter().filter(|(name, total)| direct.get(*name) == Some(*total)).count();
        vec![
            check(
                "every total equals a direct count of the file",
                counters == direct,
                format!("{equal} of {} counters", direct.len()),
            ),
            check(
                "every add was sent twice and counted once",
                counted == adds && duplicates == adds && *refused == 0,
                format!("{counted} counted, {duplicates} known already, {refused} refused"),
            ),
            check(
                "no two rollups of one counter overlapped",
                rollups.overlapped == 0 && rollups.committed > 0,
                format!("{} of {} rollups", rollups.overlapped, rollups.begun),
            ),
        ]
    }
}

fn checks(
    verdict: &Verdict,
    enqueued: &Enqueued,
    plan: &Plan,
    killed: Option<&KilledWorker>,
    depth: Depth,
) -> Vec<Check> {
    let check = |name: &str, passed: bool, detail: String| Check { name: name.to_owned(), passed, detail };
    let accepted = plan.flights.len() as u64;
    let refused: u64 = enqueued.refused.iter().map(|rows| rows.rows).sum();
    let (without, conflicts) = (enqueued.rows_without_aircraft, enqueued.conflicts());
    let taken = if conflicts > 0 { format!(", {conflicts} with another row's id") } else { String::new() };
    let mut checks = vec![
        check(
            "no aircraft flew two flights at once",
            verdict.max_running_per_aircraft <= 1,
            format!("at most {} at any moment", verdict.max_running_per_aircraft),
        ),
        check(
            "each aircraft's flights came in order of departure",
            verdict.order_violations == 0,
            format!("{} out of order", verdict.order_violations),
        ),
        check(
            "every flight was completed exactly once",
            verdict.completed == accepted && verdict.duplicates_completed == 0 && verdict.strangers == 0,
            format!(
                "{} of {accepted}, {} twice, {} that nobody enqueued",
                verdict.completed, verdict.duplicates_completed, verdict.strangers
            ),
        ),
        check(
            "every row without a tail number was refused, and no other",
            refused == without + conflicts && enqueued.refused_wrongly(plan) == 0,
            format!("{refused} refused, {without} without{taken}"),
        ),
    ];
    if let Some(killed) = killed {
        let held = killed.flights.len();
        let rescued = killed.flights.iter().filter(|flight| flight.flown_by.is_some()).count();
        checks.push(check(
            "the killed worker's flights were flown by others",
            held > 0 && rescued == held,
            format!("{rescued} of {held}"),
        ));
    }
    checks.push(check(
        "the server counts the same",
        depth.completed == accepted && depth.live() == 0 && depth.errored + depth.canceled == 0,
        format!("{} completed, {} left", depth.completed, depth.live()),
    ));
    checks
}

/// What became of the flights that the killed worker had in hand: in the air, or landed, which it could not say any more.
fn killed_worker(killed: Killed, plan: &Plan, log: &Entries) -> KilledWorker {
    let ids = plan.ids();
    let is_flown_again = |lost: &Run| {
        log.runs
            .iter()
            .any(|run| run.flight == lost.flight && run.worker != killed.worker && run.attempt > lost.attempt)
    };
    let is_lost = |run: &&Run| run.worker == killed.worker && (!run.landed || is_flown_again(run));
    let flights = log.runs.iter().filter(is_lost).map(|lost| {
        let is_rescue = |run: &&Run| {
            let confirmed = || {
                log.acknowledged.iter().any(|ack| (ack.flight, ack.fencing_token) == (run.flight, run.fencing_token))
            };
            run.flight == lost.flight && run.worker != killed.worker && confirmed()
        };
        let rescue = log.runs.iter().find(is_rescue);
        let aircraft = plan.flights[lost.flight as usize].aircraft;
        KilledFlight {
            id: ids[lost.flight as usize].to_owned(),
            aircraft: plan.aircraft.name(aircraft).to_owned(),
            flown_by: rescue.map(|run| run.worker),
            attempt: rescue.map_or(lost.attempt, |run| run.attempt),
            taken_over_after_s: rescue.map_or(0.0, |run| run.took_off_ns.saturating_sub(killed.at_ns) as f64 / 1e9),
        }
    });
    KilledWorker { worker: killed.worker, killed_at_s: killed.at_ns as f64 / 1e9, flights: flights.collect() }
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

pub(super) fn quantiles(mut values: Vec<f64>) -> Quantiles {
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).or(values.last()).copied().unwrap_or(0.0);
    Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0) }
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
