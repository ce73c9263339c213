//! Dequeue: one script call, or several if the script meets a bound before every request is answered.

use super::reply::unreadable;
use super::shared::{Caller, Shared, filter_arguments, not_paused};
use super::view::View;
use redis::Cmd;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tallystone_lua::constants::Answer;
use tallystone_lua::{Script, record};
use tallystone_model::store::{DequeueRequest, Dequeued, Outlook, Ticket};
use tallystone_model::{Lease, Refusal, Shard};

/// Why a request ended before its limit; the same names as in `dequeue.lua`.
const WORK_BOUND: u64 = 1;
const PAYLOAD_BOUND: u64 = 2;

/// One call of the store, in as many script calls (steps) as necessary.
pub(super) struct Dequeue<'a> {
    shared: &'a Arc<Shared>,
    shard: &'a Shard,
    requests: &'a [DequeueRequest],
    wait: bool,
    ticket: Option<Ticket>,
    /// The requests that are not answered yet, by their positions.
    open: Vec<usize>,
    /// The leases of each request so far.
    leases: Vec<Result<Vec<Lease>, Refusal>>,
    /// Those that got leases from several steps. Others have theirs in order: a repeat, in that of the answer before it.
    gone_on: BTreeSet<usize>,
    cut_short: bool,
    expired: u64,
    errored: u64,
    outlook: Option<Outlook>,
}

