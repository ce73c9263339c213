//! What a repair prints: what it found in each queue, and what it mended.

use crate::history::compare::{Difference, Kind};
use crate::output::grouped;
use crate::table::table;
use serde::Serialize;

/// The result of one queue.
#[derive(Default, Serialize)]
pub(super) struct Report {
    pub(super) queue: String,
    compared: u64,
    /// Messages of history that are gone from the queue without a record.
    gone: u64,
    /// Messages whose history is behind the queue.
    outdated: u64,
    /// Differences that only a later transition can mend.
    left: u64,
    /// Of these: messages whose repair history has refused.
    refused: u64,
    /// Messages that changed during each comparison: whether they differ is not known.
    undecided: u64,
    /// Messages that were repaired.
    repaired: u64,
    /// Losses of the queue that are settled now.
    losses: u64,
    /// Losses that stay.
    kept_losses: u64,
    dry_run: bool,
}

impl Report {
    pub(super) fn new(queue: String, compared: u64, dry_run: bool) -> Report {
        Report { queue, compared, dry_run, ..Report::default() }
    }

    /// Counts a difference.
    pub(super) fn found(&mut self, difference: &Difference) {
        match difference.kind {
            Kind::Gone => self.gone += difference.mended.len() as u64,
            Kind::Other if difference.mended.is_empty() => self.left += 1,
            Kind::Other => self.outdated += 1,
        }
    }

    /// Counts a message that changed during each comparison.
    pub(super) fn undecided(&mut self) {
        self.undecided += 1;
    }

    /// Counts a message that was repaired.
    pub(super) fn repaired(&mut self) {
        self.repaired += 1;
    }

    /// Counts a message whose repair history has refused.
    pub(super) fn refused(&mut self) {
        self.refused += 1;
        self.left += 1;
    }

    /// Counts the losses of the queue. Returns whether to settle them: not while history may have an old version of a
    /// message, which no answer may then show as certain.
    pub(super) fn settles(&mut self, losses: u64) -> bool {
        let settles = self.refused == 0 && self.undecided == 0;
        *(if settles { &mut self.losses } else { &mut self.kept_losses }) = losses;
        settles
    }

    /// Differences that are not mended.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Losses that stay.
    pub(super) fn kept_losses(&self) -> u64 {
        self.kept_losses
    }
}

/// A table of the queues.
pub(super) fn text(reports: &[Report]) -> String {
    let header = [
        "queue",
        "#compared",
        "#gone without record",
        "#outdated",
        "#repaired",
        "#losses",
        "#left",
        "#undecided",
        "#losses kept",
    ];
    let row = |report: &Report| {
        let Report { compared, gone, outdated, repaired, losses, left, undecided, kept_losses, .. } = *report;
        let counts = [compared, gone, outdated, repaired, losses, left, undecided, kept_losses].map(grouped);
        [vec![report.queue.clone()], counts.to_vec()].concat()
    };
    table(&header, reports.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_losses_are_settled_only_where_every_message_is_right() {
        let report = || Report::new("q".to_owned(), 3, false);
        let mut right = report();
        right.repaired();
        assert!(right.settles(2));
        assert_eq!((right.losses, right.kept_losses(), right.left()), (2, 0, 0));
        let mut refused = report();
        refused.refused();
        assert!(!refused.settles(2));
        assert_eq!((refused.losses, refused.kept_losses(), refused.left()), (0, 2, 1));
        let mut undecided = report();
        undecided.undecided();
        assert!(!undecided.settles(1));
        assert_eq!((undecided.losses, undecided.kept_losses(), undecided.left()), (0, 1, 0));
    }
}
