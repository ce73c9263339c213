//! Dequeue (Q4, Q8, Q10, Q11).

use super::record::Record;
use super::shard::{QueueShard, TicketMemory};
use crate::fencing;
use crate::filter::Filter;
use crate::limits::DEQUEUE_PAYLOAD_BYTES;
use crate::message::Lease;
use crate::names::MessageId;
use crate::refusal::Refusal;
use crate::state::{Cause, State};
use crate::store::{DequeueRequest, Dequeued, LeaseRef, Outlook, Ticket};
use std::collections::BTreeSet;

impl QueueShard {
    pub(super) fn dequeue(
        &mut self,
        requests: &[DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<Dequeued, Refusal> {
        let is_repeat = ticket.is_some_and(|ticket| ticket.is_repeat());
        let blocked = self.queue.config.dequeue_blocked;
        if blocked && !is_repeat {
            return Err(self.dequeue_blocked());
        }
        let mut memory = TicketMemory::default();
        if let Some(ticket) = ticket {
            let last = self.tickets.get(&(ticket.server, ticket.slot)).cloned().unwrap_or_default();
            if last.number > ticket.number {
                return Err(Refusal::overtaken());
            }
            if last.number >= ticket.first {
                memory = last;
            }
        }
        self.promote_due(usize::MAX);
        let (expired, errored) = self.expire_due(usize::MAX);
        let mut cut_short = false;
        let mut leases = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            if request.limit == 0 && !is_repeat && request.request_id.is_empty() {
                leases.push(Ok(Vec::new()));
                continue;
            }
            let given = match request.request_id.as_str() {
                "" => memory.leases.remove(&at).map(|leases| self.not_extended(&leases)),
                id => self.requests.get(id).cloned(),
            };
            let answer = self.dequeue_one(request, &given.unwrap_or_default(), &mut cut_short);
            if let Ok(leases) = &answer
                && request.request_id.is_empty()
                && !leases.is_empty()
            {
                let given = leases.iter().map(|lease| (LeaseRef::from(lease), lease.expires_at_ms));
                memory.leases.insert(at, given.collect());
            }
            leases.push(answer);
        }
        if let Some(ticket) = ticket
            && (is_repeat || !memory.leases.is_empty())
        {
            self.tickets.insert((ticket.server, ticket.slot), TicketMemory { number: ticket.number, ..memory });
        }
        self.waiting |= wait && !blocked;
        Ok(Dequeued { leases, cut_short, expired, errored, outlook: self.outlook() })
    }

    fn dequeue_blocked(&self) -> Refusal {
        Refusal::DequeueBlocked { queue: self.queue.name.to_string() }
    }

    /// `given`: the leases of an earlier answer to this request.
    fn dequeue_one(
        &mut self,
        request: &DequeueRequest,
        given: &[LeaseRef],
        cut_short: &mut bool,
    ) -> Result<Vec<Lease>, Refusal> {
        let admitted = match self.queue.config.dequeue_blocked {
            true => Err(self.dequeue_blocked()),
            false => self.admit_indexes(&request.filters),
        };
        let repeated = self.living(given);
        if !repeated.is_empty() {
            return Ok(repeated);
        }
        admitted?;
        let mut leases: Vec<Lease> = Vec::new();
        while leases.len() < request.limit {
            let first = self.runnable(&request.filters).min_by_key(|record| record.urgency());
            let Some(id) = first.map(|record| record.content.id.clone()) else { break };
            if leases.iter().map(|lease| lease.payload.len()).sum::<usize>() >= DEQUEUE_PAYLOAD_BYTES {
                *cut_short = true;
                break;
            }
            leases.push(self.lease(&id, request));
        }
        if !request.request_id.is_empty() {
            self.requests.insert(request.request_id.clone(), leases.iter().map(LeaseRef::from).collect());
        }
        Ok(leases)
    }

    /// Those of a ticket's leases that end when they did at first: a worker that extends its lease has received it.
    fn not_extended(&self, given: &[(LeaseRef, u64)]) -> Vec<LeaseRef> {
        let ends = |lease: &LeaseRef| self.messages.get(&lease.id).map(|record| record.due_ms);
        let kept = given.iter().filter(|(lease, expires_at_ms)| ends(lease) == Some(*expires_at_ms));
        kept.map(|(lease, _)| lease.clone()).collect()
    }

    /// Those of these leases that live.
    fn living(&self, given: &[LeaseRef]) -> Vec<Lease> {
        given
            .iter()
            .filter_map(|lease| self.messages.get(&lease.id).filter(|r| r.is_held_by(lease.fencing_token, self.now_ms)))
            .map(|record| record.lease(&self.queue.config))
            .collect()
    }

    /// The pending messages whose value is free and that pass any of the filters. The most urgent of them is also the most
    /// urgent of its value; its lease locks out the other messages of that value.
    pub(super) fn runnable<'a>(&'a self, filters: &'a [Filter]) -> impl Iterator<Item = &'a Record> {
        let config = &self.queue.config;
        let running = self.messages.values().filter(|record| record.state == State::Running);
        let locked: BTreeSet<&str> = running.filter_map(|record| record.value(config)).collect();
        self.messages.values().filter(move |record| {
            record.state == State::Pending
                && (filters.is_empty() || filters.iter().any(|filter| filter.matches(&record.content.metadata)))
                && record.value(config).is_none_or(|value| !locked.contains(value))
        })
    }

    /// The running message of the same exclusivity value.
    pub(super) fn holder(&self, record: &Record) -> Option<&Record> {
        let config = &self.queue.config;
        let value = record.value(config)?;
        self.messages.values().find(|other| other.state == State::Running && other.value(config) == Some(value))
    }

    fn lease(&mut self, id: &MessageId, request: &DequeueRequest) -> Lease {
        let sequence = self.next_sequence();
        let fencing_token = fencing::token(self.number, sequence);
        let (now_ms, default_ms) = (self.now_ms, self.queue.config.lease_ms);
        self.step(id, State::Running, Cause::Dequeue, "", |record| {
            record.fencing_token = fencing_token;
            record.worker = request.worker.clone();
            record.granted_ms = request.lease_ms.or(record.content.lease_ms).unwrap_or(default_ms);
            record.due_ms = now_ms + record.granted_ms;
            record.extension_id.clear();
            record.attempts += 1;
            record.redriven = false;
        });
        self.messages[id].lease(&self.queue.config)
    }

    fn outlook(&self) -> Outlook {
        let due = self.messages.values().filter(|r| matches!(r.state, State::Invisible | State::Running));
        let heads = self.heads();
        let head = heads
            .first()
            .map(|record| record.priority)
            .filter(|_| self.queue.config.shards > 1 || self.queue.spread.is_some());
        Outlook {
            head,
            ready: heads.len() as u64,
            next_due_ms: due.map(|record| record.due_ms).min(),
            now_ms: self.now_ms,
        }
    }
}
