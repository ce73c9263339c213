//! Dequeue over several shards: rounds of calls, each shard of a round at the same time (docs/decisions/0182).
//!
//! No two shards are requested for the same lease. A request without filters and without an id may get leases of several shards in one
//! round, the most urgent ones as far as is known. Another one is given to one shard after the other: whether messages pass its
//! filters is known only there, and a repetition of its id finds its leases in one shard. Two tries at the same time may take different
//! shards: the next repetition gets as many leases as one try may get, and the rest expires (`surplus`). A request that would get nothing makes
//! every shard say what it has; so all of them have the mark of this waiting server then. So does a shard that was passed over for long.
//! One that gets less than its limit, and may wait for the rest, only the shards without such a mark.
//!
//! A repetition collects first what its earlier tries were given, in all shards. A first try is not repeated for a shard that does not
//! answer: it is answered with what the others give, and `silence` finds what that one has given.

use super::batch::graver;
use super::found::Lost;
use super::known::{Sent, ShardEstimates};
use super::one_queue::OneQueue;
use super::surplus;
use futures::future::join_all;
use std::collections::{BTreeMap, HashMap};
use tallystone_model::limits::{DEQUEUE_PAYLOAD_BYTES, PAYLOAD_BYTES_MAX};
use tallystone_model::store::{DequeueRequest, Dequeued, Ticket};
use tallystone_model::{Lease, Refusal, Store};
use tokio::time::Instant;

/// The credits of a round that are given one by one to the most urgent shard. Of more, several at once.
const CREDITS_SINGLE: usize = 256;

/// A request that may get more.
struct Open {
    /// How many more leases it accepts.
    left: usize,
    /// The shards that were requested for it, as bits by position.
    tried: u128,
    leases: Vec<Lease>,
    payload_bytes: usize,
    refusal: Option<Refusal>,
    /// In one round it is given to one shard.
    undivided: bool,
    /// The position of the shard whose leases stay if tries of it have got some in several: it has an id.
    first_of_id: Option<usize>,
}

impl Open {
    fn has_id(&self) -> bool {
        self.first_of_id.is_some()
    }

    /// A shard refuses it. Of one with an id it is not known then whether another try of it gets leases there: so no other shard
    /// may give it some.
    fn refuse(&mut self, refusal: Refusal) {
        if self.has_id() {
            self.left = 0;
        }
        self.refusal = Some(refusal);
    }

    fn gets(&mut self, leases: Vec<Lease>) {
        self.left = self.left.saturating_sub(leases.len());
        self.payload_bytes += leases.iter().map(|lease| lease.payload.len()).sum::<usize>();
        self.leases.extend(leases);
        if self.payload_bytes >= DEQUEUE_PAYLOAD_BYTES || (self.has_id() && !self.leases.is_empty()) {
            self.left = 0;
        }
    }
}

/// One Dequeue.
pub(super) struct Dequeue<'a, S> {
    queue: &'a OneQueue<'a, S>,
    requests: &'a [DequeueRequest],
    wait: bool,
    ticket: Option<Ticket>,
    /// The round collects what earlier calls gave.
    is_collecting: bool,
    open: Vec<Open>,
    /// The shards that were requested, as bits by position.
    requested: u128,
    /// Why a shard did not answer.
    refusal: Option<Refusal>,
    result: Dequeued,
}

/// A call of one round: the position of its shard among those of the queue, and how many leases each request may get.
type Call = (usize, Vec<usize>);

impl<'a, S: Store> Dequeue<'a, S> {
    pub(super) fn new(
        queue: &'a OneQueue<'a, S>,
        requests: &'a [DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Self {
        let shard_count = queue.known().shard_count();
        let open = |request: &DequeueRequest| Open {
            left: request.limit,
            tried: 0,
            leases: Vec::new(),
            payload_bytes: 0,
            refusal: None,
            undivided: !request.request_id.is_empty() || !request.filters.is_empty(),
            first_of_id: surplus::first_of_id(&request.request_id, shard_count),
        };
        let open = requests.iter().map(open).collect();
        let result = Dequeued {
            leases: Vec::new(),
            cut_short: false,
            expired: 0,
            errored: 0,
            outlook: queue.known().outlook(0),
        };
        Dequeue { queue, requests, wait, ticket, is_collecting: false, open, requested: 0, refusal: None, result }
    }

