//! How far a long comparison is, on stderr.

use crate::output::grouped;
use crate::terminal::note;
use std::time::{Duration, Instant};

/// The time between two lines. A comparison that takes less prints none.
const EVERY: Duration = Duration::from_secs(5);

/// The numbers so far.
pub(crate) struct Progress {
    queues: u64,
    listed: u64,
    compared: u64,
    messages: u64,
    to_compare_again: u64,
    compared_again: u64,
    to_trace: u64,
    traced: u64,
    printed: Instant,
}

impl Progress {
    /// The comparison covers this many queues.
    pub(crate) fn new(queues: u64) -> Progress {
        let printed = Instant::now();
        let (listed, compared, messages) = (0, 0, 0);
        let (to_compare_again, compared_again, to_trace, traced) = (0, 0, 0, 0);
        Progress { queues, listed, compared, messages, to_compare_again, compared_again, to_trace, traced, printed }
    }

    /// A queue was listed; it has this many messages.
    pub(crate) fn listed(&mut self, messages: usize) {
        self.listed += 1;
        self.messages += messages as u64;
        self.print();
    }

    /// A queue was compared with its index.
    pub(crate) fn compared(&mut self) {
        self.compared += 1;
        self.print();
    }

    /// These messages differ and are compared again.
    pub(crate) fn suspected(&mut self, messages: usize) {
        self.to_compare_again += messages as u64;
        self.print();
    }

    /// One of them was.
    pub(crate) fn compared_again(&mut self) {
        self.compared_again += 1;
        self.print();
    }

    /// The traces of these messages are checked.
    pub(crate) fn add_to_trace(&mut self, messages: usize) {
        self.to_trace += messages as u64;
        self.print();
    }

    /// One of them was.
    pub(crate) fn traced(&mut self) {
        self.traced += 1;
        self.print();
    }

    fn print(&mut self) {
        if self.printed.elapsed() >= EVERY {
            note(&self.line());
            self.printed = Instant::now();
        }
    }

    fn line(&self) -> String {
        let parts = [
            ("queues listed", self.listed, self.queues),
            ("queues compared", self.compared, self.queues),
            ("differing messages compared again", self.compared_again, self.to_compare_again),
            ("traces checked", self.traced, self.to_trace),
        ];
        let mut line = format!("{} messages", grouped(self.messages));
        for (what, done, all) in parts.iter().filter(|(_, _, all)| *all > 0) {
            line += &format!("; {} of {} {what}", grouped(*done), grouped(*all));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_is_done_of_how_much() {
        let mut progress = Progress::new(10_000);
        progress.listed(3_000);
        progress.compared();
        assert_eq!(progress.line(), "3,000 messages; 1 of 10,000 queues listed; 1 of 10,000 queues compared");
        progress.add_to_trace(3_000);
        progress.traced();
        assert!(progress.line().ends_with("; 1 of 3,000 traces checked"), "{}", progress.line());
    }
}
