//! The series of queues in the text format of Prometheus.

use super::board::{Board, Reading, Shown, Sum};
use super::tally::{Counted, Totals};
use std::fmt::Write;
use tallystone_model::State;
use tallystone_model::refusal::REASONS;
use tokio::time::Instant;

/// Queues without separate series. No name of a queue has parentheses.
const OTHERS: &str = "(other)";
/// The internal queues of all namespaces.
const INTERNAL: &str = "(rollup)";

const MESSAGES: &str = "tallystone_queue_messages";
const PENDING_AGE: &str = "tallystone_queue_oldest_pending_age_seconds";
const LEASE_AGE: &str = "tallystone_queue_oldest_lease_age_seconds";
const REFUSED: &str = "tallystone_queue_refused_total";
/// The states that have a gauge: those in which an operator may have to act.
const STATES: [State; 4] = [State::Pending, State::Invisible, State::Running, State::Errored];

/// The metric of a counter, and its HELP.
fn counter(counted: Counted) -> (&'static str, &'static str) {
    match counted {
        Counted::Enqueued => {
            ("tallystone_queue_enqueued_total", "messages that this server accepted, by queue; repeated calls included")
        }
        Counted::Leased => ("tallystone_queue_leased_total", "leases that this server gave to workers, by queue"),
        Counted::Completed => ("tallystone_queue_completed_total", "leases completed through this server, by queue"),
        Counted::Released => ("tallystone_queue_released_total", "leases released through this server, by queue"),
        Counted::Lapsed => {
            ("tallystone_queue_lapsed_total", "leases that ran out and that this server ended, by queue")
        }
        Counted::Errored => (
            "tallystone_queue_errored_total",
            "messages that became errored by a release or an expired lease at this server, by queue",
        ),
    }
}

/// Appends all series of queues.
pub(crate) fn write(board: &Board, page: &mut String) {
    let Shown { queues, others, internal, is_read } = board.shown();
    let sums = [(OTHERS, &others), (INTERNAL, &internal)];
    for counted in Counted::ALL {
        let (name, help) = counter(counted);
        head(page, name, "counter", help);
        let value = |totals: &Totals| totals.counts[counted as usize];
        for (queue, totals, _) in &queues {
            line(page, name, queue.as_str(), "", value(totals));
        }
        sums.iter().for_each(|(queue, sum)| line(page, name, queue, "", value(&sum.totals)));
    }
    head(page, REFUSED, "counter", "calls and items of batches that this server refused, by queue and reason");
    let mut refused = |queue: &str, totals: &Totals| {
        for (reason, number) in REASONS.iter().zip(totals.refused).filter(|(_, number)| *number > 0) {
            line(page, REFUSED, queue, &format!(",reason=\"{reason}\""), number);
        }
    };
    queues.iter().for_each(|(queue, totals, _)| refused(queue.as_str(), totals));
    sums.iter().for_each(|(queue, sum)| refused(queue, &sum.totals));
    if is_read {
        let readings = queues.iter().filter_map(|(queue, _, reading)| Some((queue.as_str(), reading.as_ref()?)));
        gauges(page, &readings.collect::<Vec<_>>(), &sums);
    }
}

fn gauges(page: &mut String, readings: &[(&str, &Reading)], sums: &[(&str, &Sum)]) {
    let of_store = "the store has one value: take the maximum over the servers";
    head(page, MESSAGES, "gauge", &format!("messages by queue and state; {of_store}"));
    let depths = readings.iter().map(|(queue, reading)| (*queue, reading.depth));
    for (queue, depth) in depths.chain(sums.iter().map(|(queue, sum)| (*queue, sum.depth))) {
        for state in STATES {
            line(page, MESSAGES, queue, &format!(",state=\"{state}\""), depth.of(state));
        }
    }
    let now = Instant::now();
    let seconds = |age_ms: Option<u64>, reading: &Reading| match age_ms {
        Some(age_ms) => age_ms as f64 / 1_000.0 + now.duration_since(reading.at).as_secs_f64(),
        None => 0.0,
    };
    head(
        page,
        PENDING_AGE,
        "gauge",
        &format!("since the Enqueue of the oldest runnable message, by queue; {of_store}"),
    );
    for (queue, reading) in readings {
        line(page, PENDING_AGE, queue, "", format_args!("{:.3}", seconds(reading.ages.pending_ms, reading)));
    }
    head(page, LEASE_AGE, "gauge", &format!("since the start of the oldest lease, by queue; {of_store}"));
    for (queue, reading) in readings {
        line(page, LEASE_AGE, queue, "", format_args!("{:.3}", seconds(reading.ages.lease_ms, reading)));
    }
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// The names of queues need no escapes: see [`QueueName`](tallystone_model::QueueName).
fn line(page: &mut String, name: &str, queue: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(page, "{name}{{queue=\"{queue}\"{labels}}} {value}");
}
