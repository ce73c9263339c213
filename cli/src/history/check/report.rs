//! What a check prints: the differences of each queue.

use crate::output::grouped;
use crate::table::table;
use crate::text::visible;
use serde::Serialize;

/// Differences of a queue that are listed; further ones are only counted.
const NAMED: usize = 100_000;

/// The result of one queue.
#[derive(Default, Serialize)]
pub(super) struct Report {
    pub(super) queue: String,
    compared: u64,
    /// Messages of the index that are gone from the queue without a record.
    gone_without_record: u64,
    /// Messages that changed during each comparison: whether they differ is not known.
    pub(super) undecided: u64,
    differences: Vec<Difference>,
    more_differences: u64,
    #[serde(skip)]
    mendable: u64,
}

#[derive(Serialize)]
pub(super) struct Difference {
    id: String,
    difference: String,
}

impl Report {
    pub(super) fn new(queue: String, compared: u64) -> Report {
        Report { queue, compared, ..Report::default() }
    }

    /// Counts a difference by what it is.
    pub(super) fn count(&mut self, is_gone: bool, is_mendable: bool) {
        self.gone_without_record += u64::from(is_gone);
        self.mendable += u64::from(is_mendable);
    }

    /// How many differences a repair mends.
    pub(super) fn mendable(&self) -> u64 {
        self.mendable
    }

    pub(super) fn add(&mut self, id: String, difference: String) {
        if self.differences.len() < NAMED {
            self.differences.push(Difference { id, difference });
        } else {
            self.more_differences += 1;
        }
    }

    /// The number of differences.
    pub(super) fn found(&self) -> u64 {
        self.differences.len() as u64 + self.more_differences
    }
}

/// A table of the queues, and each difference on a line.
pub(super) fn text(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "No queues.".to_owned();
    }
    let row = |report: &Report| {
        let verdict = match report.found() {
            0 => "no difference".to_owned(),
            found => format!("{found} differences"),
        };
        let verdict = match report.undecided {
            0 => verdict,
            undecided => format!("{verdict}, {undecided} undecided"),
        };
        vec![report.queue.clone(), grouped(report.compared), grouped(report.gone_without_record), verdict]
    };
    let header = ["queue", "#compared", "#gone without record", "verdict"];
    let mut text = table(&header, reports.iter().map(row));
    for report in reports {
        for Difference { id, difference } in &report.differences {
            text += &format!("\n{} {}: {}", visible(&report.queue), visible(id), visible(difference));
        }
        if report.more_differences > 0 {
            text += &format!("\n{}: {} more", report.queue, report.more_differences);
        }
    }
    if reports.iter().any(|report| report.undecided > 0) {
        text += "\nUndecided messages changed during every comparison. Check their queues again when they are quieter.";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q20_what_was_not_decided_is_said() {
        let mut report = Report::new("q".to_owned(), 7);
        assert!(text(std::slice::from_ref(&report)).ends_with("no difference"));
        report.undecided = 2;
        let text = text(&[report]);
        assert!(text.contains("no difference, 2 undecided\nUndecided messages"), "{text}");
    }
}
