//! What a repair prints: what it found in each queue, and what it mended.

use crate::history::compare::{Difference, Kind};
use crate::output::grouped;
use crate::table::table;
use serde::Serialize;

/// The result of one queue.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) queue: String,
    compared: u64,
    /// Messages of history that are gone from the queue without a record.
    gone: u64,
    /// Messages whose history is behind the queue.
    outdated: u64,
    /// Differences that only a later transition can mend.
    left: u64,
    /// Messages that were repaired.
    repaired: u64,
    /// Losses of the queue that are settled now.
    pub(super) losses: u64,
    dry_run: bool,
}

impl Report {
    pub(super) fn new(queue: String, compared: u64, dry_run: bool) -> Report {
        Report { queue, compared, gone: 0, outdated: 0, left: 0, repaired: 0, losses: 0, dry_run }
    }

    /// Counts a difference.
    pub(super) fn found(&mut self, difference: &Difference) {
        match difference.kind {
            Kind::Gone => self.gone += difference.mended.len() as u64,
            Kind::Other if difference.mended.is_empty() => self.left += 1,
            Kind::Other => self.outdated += 1,
        }
    }

    /// Counts a message that was written. One that was not has changed meanwhile, and its own event was indexed.
    pub(super) fn written(&mut self, is_repaired: bool) {
        self.repaired += u64::from(is_repaired);
    }

    /// Differences that are not mended.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

/// A table of the queues.
pub(super) fn text(reports: &[Report]) -> String {
    let header = ["queue", "#compared", "#gone without record", "#outdated", "#repaired", "#losses", "#left"];
    let row = |report: &Report| {
        let Report { compared, gone, outdated, repaired, losses, left, .. } = *report;
        let counts = [compared, gone, outdated, repaired, losses, left].map(grouped);
        [vec![report.queue.clone()], counts.to_vec()].concat()
    };
    table(&header, reports.iter().map(row))
}
