//! Compares the workers' log with the plan. A pure function, so that its tests can give it wrong logs.

use super::flight_log::{FlightLogEntries, Run};
use super::plan::{FlightNo, Planned};
use std::collections::HashSet;

/// What the log shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Flights with at least one confirmed completion.
    pub(super) completed: u64,
    /// Confirmed completions beyond the first of a flight.
    pub(super) duplicates_completed: u64,
    /// Most flights that one aircraft was on at any moment. A killed worker's flight counts until the kill.
    pub(super) max_running_per_aircraft: u64,
    /// Take-offs of a flight that was not the earliest of its aircraft still to be completed: by departure, then by
    /// order of the file.
    pub(super) order_violations: u64,
    /// Flights that took off more than once.
    pub(super) redelivered: u64,
    /// Leased messages that the demo did not enqueue.
    pub(super) strangers: u64,
}

/// Reads the log.
pub(super) fn judge(plan: &[Planned], log: &FlightLogEntries) -> Verdict {
    let mut completions = vec![0_u64; plan.len()];
    for acknowledged in &log.acknowledged {
        completions[acknowledged.flight as usize] += 1;
    }
    let confirmed: HashSet<(FlightNo, u64)> =
        log.acknowledged.iter().map(|ack| (ack.flight, ack.fencing_token)).collect();
    let mut take_offs = vec![0_u64; plan.len()];
    for run in &log.runs {
        take_offs[run.flight as usize] += 1;
    }
    let mut verdict = Verdict {
        completed: completions.iter().filter(|completions| **completions > 0).count() as u64,
        duplicates_completed: completions.iter().map(|completions| completions.saturating_sub(1)).sum(),
        redelivered: take_offs.iter().filter(|take_offs| **take_offs > 1).count() as u64,
        strangers: log.strangers.len() as u64,
        ..Verdict::default()
    };
    let aircraft = plan.iter().map(|flight| flight.aircraft as usize + 1).max().unwrap_or(0);
    let mut flights: Vec<Vec<FlightNo>> = vec![Vec::new(); aircraft];
    for (number, flight) in (0..).zip(plan) {
        flights[flight.aircraft as usize].push(number);
    }
    let mut runs: Vec<Vec<&Run>> = vec![Vec::new(); aircraft];
    for run in &log.runs {
        runs[plan[run.flight as usize].aircraft as usize].push(run);
    }
    for (flights, runs) in flights.iter_mut().zip(&mut runs) {
        flights.sort_by_key(|flight| (plan[*flight as usize].departure_ms, *flight));
        runs.sort_by_key(|run| run.took_off_ns);
        verdict.max_running_per_aircraft = verdict.max_running_per_aircraft.max(most_at_once(runs));
        verdict.order_violations += out_of_order(flights, runs, &confirmed);
    }
    verdict
}

/// The most runs at one moment; one that ends when another begins is over.
fn most_at_once(runs: &[&Run]) -> u64 {
    let take_offs = runs.iter().map(|run| (run.took_off_ns, 1_i64));
    let ends = runs.iter().map(|run| (run.ended_ns, -1_i64));
    let mut changes: Vec<(u64, i64)> = take_offs.chain(ends).collect();
    changes.sort_unstable();
    let running = changes.iter().scan(0_i64, |running, (_, change)| {
        *running += change;
        Some(*running)
    });
    running.max().unwrap_or(0).unsigned_abs()
}