impl<'a> Dequeue<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        shard: &'a Shard,
        requests: &'a [DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Self {
        // One without a limit may only have leases of an earlier call.
        let has_earlier = |request: &DequeueRequest| {
            !request.request_id.is_empty() || ticket.is_some_and(|ticket| ticket.is_repeat())
        };
        let is_open = |at: &usize| requests[*at].limit > 0 || has_earlier(&requests[*at]);
        let open = (0..requests.len()).filter(is_open).collect();
        let leases = vec![Ok(Vec::new()); requests.len()];
        Dequeue {
            shared,
            shard,
            requests,
            wait,
            ticket,
            open,
            leases,
            gone_on: BTreeSet::new(),
            cut_short: false,
            expired: 0,
            errored: 0,
            outlook: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<Dequeued, Refusal> {
        if !self.is_repeat() {
            self.shared.ensure(self.shard, not_paused).await?;
        }
        if self.wait {
            self.shared.wakes.waits(self.shard);
        }
        let mut steps = 0;
        while !self.open.is_empty() || self.outlook.is_none() {
            steps += 1;
            match self.step().await {
                Ok(()) => {}
                // The indexes changed between the two calls: find the index again.
                Err(Refusal::IndexBuilding { .. }) => {}
                // This step may have given leases that only a repeat under this ticket finds; it finds those of the
                // other steps too.
                Err(refusal) if refusal.may_have_acted() && self.ticket.is_some() => {
                    return Err(refusal);
                }
                // Leases that were granted must reach their caller. Requests without leases get the refusal.
                Err(refusal) if self.leases.iter().flatten().any(|leases| !leases.is_empty()) => {
                    for at in self.open {
                        if self.leases[at].as_ref().is_ok_and(Vec::is_empty) {
                            self.leases[at] = Err(refusal.clone());
                        }
                    }
                    break;
                }
                Err(refusal) => return Err(refusal),
            }
        }
        for at in self.gone_on {
            // What fell due in a later step may be more urgent than what an earlier one gave.
            if let Ok(leases) = &mut self.leases[at] {
                leases.sort_by_key(|lease| lease.priority);
            }
        }
        if steps > 1 {
            answer_twins(self.requests, &mut self.leases);
        }
        let Dequeue { leases, cut_short, expired, errored, .. } = self;
        Ok(Dequeued { leases, cut_short, expired, errored, outlook: self.outlook.unwrap_or_default() })
    }

    /// A repeat collects what an earlier try gave, even if the queue is paused or an index is missing.
    fn is_repeat(&self) -> bool {
        self.ticket.is_some_and(|ticket| ticket.is_repeat())
    }

    async fn step(&mut self) -> Result<(), Refusal> {
        self.admit().await?;
        self.call().await
    }

    /// Ensures the indexes that the open requests need. A request without a complete index is refused alone, unless it
    /// repeats an answered one.
    async fn admit(&mut self) -> Result<(), Refusal> {
        let Dequeue { shared, shard, requests, open, leases, .. } = self;
        shared.refresh_for(shard, open.iter().flat_map(|at| &requests[*at].filters)).await?;
        let mut going_on = Vec::with_capacity(open.len());
        for at in open.iter().copied() {
            let ready = shared.ready_indexes(shard, &requests[at].filters, |config| not_paused(shard, config)).await;
            let has_some = leases[at].as_ref().is_ok_and(|leases| !leases.is_empty());
            match ready {
                // The index was dropped meanwhile: the leases so far are the answer.
                Err(_) if has_some => continue,
                Ok(()) if has_some => {}
                ready => leases[at] = ready.map(|()| Vec::new()),
            }
            going_on.push(at);
        }
        *open = going_on;
        Ok(())
    }

    /// One script call for the open requests. A refused request can still get the leases of its request id's earlier
    /// answer.
    async fn call(&mut self) -> Result<(), Refusal> {
        let mut paused = Ok(());
        let fill = |view: &View, command: &mut Cmd| {
            paused = not_paused(self.shard, view.config());
            if !self.is_repeat() {
                paused.clone()?;
            }
            command.arg(u8::from(self.wait && paused.is_ok()));
            let mut packed = Vec::new();
            if let Some(ticket) = &self.ticket {
                record::encode_ticket(ticket, &mut packed);
            }
            command.arg(packed.as_slice());
            for at in &self.open {
                packed.clear();
                self.pack(*at, paused.is_ok().then_some(view), &mut packed)?;
                command.arg(packed.as_slice());
            }
            Ok(())
        };
        let (view, mut reply) = self.shared.run(self.shard, Script::Dequeue, Caller::Lane, fill).await?;
        if reply.answer == Answer::Overtaken {
            return Err(Refusal::overtaken());
        }
        self.expired += reply.number()?;
        self.errored += reply.number()?;
        if reply.answer == Answer::Again {
            return Ok(());
        }
        let (now_ms, ready) = (reply.number()?, reply.number()?);
        let next_due_ms = Some(reply.number()?).filter(|at_ms| *at_ms > 0);
        let head = match view.is_of_several() {
            false => None,
            true => record::read_priority(&reply.bytes()?).map_err(unreadable)?,
        };
        let mut again = Vec::new();
        for at in self.open.iter().copied() {
            let (found, ended) = (reply.number()?, reply.number()?);
            if found > 0 && self.leases[at].as_ref().is_ok_and(|leases| !leases.is_empty()) {
                self.gone_on.insert(at);
            }
            if let (Err(refusal), Ok([])) = (&paused, self.leases[at].as_deref()) {
                self.leases[at] = Err(refusal.clone());
            }
            for _ in 0..found {
                let (id, head, body) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
                let lease = record::decode_lease(&id, &head, &body, view.config().max_attempts).map_err(unreadable)?;
                let lease = Lease { fencing_token: self.shard.token(lease.fencing_token), ..lease };
                match &mut self.leases[at] {
                    Ok(leases) => leases.push(lease),
                    refused => *refused = Ok(vec![lease]),
                }
            }
            match ended {
                // The script met its bound: the next step continues.
                WORK_BOUND => again.push(at),
                ended => self.cut_short |= ended == PAYLOAD_BOUND,
            }
        }
        self.open = again;
        self.outlook = Some(Outlook { ready, next_due_ms, now_ms, head });
        Ok(())
    }

    /// The packed form of a request for the script. `view`: `None` if no request gets new leases.
    fn pack(&self, at: usize, view: Option<&View>, packed: &mut Vec<u8>) -> Result<(), Refusal> {
        let request = &self.requests[at];
        let got = self.leases[at].as_deref().unwrap_or_default();
        let payload_bytes = (!got.is_empty()).then(|| got.iter().map(|lease| lease.payload.len()).sum());
        let Some(view) = view.filter(|_| self.leases[at].is_ok()) else {
            record::encode_request(at, 0, payload_bytes, request, 0, packed);
            return Ok(());
        };
        let limit = request.limit.saturating_sub(got.len());
        record::encode_request(at, limit, payload_bytes, request, request.filters.len(), packed);
        for filter in &request.filters {
            let (position, tuple) = filter_arguments(view, filter)?;
            record::encode_request_filter(position, &tuple, packed);
        }
        Ok(())
    }
}

/// A retry that was combined with its original into one call gets the leases of the original from all steps (Q10).
fn answer_twins(requests: &[DequeueRequest], leases: &mut [Result<Vec<Lease>, Refusal>]) {
    let mut originals: HashMap<&str, usize> = HashMap::new();
    for (at, request) in requests.iter().enumerate().filter(|(_, request)| !request.request_id.is_empty()) {
        let original = *originals.entry(&request.request_id).or_insert(at);
        // A retry that found more than its original, with other filters, keeps that.
        let found = |at: usize| leases[at].as_ref().map_or(0, Vec::len);
        if original != at && found(original) > found(at) {
            leases[at] = leases[original].clone();
        }
    }
}
