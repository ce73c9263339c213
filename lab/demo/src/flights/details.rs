//! What `--details` adds to the summary.

use super::counting::Counting;
use super::names::{airport_name, carrier_name};
use super::report::{FlightsReport, Share};
use super::text::{Lines, bar, grouped, heading};

/// Counters of each kind.
const COUNTERS_PER_KIND: usize = 3;
const KINDS: [&str; 4] = ["carrier/", "origin/", "route/", "aircraft/"];

/// Adds everything that the summary leaves out.
pub(super) fn add(report: &FlightsReport, lines: &mut Lines) {
    let waited = report.waits.in_queue_ms;
    heading(lines, "Waits in the queue");
    lines.push(format!("  From enqueue to lease: p50 {:.1} s, p99 {:.1} s", waited.p50 / 1e3, waited.p99 / 1e3));
    bars(lines, "Flights by carrier", &report.carriers, carrier_name);
    bars(lines, "Flights by airport", &report.origins, airport_name);
    bars(lines, "Busiest aircraft", &report.busiest_aircraft, |_| "");
    refused(report, lines);
    killed(report, lines);
    if let Some(counting) = &report.counting {
        heading(lines, "Busiest counters");
        counter_table(report, counting, COUNTERS_PER_KIND, lines);
    }
    history(report, lines);
}

/// The largest counters of each kind, with the expected totals.
pub(super) fn counter_table(report: &FlightsReport, counting: &Counting, per_kind: usize, lines: &mut Lines) {
    lines.push(format!("  {:<20} {:>9} {:>13}", "", "counted", "in the file"));
    for kind in KINDS {
        let of_kind = counting.direct.iter().filter(|(name, _)| name.starts_with(kind));
        let mut of_kind: Vec<(&String, i64)> = of_kind.map(|(name, total)| (name, *total)).collect();
        of_kind.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        for (name, direct) in of_kind.into_iter().take(per_kind) {
            let counted = report.counters.get(name).copied().unwrap_or_default();
            lines.push(format!("  {name:<20} {counted:>9} {direct:>13}"));
        }
    }
}

fn refused(report: &FlightsReport, lines: &mut Lines) {
    if report.refused_rows.is_empty() {
        return;
    }
    heading(lines, "Refused rows");
    for rows in &report.refused_rows {
        lines.push(format!("  {} × {}: {}", grouped(rows.rows), rows.reason, rows.message));
        lines.push(format!("    for example {}", rows.example));
    }
}

fn killed(report: &FlightsReport, lines: &mut Lines) {
    let Some(killed) = &report.killed else { return };
    heading(lines, &format!("Flights of the killed worker, pilot-{}", killed.worker));
    for flight in &killed.flights {
        let outcome = match flight.flown_by {
            Some(by) => format!(
                "flown by pilot-{by} at attempt {}, {:.2} s after the kill",
                flight.attempt, flight.taken_over_after_s
            ),
            None => "not flown again".to_owned(),
        };
        lines.push(format!("  {:<7} {:<32} {outcome}", flight.aircraft, flight.id));
    }
}

fn history(report: &FlightsReport, lines: &mut Lines) {
    let Some(history) = &report.history else { return };
    if let Some(longest) = history.longest_wait.as_ref().filter(|longest| longest.dead_lease_ms > 0) {
        heading(lines, "Longest wait");
        lines.push(format!(
            "  For {:.1} s of it, the killed worker's lease on an earlier flight had not expired yet",
            longest.dead_lease_ms as f64 / 1e3
        ));
    }
    heading(lines, "Waits until landing, by carrier");
    for wait in &history.waits_by_carrier {
        let (p50, p99) = (wait.wait_ms.p50 / 1e3, wait.wait_ms.p99 / 1e3);
        let (code, name, flights) = (&wait.carrier, carrier_name(&wait.carrier), grouped(wait.flights));
        lines.push(format!("  {code:<3} {name:<19} {flights:>6} flights   p50 {p50:>5.1} s   p99 {p99:>5.1} s"));
    }
    if let Some(killed) = &history.killed_flight {
        heading(lines, "Trace of a flight whose worker was killed");
        lines.extend(killed.drawn.lines().map(|line| format!("  {line}")));
    }
}

/// One line with a bar per name.
fn bars(lines: &mut Lines, title: &str, shares: &[Share], full_name: fn(&str) -> &'static str) {
    if shares.is_empty() {
        return;
    }
    heading(lines, title);
    let most = shares.iter().map(|share| share.flights).max().unwrap_or(1).max(1) as f64;
    let width = shares.iter().map(|share| full_name(&share.name).len()).max().unwrap_or(0);
    for share in shares {
        let (name, flights) = (&share.name, grouped(share.flights));
        let bar = bar(share.flights as f64 / most);
        lines.push(format!("  {name:<6} {:<width$} {flights:>7} {bar}", full_name(name)));
    }
}
