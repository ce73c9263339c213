//! The requests that wait to be sent on a Work stream, and those that were sent and have no answer yet.

use crate::lease::{Completion, Extension, LeaseRef, Release};
use std::collections::VecDeque;
use tallystone_proto::queue::v1 as wire;
use tokio::task;
use tokio::time::Instant;

/// The most items of one kind in one request.
const ITEMS_MAX: usize = 1_000;

/// What waits to be sent.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) completes: VecDeque<Completion>,
    pub(super) releases: VecDeque<Release>,
    pub(super) extends: Vec<(task::Id, LeaseRef)>,
}

/// What was sent on the current stream and has no answer yet, in order.
#[derive(Default)]
pub(super) struct Unanswered {
    pub(super) completes: VecDeque<Completion>,
    pub(super) releases: VecDeque<Release>,
    pub(super) extends: VecDeque<(task::Id, Instant)>,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.extends.is_empty() && self.is_settled()
    }

    /// Whether no result waits to be sent.
    pub(super) fn is_settled(&self) -> bool {
        self.completes.is_empty() && self.releases.is_empty()
    }

    /// The next request: results, extensions and credits travel together.
    pub(super) fn next_request(&mut self, credits: u32, unanswered: &mut Unanswered) -> wire::WorkRequest {
        let mut request = wire::WorkRequest { credits, ..wire::WorkRequest::default() };
        let requested_at = Instant::now();
        for completion in self.completes.drain(..self.completes.len().min(ITEMS_MAX)) {
            request.complete.push(completion.clone().into_wire());
            unanswered.completes.push_back(completion);
        }
        for release in self.releases.drain(..self.releases.len().min(ITEMS_MAX)) {
            request.release.push(release.clone().into_wire());
            unanswered.releases.push_back(release);
        }
        for (task, lease) in self.extends.drain(..self.extends.len().min(ITEMS_MAX)) {
            request.extend.push(Extension::of(lease).into_wire());
            unanswered.extends.push_back((task, requested_at));
        }
        request
    }

    /// After the stream broke: its unanswered results are to be sent again, before newer ones. Extensions are requested
    /// again when the next stream opens.
    pub(super) fn send_again(&mut self, unanswered: &mut Unanswered) {
        self.extends.clear();
        unanswered.completes.append(&mut self.completes);
        unanswered.releases.append(&mut self.releases);
        std::mem::swap(&mut self.completes, &mut unanswered.completes);
        std::mem::swap(&mut self.releases, &mut unanswered.releases);
    }
}

impl Unanswered {
    /// Whether every result was answered.
    pub(super) fn is_settled(&self) -> bool {
        self.completes.is_empty() && self.releases.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(id: usize) -> Completion {
        Completion::of(LeaseRef { id: id.to_string(), fencing_token: 1 })
    }

    #[test]
    fn q10_unanswered_results_are_sent_again_first() {
        let (mut outgoing, mut unanswered) = (Outgoing::default(), Unanswered::default());
        outgoing.completes.extend((0..ITEMS_MAX + 1).map(completion));
        let request = outgoing.next_request(7, &mut unanswered);
        assert_eq!((request.credits, request.complete.len()), (7, ITEMS_MAX));
        assert_eq!(outgoing.completes, [completion(ITEMS_MAX)], "a request takes no more");
        unanswered.completes.pop_front();
        outgoing.send_again(&mut unanswered);
        assert_eq!(outgoing.completes, (1..ITEMS_MAX + 1).map(completion).collect::<Vec<_>>());
        assert!(unanswered.is_settled() && !outgoing.is_settled());
    }
}
