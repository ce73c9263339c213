//! What Dequeues have got in shards that did not answer, and their callers have not.

use tallystone_model::store::{DequeueRequest, Dequeued, LeaseRef, Ticket};
use tallystone_model::{Applied, Lease, Refusal, Shard, fencing};

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
}

/// What was found in silent shards of one queue.
#[derive(Debug, Default)]
pub(super) struct AllFound(Vec<Found>);

impl AllFound {
    /// Adds what a lost call had got.
    pub(super) fn add(&mut self, lost: &Lost, answer: Dequeued) {
        let now_ms = answer.outlook.now_ms;
        for (request, leases) in lost.requests.iter().zip(answer.leases) {
            let Ok(mut leases) = leases else { continue };
            // Workers take the difference of its times for what is left of a lease.
            leases.iter_mut().for_each(|lease| lease.leased_at_ms = now_ms.max(lease.leased_at_ms));
            if !leases.is_empty() {
                self.0.push(Found { request: request.clone(), leases });
            }
        }
    }

    /// Gives a request what another one like it had got.
    pub(super) fn take(&mut self, request: &DequeueRequest, limit: usize) -> Vec<Lease> {
        let mut taken = Vec::new();
        for found in self.0.iter_mut().filter(|found| found.is_like(request)) {
            let count = found.leases.len().min(limit - taken.len());
            taken.extend(found.leases.drain(..count));
        }
        self.0.retain(|found| !found.leases.is_empty());
        taken
    }

    /// Takes out what no request has taken of a shard.
    pub(super) fn rest(&mut self, shard: &Shard) -> Vec<LeaseRef> {
        let mut rest = Vec::new();
        for found in &mut self.0 {
            let is_there = |lease: &mut Lease| fencing::shard_of(lease.fencing_token) == u64::from(shard.number);
            let leases = found.leases.extract_if(.., is_there);
            rest.extend(leases.map(|lease| LeaseRef { id: lease.id, fencing_token: lease.fencing_token }));
        }
        self.0.retain(|found| !found.leases.is_empty());
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
