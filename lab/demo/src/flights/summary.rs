//! The report for a person: the checks first, then what happened, on one screen.

use super::details;
use super::report::FlightsReport;
use super::text::{Lines, bold, grouped, heading, mark};

/// Counters of each kind that the summary shows.
const COUNTERS_PER_KIND: usize = 1;
/// Carriers whose waits the summary shows.
const CARRIERS: usize = 4;

impl FlightsReport {
    /// The summary, at most 40 lines; with `details` everything else after it.
    pub fn text(&self, details: bool) -> String {
        let mut lines = vec![bold(&format!(
            "{} flights of {} aircraft, flown by {} workers in {:.1} s",
            grouped(self.completed),
            grouped(self.aircraft),
            self.workers,
            self.elapsed_s
        ))];
        lines.push(String::new());
        let width = self.checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
        let checks = self.checks.iter();
        lines.extend(checks.map(|check| format!("  {} {:<width$}  {}", mark(check.passed), check.name, check.detail)));
        self.queue(&mut lines);
        self.counted(&mut lines);
        self.answered(&mut lines);
        match details {
            true => details::add(self, &mut lines),
            false => lines.extend([
                String::new(),
                "--details adds carriers, airports, refused rows, more counters and the trace of a killed flight."
                    .to_owned(),
            ]),
        }
        lines.join("\n")
    }

    fn queue(&self, lines: &mut Lines) {
        heading(lines, "Queue");
        let (rows, enqueued, refused) = (self.rows, self.enqueued, self.refused.values().sum());
        lines.push(format!(
            "  {} rows of {}: {} enqueued at {}/s, {} refused",
            grouped(rows),
            self.file,
            grouped(enqueued),
            grouped(self.enqueue_per_s as u64),
            grouped(refused)
        ));
        if self.repeated > 0 {
            lines.push(format!("  {} rows occur twice and became one message each", grouped(self.repeated)));
        }
        let overall = grouped(self.completed_per_s as u64);
        lines.push(match self.completed_per_s_before_kill {
            Some(before) => format!(
                "  Leased and completed at {}/s; at {overall}/s including the wait for the killed worker's leases",
                grouped(before as u64)
            ),
            None => format!("  Leased and completed at {overall}/s"),
        });
        let next = self.waits.next_flight_ms;
        lines.push(format!(
            "  From a landing to the worker's next flight: p50 {:.1} ms, p99 {:.1} ms",
            next.p50, next.p99
        ));
        if let Some(killed) = &self.killed {
            lines.push(format!(
                "  pilot-{} was killed after {:.2} s with {} flights in the air. When their leases had expired,",
                killed.worker,
                killed.killed_at_s,
                killed.flights.len()
            ));
            let longest = killed.flights.iter().map(|flight| flight.taken_over_after_s).fold(0.0, f64::max);
            lines.push(format!("  other workers flew them, the last {longest:.2} s after the kill"));
        }
    }

    fn counted(&self, lines: &mut Lines) {
        let Some(counting) = &self.counting else { return };
        heading(lines, "Counters");
        let per_s = 2.0 * counting.adds as f64 / counting.send_s;
        let (adds, counters) = (grouped(counting.adds), grouped(self.counters.len() as u64));
        lines.push(format!("  {adds} adds to {counters} counters, each sent twice: {}/s", grouped(per_s as u64)));
        let killed = counting.killed_worker.as_ref();
        let kill = killed.map_or(String::new(), |killed| {
            format!("; {} was killed with {} rollups unfinished", killed.name, killed.unfinished)
        });
        lines.push(format!("  {} rollups by two workers{kill}", grouped(counting.rollups.committed)));
        lines.push(format!("  Every count was exact {:.1} s after the last add", counting.exact_after_s));
        let (views, local) = (&counting.views, &counting.local);
        lines.push(format!(
            "  {} views over HTTP: {}/s, counted after {:.1} s; adds in this process: {:.0} million/s",
            grouped(views.views),
            grouped((views.views as f64 / views.posts_s.max(1e-9)) as u64),
            views.counted_after_s,
            local.adds as f64 / local.adds_s.max(1e-9) / 1e6
        ));
        details::counter_table(self, counting, COUNTERS_PER_KIND, lines);
    }

