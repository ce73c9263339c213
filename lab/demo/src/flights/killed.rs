//! What happened to the flights that the killed worker held.

use super::flight_log::{FlightLogEntries, Run};
use super::pilots::Kill;
use super::plan::Plan;
use serde::Serialize;

/// The killed worker and its flights.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KilledWorker {
    pub(super) worker: u32,
    /// From the first take-off of the demo.
    pub(super) killed_at_s: f64,
    /// The flights that it had in the air.
    pub(super) flights: Vec<KilledFlight>,
}

/// A flight whose worker was killed while it held the lease.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KilledFlight {
    pub(super) id: String,
    pub(super) aircraft: String,
    /// The worker that completed the flight in the end; `None`: none did.
    pub(super) flown_by: Option<u32>,
    pub(super) attempt: u32,
    /// From the kill to the new take-off.
    pub(super) taken_over_after_s: f64,
}

impl KilledWorker {
    /// Finds the flights of the killed worker in the log: those still in the air, and those that had landed but were
    /// flown again, because the worker died before it could complete them.
    pub(super) fn find(kill: Kill, plan: &Plan, log: &FlightLogEntries) -> KilledWorker {
        let ids = plan.ids();
        let is_flown_again = |lost: &Run| {
            log.runs
                .iter()
                .any(|run| run.flight == lost.flight && run.worker != kill.worker && run.attempt > lost.attempt)
        };
        let is_lost = |run: &&Run| run.worker == kill.worker && (!run.landed || is_flown_again(run));
        let flights = log.runs.iter().filter(is_lost).map(|lost| {
            let is_takeover = |run: &&Run| {
                let confirmed = || {
                    let mut acknowledged = log.acknowledged.iter();
                    acknowledged.any(|ack| (ack.flight, ack.fencing_token) == (run.flight, run.fencing_token))
                };
                run.flight == lost.flight && run.worker != kill.worker && confirmed()
            };
            let takeover = log.runs.iter().find(is_takeover);
            let aircraft = plan.flights[lost.flight as usize].aircraft;
            KilledFlight {
                id: ids[lost.flight as usize].to_owned(),
                aircraft: plan.aircraft.name(aircraft).to_owned(),
                flown_by: takeover.map(|run| run.worker),
                attempt: takeover.map_or(lost.attempt, |run| run.attempt),
                taken_over_after_s: takeover.map_or(0.0, |run| run.took_off_ns.saturating_sub(kill.at_ns) as f64 / 1e9),
            }
        });
        KilledWorker { worker: kill.worker, killed_at_s: kill.at_ns as f64 / 1e9, flights: flights.collect() }
    }

    /// How many of its flights other workers completed.
    pub(super) fn taken_over(&self) -> usize {
        self.flights.iter().filter(|flight| flight.flown_by.is_some()).count()
    }
}
