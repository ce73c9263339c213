//! What Dequeues have got in shards that did not answer, and their callers have not.

use std::collections::VecDeque;
use std::time::Duration;
use tallystone_model::store::{DequeueRequest, Dequeued, LeaseRef, Ticket};
use tallystone_model::{Applied, Lease, Refusal, Shard, fencing};
use tokio::time::Instant;

/// The most revocations that are remembered. Beyond, nothing that is found is given to callers: it is released.
const REVOKED_MAX: usize = 1_024;
/// How long they are remembered at least: longer than a call waits for a shard before it counts as silent.
const REVOKED_KEPT: Duration = Duration::from_secs(60);

/// A Dequeue that may have got leases of a silent shard.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) ticket: Ticket,
    /// Without limits: the repetition gives nothing new. At their positions, by which the store knows what it gave. Leases of requests
    /// with an id stay with their id.
    pub(super) requests: Vec<DequeueRequest>,
}

impl Lost {
    pub(super) fn of(ticket: Ticket, requests: &[DequeueRequest]) -> Lost {
        let request =
            |request: &DequeueRequest| DequeueRequest { limit: 0, request_id: String::new(), ..request.clone() };
        Lost { ticket: ticket.collects(), requests: requests.iter().map(request).collect() }
    }
}

/// Leases that no caller waits for, and the request that got them, without its limit.
#[derive(Debug)]
pub(super) struct Found {
    request: DequeueRequest,
    leases: Vec<Lease>,
    /// When the shard was requested to repeat them: what it says is left of them ran from then on at the earliest.
    repeated_at: Instant,
}

/// What was found in silent shards of one queue.
#[derive(Debug, Default)]
pub(super) struct AllFound {
    found: Vec<Found>,
    /// Leases that were revoked lately (Q23): a shard may have given them to a Dequeue that it did not answer. In order of time.
    revoked: VecDeque<(Instant, LeaseRef)>,
    /// One of them is missing here.
    is_in_doubt: bool,
}

impl AllFound {
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// A lease was revoked. `is_settled`: no shard is silent, and nothing is found.
    pub(super) fn revoke(&mut self, lease: &LeaseRef, is_settled: bool, now: Instant) {
        while is_settled && self.revoked.front().is_some_and(|(at, _)| *at + REVOKED_KEPT < now) {
            self.revoked.pop_front();
        }
        self.is_in_doubt &= !self.revoked.is_empty();
        if self.revoked.len() == REVOKED_MAX {
            self.revoked.pop_front();
            self.is_in_doubt = true;
        }
        self.revoked.push_back((now, lease.clone()));
    }

    /// Adds what a lost call had got, which the shard was requested to repeat at `repeated_at`.
    pub(super) fn add(&mut self, lost: &Lost, answer: Dequeued, repeated_at: Instant) {
        let now_ms = answer.outlook.now_ms;
        for (request, leases) in lost.requests.iter().zip(answer.leases) {
            let Ok(mut leases) = leases else { continue };
            leases.iter_mut().for_each(|lease| lease.left_at(now_ms));
            if !leases.is_empty() {
                self.found.push(Found { request: request.clone(), leases, repeated_at });
            }
        }
    }

    /// Gives a request what another one like it had got, as far as it has not ended.
    pub(super) fn take(&mut self, request: &DequeueRequest, limit: usize, now: Instant) -> Vec<Lease> {
        let mut taken = Vec::new();
        if self.is_in_doubt {
            return taken;
        }
        let Self { found, revoked, .. } = self;
        let is_revoked = |lease: &Lease| {
            revoked.iter().any(|(_, other)| other.fencing_token == lease.fencing_token && other.id == lease.id)
        };
        for found in found.iter_mut().filter(|found| found.is_like(request)) {
            let age = now.saturating_duration_since(found.repeated_at);
            found.leases.retain(|lease| !is_revoked(lease));
            let count = found.leases.len().min(limit - taken.len());
            let mut leases: Vec<Lease> = found.leases.drain(..count).collect();
            leases.retain_mut(|lease| lease.spend(age));
            taken.extend(leases);
        }
        self.found.retain(|found| !found.leases.is_empty());
        taken
    }

    /// Takes out what no request has taken of a shard.
    pub(super) fn rest(&mut self, shard: &Shard) -> Vec<LeaseRef> {
        let mut rest = Vec::new();
        for found in &mut self.found {
            let is_there = |lease: &mut Lease| fencing::shard_of(lease.fencing_token) == u64::from(shard.number);
            let leases = found.leases.extract_if(.., is_there);
            rest.extend(leases.map(|lease| LeaseRef::from(&lease)));
        }
        self.found.retain(|found| !found.leases.is_empty());
        rest
    }
}

impl Found {
    fn is_like(&self, other: &DequeueRequest) -> bool {
        let DequeueRequest { worker, limit: _, lease_ms, filters, request_id } = other;
        let own = &self.request;
        (&own.worker, own.lease_ms, &own.filters, &own.request_id) == (worker, *lease_ms, filters, request_id)
    }
}

/// The refusal of a call that a shard did not answer in time.
pub(super) fn late() -> Refusal {
    Refusal::Unavailable { applied: Applied::Unknown, why: "a shard of the queue does not answer".to_owned() }
}

/// The refusal of a call that was not sent to a silent shard. `is_lost`: a Dequeue may have got leases there.
pub(super) fn not_sent(is_lost: bool) -> Refusal {
    let applied = if is_lost { Applied::Unknown } else { Applied::No };
    Refusal::Unavailable { applied, why: "a shard of the queue does not answer".to_owned() }
}