    fn answered(&self, lines: &mut Lines) {
        let Some(history) = &self.history else { return };
        heading(lines, "History");
        if let Some(longest) = &history.longest_wait {
            let waited_s = longest.waited_ms as f64 / 1e3;
            lines.push(format!("  Longest wait for an aircraft: {waited_s:.1} s, {}", longest.flight));
            lines.push(format!(
                "    Its aircraft {} first flew {} earlier flights, which took {:.1} s",
                longest.aircraft,
                grouped(longest.flights_before),
                longest.aircraft_busy_ms as f64 / 1e3
            ));
        }
        let waits = history.waits_by_carrier.iter().take(CARRIERS);
        let waits: Vec<String> =
            waits.map(|wait| format!("{} {:.1} s", wait.carrier, wait.wait_ms.p50 / 1e3)).collect();
        lines.push(format!("  Longest median waits until landing, by carrier: {}", waits.join(", ")));
        lines
            .push(format!("  The history was complete {:.1} s after the last landing", history.indexed_after_ms / 1e3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flights::checks::Check;
    use crate::flights::counting::{Counting, KilledRollupWorker, LocallyCounted, Overlaps, Viewed};
    use crate::flights::enqueue::{Enqueued, RefusedRows};
    use crate::flights::flight_log::FlightLogEntries;
    use crate::flights::history::{CarrierWait, HistoryAnswers, LongestWait, TracedFlight};
    use crate::flights::killed::{KilledFlight, KilledWorker};
    use crate::flights::pilots::Flown;
    use crate::flights::plan::Plan;
    use crate::flights::quantiles::Quantiles;
    use crate::flights::report::Circumstances;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const FLIGHT: &str = "2013-01-31T22:30:00Z/EV4321/LGA";

    /// A report of the embedded month, with every part that a report can have.
    fn report() -> FlightsReport {
        let flown = Flown { log: FlightLogEntries::default(), elapsed: Duration::from_secs(10), killed: None };
        let about = Circumstances {
            queue: "flights-01234567".to_owned(),
            file: "January 2013 (embedded)".to_owned(),
            workers: 32,
            elapsed: Duration::from_secs(12),
            enqueue: Duration::from_secs(1),
            depth: Default::default(),
        };
        let wait_ms = Quantiles { p50: 12_345.0, p99: 23_456.0, max: 34_567.0 };
        let carriers = ["UA", "B6", "EV", "DL", "AA", "MQ"];
        let flight = KilledFlight {
            id: FLIGHT.to_owned(),
            aircraft: "N12345".to_owned(),
            flown_by: Some(31),
            attempt: 2,
            taken_over_after_s: 2.05,
        };
        let refused = RefusedRows {
            reason: "INVALID_ARGUMENT".to_owned(),
            field: Some("metadata".to_owned()),
            message: "metadata.tail is required in an exclusive queue".to_owned(),
            rows: 155,
            example: FLIGHT.to_owned(),
        };
        let mut enqueued = Enqueued::default();
        (enqueued.rows, enqueued.refused) = (27_004, vec![refused]);
        let mut report = FlightsReport::new(&enqueued, &Plan::default(), &flown, about);
        report.enqueued = 26_849;
        report.completed = 26_849;
        report.repeated = 7;
        report.completed_per_s_before_kill = Some(34_567.0);
        report.killed = Some(KilledWorker { worker: 31, killed_at_s: 10.5, flights: vec![flight; 4] });
        let counters: BTreeMap<String, i64> = ["carrier/UA", "origin/EWR", "route/JFK-LAX", "aircraft/N730MQ"]
            .map(|name| (name.to_owned(), 4_605))
            .into();
        let counting = Counting {
            adds: 107_396,
            counted: 107_396,
            duplicates: 107_396,
            refused: 0,
            send_s: 2.0,
            exact_after_s: 12.3,
            rollups: Overlaps { begun: 12_345, committed: 12_340, lost: 5, overlapped: 0 },
            killed_worker: Some(KilledRollupWorker {
                name: "rollup-1".to_owned(),
                begun: 100,
                unfinished: 12,
                taken_over: 12,
            }),
            views: Viewed { views: 26_849, posts_s: 0.4, counted_after_s: 0.6, equal: 224, routes: 224 },
            local: LocallyCounted { adds: 107_396, adds_s: 0.001, equal: 4, counters: 4 },
            direct: counters.clone(),
        };
        let history = HistoryAnswers {
            longest_wait: Some(LongestWait {
                flight: FLIGHT.to_owned(),
                aircraft: "N12345".to_owned(),
                waited_ms: 12_345,
                flights_before: 123,
                aircraft_busy_ms: 12_340,
                dead_lease_ms: 2_000,
            }),
            waits_by_carrier: carriers
                .map(|carrier| CarrierWait { carrier: carrier.to_owned(), flights: 4_605, wait_ms })
                .into(),
            killed_flight: Some(TracedFlight {
                id: FLIGHT.to_owned(),
                transitions: Vec::new(),
                drawn: "pending\nrunning".to_owned(),
            }),
            indexed_after_ms: 1_234.0,
        };
        let mut report = report.with_history(Some(history)).with_counting(counters, counting);
        let killed = "other workers flew the killed worker's flights".to_owned();
        report.checks.push(Check { name: killed, passed: true, detail: "4 of 4".to_owned() });
        report
    }

    #[test]
    fn the_summary_fits_on_one_screen_with_the_checks_first() {
        owo_colors::set_override(false);
        let text = report().text(false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= 40, "{} lines:\n{text}", lines.len());
        for line in &lines {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
        assert!(lines[2].contains("no aircraft flew two flights at once"), "{text}");
        assert!(text.contains("Queue") && text.contains("Counters") && text.contains("History"), "{text}");
    }

    #[test]
    fn details_add_to_the_summary() {
        owo_colors::set_override(false);
        let (summary, details) = (report().text(false), report().text(true));
        let kept = summary.lines().take(30);
        assert_eq!(details.lines().take(30).collect::<Vec<_>>(), kept.collect::<Vec<_>>());
        for part in ["INVALID_ARGUMENT", "flown by pilot-31 at attempt 2", "United Air Lines", "  running"] {
            assert!(details.contains(part) && !summary.contains(part), "{part} in:\n{details}");
        }
    }
}