    /// # Errors
    /// No request has leases, and a shard refuses the call; or a shard may have given leases that only a repetition finds.
    pub(super) async fn run(mut self) -> Result<Dequeued, Refusal> {
        let has_collected = self.collect().await?;
        if has_collected && !self.has_leases() && self.queue.has_other_layout().await {
            // An earlier call may have got leases in shards that this one does not know.
            return Err(Refusal::earlier_layout());
        }
        self.take_found();
        loop {
            let calls = self.plan();
            if calls.is_empty() {
                break;
            }
            self.round(calls).await?;
        }
        self.queue.known().ends(self.requested);
        self.answer()
    }

    fn is_repeat(&self) -> bool {
        self.ticket.is_some_and(|ticket| ticket.is_repeat())
    }

    /// The ticket, if no lane repeats this call: a shard that does not answer is left, and what it may have given is found later.
    fn leaves(&self) -> Option<Ticket> {
        self.ticket.filter(|ticket| !ticket.is_repeat())
    }

    /// Gives each request without an id what was found for one like it in a shard that was silent.
    fn take_found(&mut self) {
        if self.is_repeat() {
            return;
        }
        let (mut known, now) = (self.queue.known(), Instant::now());
        for (open, request) in self.open.iter_mut().zip(self.requests).filter(|(open, _)| !open.has_id()) {
            open.gets(known.take_found(request, open.left, now));
        }
    }

    fn has_leases(&self) -> bool {
        self.open.iter().any(|open| !open.leases.is_empty())
    }

    /// Gives each request the leases that an earlier call gave it. Returns whether there may be such.
    async fn collect(&mut self) -> Result<bool, Refusal> {
        let is_repeat = self.is_repeat();
        if !is_repeat && self.requests.iter().all(|request| request.request_id.is_empty()) {
            return Ok(false);
        }
        let nothing_new = || vec![0; self.requests.len()];
        // A repetition needs each shard, whether it answers or not. Else only requests with an id need all of them.
        let (now, mut away) = (Instant::now(), None);
        let calls = {
            let known = self.queue.known();
            let is_called = |at: &usize| {
                let Some(why) = known.why_away(*at, now).filter(|_| !is_repeat) else { return true };
                away = Some(graver(away.take(), why));
                false
            };
            (0..known.shard_count()).filter(is_called).map(|at| (at, nothing_new())).collect()
        };
        // Most requests get something soon: until one does not, no shard is marked, which is a write.
        let wait = std::mem::take(&mut self.wait);
        self.is_collecting = true;
        self.round(calls).await?;
        self.is_collecting = false;
        self.wait = wait;
        self.refusal = self.refusal.take().or(away);
        if wait {
            self.requested = 0;
        }
        if let Some(refusal) = self.refusal.take() {
            // It is unknown whether a shard that does not answer has given leases.
            let unknown = refusal.is_unavailable();
            if is_repeat || !unknown {
                return Err(if unknown { refusal.after_an_earlier_try() } else { refusal });
            }
            self.open.iter_mut().filter(|open| open.has_id()).for_each(|open| open.refuse(refusal.clone()));
        }
        self.cut_surplus();
        for open in &mut self.open {
            if !open.leases.is_empty() || open.refusal.is_some() {
                open.left = 0;
            }
        }
        Ok(true)
    }

    /// Two tries of a request with an id at the same time may have got leases in different shards. Together they get no more than one
    /// try may.
    fn cut_surplus(&mut self) {
        let known = self.queue.known();
        for (open, request) in self.open.iter_mut().zip(self.requests).filter(|(_, request)| request.limit > 0) {
            if let Some(first) = open.first_of_id {
                let place = |number: u16| known.at(number).map(|at| place_of_id(at, first, known.shard_count()));
                surplus::cut(&mut open.leases, request.limit, place);
            }
        }
    }

