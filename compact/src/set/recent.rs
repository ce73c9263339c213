//! The latest ids of one kind.

use std::collections::VecDeque;

/// Ids that are kept.
pub(super) const RECENT: usize = 16;

/// The latest ids of one kind, at most [`RECENT`].
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<u64>);

impl Recent {
    pub(super) fn push(&mut self, id: u64) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back(id);
    }

    /// The lowest of them. `None`: there are fewer than `count`.
    pub(super) fn lowest(&self, count: usize) -> Option<u64> {
        self.0.iter().copied().min().filter(|_| self.0.len() >= count)
    }
}

/// New ids out of the range of a table: by how many they outnumber those of the range, and the latest of them.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) excess: u64,
    latest: Recent,
}

impl Outside {
    pub(super) fn push(&mut self, id: u64) {
        self.excess += 1;
        self.latest.push(id);
    }

    /// A new id is in the range.
    pub(super) fn oppose(&mut self) {
        self.excess = self.excess.saturating_sub(1);
    }

    /// The lowest of the latest.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.latest.lowest(1)
    }
}