/// Runs of one aircraft that were not of its earliest flight still to be completed.
fn out_of_order(flights: &[FlightNo], runs: &[&Run], confirmed: &HashSet<(FlightNo, u64)>) -> u64 {
    let mut completed = HashSet::new();
    let mut next = 0;
    let mut violations = 0;
    for run in runs {
        while flights.get(next).is_some_and(|flight| completed.contains(flight)) {
            next += 1;
        }
        violations += u64::from(flights.get(next) != Some(&run.flight));
        if confirmed.contains(&(run.flight, run.fencing_token)) {
            completed.insert(run.flight);
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::flight_log::Acknowledged;
    use super::*;

    /// Flights 0, 1, 2 of aircraft 0 and flight 3 of aircraft 1; 1 and 2 depart together.
    fn plan() -> Vec<Planned> {
        [(10, 0), (20, 0), (20, 0), (5, 1)]
            .map(|(departure_ms, aircraft)| Planned { departure_ms, aircraft, carrier: 0, origin: 0, dest: 0 })
            .into()
    }

    fn run(flight: FlightNo, fencing_token: u64, took_off_ns: u64, ended_ns: u64, landed: bool) -> Run {
        Run { flight, worker: 0, attempt: 1, fencing_token, took_off_ns, ended_ns, landed, queued_ms: 0 }
    }

    /// A log of landed flights, each confirmed.
    fn log(runs: &[(FlightNo, u64, u64)]) -> FlightLogEntries {
        let mut log = FlightLogEntries::default();
        for (fencing_token, (flight, took_off_ns, ended_ns)) in (1..).zip(runs) {
            log.runs.push(run(*flight, fencing_token, *took_off_ns, *ended_ns, true));
            log.acknowledged.push(Acknowledged { flight: *flight, fencing_token });
        }
        log
    }

    fn good() -> FlightLogEntries {
        log(&[(0, 1, 2), (3, 1, 9), (1, 2, 4), (2, 5, 6)])
    }

    #[test]
    fn a_good_log_passes() {
        let expected = Verdict { completed: 4, max_running_per_aircraft: 1, ..Verdict::default() };
        assert_eq!(judge(&plan(), &good()), expected);
    }

    #[test]
    fn an_overlap_is_seen() {
        let verdict = judge(&plan(), &log(&[(0, 1, 3), (1, 2, 4), (2, 5, 6), (3, 1, 9)]));
        assert_eq!((verdict.max_running_per_aircraft, verdict.order_violations), (2, 0));
        let mut never_ended = good();
        never_ended.runs[0].ended_ns = u64::MAX;
        assert_eq!(judge(&plan(), &never_ended).max_running_per_aircraft, 2);
    }

    #[test]
    fn a_wrong_order_is_seen() {
        // 1 took off while 0 was still to be completed.
        assert_eq!(judge(&plan(), &log(&[(1, 1, 2), (0, 3, 4), (2, 5, 6), (3, 1, 2)])).order_violations, 1);
        // Equal departures go by the order of the file.
        assert_eq!(judge(&plan(), &log(&[(0, 1, 2), (2, 3, 4), (1, 5, 6), (3, 1, 2)])).order_violations, 1);
    }

    #[test]
    fn a_double_completion_is_seen() {
        let mut twice = good();
        twice.runs.push(run(0, 9, 7, 8, true));
        twice.acknowledged.push(Acknowledged { flight: 0, fencing_token: 9 });
        let verdict = judge(&plan(), &twice);
        assert_eq!((verdict.completed, verdict.duplicates_completed, verdict.redelivered), (4, 1, 1));
        assert_eq!(verdict.order_violations, 1, "it flew again after it was completed");
    }

    #[test]
    fn a_missing_completion_and_a_stranger_are_seen() {
        let mut log = good();
        log.acknowledged.pop();
        log.strangers.push("who?".to_owned());
        let verdict = judge(&plan(), &log);
        assert_eq!((verdict.completed, verdict.strangers), (3, 1));
    }

    #[test]
    fn a_killed_flight_is_flown_again_before_later_ones() {
        // Flight 0 was in the air when its worker was killed at 3; another flies it from 5.
        let mut killed = log(&[(0, 5, 6), (1, 7, 8), (2, 9, 10), (3, 1, 2)]);
        killed.runs.push(run(0, 99, 1, 3, false));
        let expected = Verdict { completed: 4, max_running_per_aircraft: 1, redelivered: 1, ..Verdict::default() };
        assert_eq!(judge(&plan(), &killed), expected);
        // Had another flight of that aircraft gone first, that would be out of order.
        let mut killed = log(&[(1, 4, 5), (0, 6, 7), (2, 9, 10), (3, 1, 2)]);
        killed.runs.push(run(0, 99, 1, 3, false));
        assert_eq!(judge(&plan(), &killed).order_violations, 1);
    }
}
