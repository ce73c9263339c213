//! Compares queues with their history.
//!
//! A queue at work cannot be compared at one moment. The comparison lists some queues, waits until the watermark has passed
//! that moment, and lists the index. Messages that differ are compared again: a difference counts only if the message did
//! not change meanwhile, and a message that changes during each comparison stays undecided. Waiting for the watermark takes seconds, so many queues and messages wait together.
//!
//! What lives here: the names of the queues (`names`), the groups of queues that wait together (`group`), the second
//! comparison (`again`), what differs and how it is mended (`difference`, `message_view`), the progress on stderr
//! (`progress`), and `requests`, which the others share. What may not: output, and any write.

mod again;
mod difference;
mod group;
mod message_view;
mod names;
mod progress;
mod requests;

#[cfg(test)]
pub(super) use difference::tests::in_index;
pub(super) use difference::{Difference, Kind};
pub(super) use group::{Compared, Group};
pub(super) use names::{Names, names};
pub(super) use progress::Progress;
pub(super) use requests::{AT_ONCE, PAGE, Suspect, caught_up, of_id};