    /// The calls of the next round; none: the requests have what there is for them.
    fn plan(&mut self) -> Vec<Call> {
        let (queue, now) = (self.queue, Instant::now());
        let known = queue.known();
        let callable: Vec<usize> =
            (0..known.shard_count()).filter(|shard| known.why_away(*shard, now).is_none()).collect();
        let mut limits: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut given = vec![0_u64; known.shard_count()];
        let mut by_id: HashMap<&str, usize> = HashMap::new();
        let step = self.open.iter().map(|open| open.left).sum::<usize>().div_ceil(CREDITS_SINGLE).max(1);
        let (mut is_short, mut is_partial) = (false, false);
        for (at, (open, request)) in self.open.iter().zip(self.requests).enumerate() {
            let mut left = open.left;
            let mut shares = 0;
            while left > 0 {
                let twin = by_id.get(request.request_id.as_str()).filter(|_| open.has_id());
                let most_urgent = || {
                    let surely = |shard: usize| known.capacity(shard) > given[shard];
                    let found = most_urgent(&known, &callable, open.tried, &given, surely);
                    // Of what is left, each shard that may have more than is known gets a part.
                    let perhaps = |shard: usize| known.may_have_more(shard);
                    found.or_else(|| most_urgent(&known, &callable, open.tried, &given, perhaps))
                };
                let Some(shard) = twin.copied().or_else(most_urgent) else { break };
                let share = if open.undivided { left } else { step.min(left) };
                let limit = &mut limits.entry(shard).or_insert_with(|| vec![0; self.requests.len()])[at];
                shares += usize::from(*limit == 0);
                *limit += share;
                given[shard] += share as u64;
                left -= share;
                if open.has_id() {
                    by_id.insert(&request.request_id, shard);
                }
            }
            is_short |= open.left > 0 && shares == 0 && open.leases.is_empty();
            is_partial |= open.left > 0 && shares == 0;
            if shares > 1 || !open.leases.is_empty() {
                // What several shards give must fit into one answer, too.
                let room = DEQUEUE_PAYLOAD_BYTES.saturating_sub(open.payload_bytes) / PAYLOAD_BYTES_MAX;
                self.result.cut_short |= cut(limits.values_mut().map(|limits| &mut limits[at]), room.saturating_sub(1));
            }
        }
        limits.retain(|_, limits| limits.iter().any(|limit| *limit > 0));
        for shard in callable {
            let is_new = self.requested & (1 << shard) == 0;
            // What is left of its limit may wait.
            let lacks_mark = is_partial && self.wait && !known.is_marked(shard);
            if is_new && (is_short || lacks_mark || known.is_overdue(shard)) {
                limits.entry(shard).or_insert_with(|| vec![0; self.requests.len()]);
            }
        }
        limits.into_iter().collect()
    }

    async fn round(&mut self, calls: Vec<Call>) -> Result<(), Refusal> {
        let called = calls.into_iter().map(|(at, limits)| {
            let (queue, wait, ticket) = (self.queue, self.wait, self.ticket);
            let mut known = queue.known();
            let (number, sent) = (known.number(at), known.sends(at, limits.iter().sum(), wait));
            drop(known);
            let requests: Vec<DequeueRequest> =
                self.requests.iter().zip(&limits).map(|(request, limit)| self.limited(request, *limit)).collect();
            let leaves = self.leaves();
            async move {
                let (store, requests) = (queue.store, &requests);
                let call = |shard| async move { store.dequeue(&shard, requests, wait, ticket).await };
                let answer = match leaves {
                    Some(ticket) => {
                        let gives = limits.iter().any(|limit| *limit > 0);
                        queue.on_time_or_lost(number, || gives.then(|| Lost::of(ticket, requests)), call).await
                    }
                    None => queue.on(number, call).await,
                };
                (at, limits, sent, answer)
            }
        });
        let mut lost = None;
        for (at, limits, sent, answer) in join_all(called).await {
            self.requested |= 1 << at;
            for (open, limit) in self.open.iter_mut().zip(&limits) {
                open.tried |= u128::from(*limit > 0) << at;
            }
            match answer {
                Ok(answer) => self.take(at, sent, &limits, answer),
                Err(refusal) => {
                    let mut known = self.queue.known();
                    if refusal.is_unavailable() {
                        known.is_away(at, &refusal, Instant::now());
                    } else {
                        let number = known.number(at);
                        known.changes(number);
                    }
                    drop(known);
                    let refused =
                        self.open.iter_mut().zip(&limits).filter(|(open, limit)| open.has_id() && **limit > 0);
                    refused.for_each(|(open, _)| open.refuse(refusal.clone()));
                    // The next repetition finds what this shard may have given. It finds what the others gave, too.
                    if refusal.may_have_acted() && self.is_repeat() {
                        lost.get_or_insert(refusal.clone());
                    }
                    self.refusal = Some(graver(self.refusal.take(), refusal));
                }
            }
        }
        lost.map_or(Ok(()), Err)
    }

    /// The request with another limit. Without a limit its id is of no use, unless the round collects.
    fn limited(&self, request: &DequeueRequest, limit: usize) -> DequeueRequest {
        let is_named = limit > 0 || self.is_collecting;
        let request_id = if is_named { request.request_id.clone() } else { String::new() };
        DequeueRequest { limit, request_id, ..request.clone() }
    }

    /// Takes the answer of a shard over.
    fn take(&mut self, at: usize, sent: Sent, limits: &[usize], answer: Dequeued) {
        let leases = answer.leases.iter().flatten().flatten();
        let mut known = self.queue.known();
        known.answers(at, sent, &answer.outlook, leases);
        let number = known.number(at);
        drop(known);
        self.queue.note_due(number, &answer.outlook);
        self.result.cut_short |= answer.cut_short;
        self.result.expired += answer.expired;
        self.result.errored += answer.errored;
        self.result.outlook.now_ms = self.result.outlook.now_ms.max(answer.outlook.now_ms);
        for ((open, leases), limit) in self.open.iter_mut().zip(answer.leases).zip(limits) {
            if *limit == 0 && !self.is_collecting {
                // A shard repeats what it gave in an earlier round of a repetition.
                continue;
            }
            match leases {
                Ok(leases) => open.gets(leases),
                Err(refusal) => open.refuse(refusal),
            }
        }
    }

    fn answer(mut self) -> Result<Dequeued, Refusal> {
        let now = Instant::now();
        let known = self.queue.known();
        let away = (0..known.shard_count()).filter_map(|at| known.why_away(at, now));
        let refusal = away.fold(self.refusal.take(), |first, second| Some(graver(first, second)));
        // What a call may have done that no lane repeats is found later.
        let is_left = |refusal: &Refusal| refusal.may_have_acted() && self.leaves().is_some();
        if let Some(refusal) = refusal.as_ref().filter(|refusal| !is_left(refusal))
            && self.open.iter().all(|open| open.leases.is_empty())
        {
            return Err(refusal.clone());
        }
        self.result.outlook = known.outlook(self.result.outlook.now_ms);
        drop(known);
        for open in self.open {
            let Open { mut leases, refusal: own, .. } = open;
            // Those of one shard are in order; those of several must be.
            leases.sort_by_key(|lease| (lease.priority, lease.fencing_token));
            self.result.leases.push(match own.or_else(|| refusal.clone()) {
                Some(refusal) if leases.is_empty() => Err(refusal),
                _ => Ok(leases),
            });
        }
        Ok(self.result)
    }
}

/// The position of the shard with the most urgent message that a request has not been given to, as far as is known.
fn most_urgent(
    known: &ShardEstimates,
    callable: &[usize],
    tried: u128,
    given: &[u64],
    may_give: impl Fn(usize) -> bool,
) -> Option<usize> {
    let may_give = |at: &usize| tried & (1 << at) == 0 && may_give(*at);
    callable.iter().copied().filter(may_give).min_by_key(|at| known.urgency(*at, given[*at]))
}

/// The place of a shard in an order that is the same for all tries of a request with an id.
fn place_of_id(at: usize, first: usize, shard_count: usize) -> usize {
    (at + shard_count - first) % shard_count
}

/// Lowers limits until they are no more than this together. Returns whether they were more.
fn cut<'a>(limits: impl Iterator<Item = &'a mut usize>, mut room: usize) -> bool {
    let mut were_more = false;
    for limit in limits {
        were_more |= *limit > room;
        *limit = room.min(*limit);
        room -= *limit;
    }
    were_more
}
