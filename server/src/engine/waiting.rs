//! Who waits for messages of one shard, and when to ask the store for them (Q18).
//!
//! # Why no wake-up is lost
//! Something may have become runnable: that is a *signal* (a write of this server on its way to the store, a tell of
//! the store, a due time, a retry). Each signal begins a new *epoch*. Who waits for the same filters is one *group*,
//! and a group remembers the epoch in which the store was last asked for it ([`Group::asked`]). Then:
//!
//! 1. A group with waiters and `asked < epoch` is always asked in the next flush. So a signal that comes while the
//!    group's dequeue is in flight, when nobody of it is in the waiting list, is seen when the dequeue comes back
//!    empty: the epoch has moved on, and the group is asked again.
//! 2. A write of this server signals before the dequeue of the same flush is made up, and the store acts on the
//!    calls of one flush in order, the dequeue last. So `asked == epoch` says that the dequeue saw the write. (A
//!    write that had to be repeated, because it had to make its queue first, signals once more when it is done.)
//! 3. A dequeue that took something leaves the number of runnable messages behind it ([`Group::more`]); waiters are
//!    asked for as long as it is not zero. Only a dequeue that came back with nothing, or short of its limit, ends
//!    this: then nothing was left in the store at that moment, and what comes later is a signal.
//! 4. Writes of other servers: every dequeue that may leave waiters behind says so to the store (`wait`), which
//!    tells when something becomes runnable after it.

mod settle;

use super::granted::Granted;
use super::work::{Stream, StreamId, WorkEvent};
use std::collections::{HashMap, VecDeque};
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::DequeueRequest;
use tallystone_model::{Filter, Refusal};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A unary Dequeue.
pub(crate) struct Waiter {
    /// What it asks for.
    pub(crate) request: DequeueRequest,
    /// Until when it waits; past: it is asked once.
    pub(crate) until: Instant,
    /// Where its leases go.
    pub(crate) reply: oneshot::Sender<Result<Granted, Refusal>>,
}

/// One who asks, and its place in the order of arrival.
struct Asker {
    place: u64,
    who: Who,
}

enum Who {
    Caller(Box<Waiter>),
    Stream(StreamId),
}

/// All who wait for the same filters.
#[derive(Default)]
struct Group {
    /// In order of arrival.
    waiting: VecDeque<Asker>,
    /// Asks in the store.
    in_flight: usize,
    /// The epoch of the last ask.
    asked: u64,
    /// Messages that the last answer left for them.
    more: usize,
    /// Why the last ask was refused, if it is worth another.
    refused: Option<Refusal>,
}

impl Group {
    /// How many messages' worth of waiters to ask for; 0: none.
    fn wanted(&self, epoch: u64, hint: usize) -> usize {
        match self.waiting.is_empty() {
            true => 0,
            false if self.asked < epoch => self.more.max(hint).max(1),
            false => self.more,
        }
    }

    /// Nothing would be lost with it.
    fn is_unused(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }
}

/// One dequeue of the store, made up of many.
#[derive(Default)]
pub(super) struct Asks {
    /// As the store takes them.
    pub(super) requests: Vec<DequeueRequest>,
    /// Whether anyone would wait on.
    pub(super) wait: bool,
    /// Whose they are, in the same order.
    asks: Vec<Ask>,
}

/// One request of a dequeue.
struct Ask {
    asker: Asker,
    limit: usize,
    /// Names the group.
    filters: Vec<Filter>,
    /// It has a request id.
    keyed: bool,
}

/// When to ask again though nothing has signaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The store is away, or builds an index.
    Soon,
    /// The queue is paused, and a Work stream waits for its end.
    Paused,
}

/// Everyone who waits in one shard.
pub(super) struct Waiting {
    groups: HashMap<Vec<Filter>, Group>,
    /// Never asked yet, in order of arrival.
    fresh: VecDeque<Asker>,
    streams: HashMap<StreamId, Stream>,
    next_place: u64,
    epoch: u64,
    hint: usize,
    /// Askers in the groups' waiting lists.
    held: usize,
    /// When the first wait of a held caller ends; may be early.
    expire_at: Option<Instant>,
    /// Swept of callers that have gone when `held` reaches this.
    prune_at: usize,
    /// The store is away.
    away: Option<Refusal>,
    /// Streams for which the present flush has brought something.
    touched: Vec<StreamId>,
    stopping: bool,
}

/// Held askers below which nobody looks for callers that have gone.
const PRUNE_MIN: usize = 1_024;

impl Waiting {
    pub(super) fn new() -> Self {
        Waiting {
            groups: HashMap::new(),
            fresh: VecDeque::new(),
            streams: HashMap::new(),
            next_place: 0,
            epoch: 1,
            hint: 0,
            held: 0,
            expire_at: None,
            prune_at: PRUNE_MIN,
            away: None,
            touched: Vec::new(),
            stopping: false,
        }
    }

    /// A caller's first ask: it always goes to the store, for what another server has just acknowledged must be seen.
    pub(super) fn arrive(&mut self, waiter: Box<Waiter>) {
        let place = self.place();
        self.fresh.push_back(Asker { place, who: Who::Caller(waiter) });
    }

    /// A new Work stream, without credits yet.
    pub(super) fn open_stream(&mut self, id: StreamId, stream: Stream) {
        self.streams.insert(id, stream);
    }

    /// The stream wants no more leases; those on their way to it go back when they come.
    pub(super) fn stop_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.stopped = true;
            stream.credits = 0;
        }
    }

    /// The stream is gone.
    pub(super) fn close_stream(&mut self, id: StreamId) {
        self.streams.remove(&id);
    }

    /// Lets a stream have so many more leases.
    pub(super) fn credit(&mut self, id: StreamId, credits: usize) {
        let place = self.place();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.stopped {
            return;
        }
        stream.credits += credits;
        if stream.credits > 0 && !stream.queued {
            stream.queued = true;
            self.fresh.push_back(Asker { place, who: Who::Stream(id) });
        }
    }

    /// What the present flush has brought for a stream, to leave results with.
    pub(super) fn event(&mut self, id: StreamId) -> Option<&mut WorkEvent> {
        let stream = self.streams.get_mut(&id)?;
        self.touched.push(id);
        Some(stream.event())
    }

    /// Sends every stream what the flush has brought.
    pub(super) fn send_events(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send();
            }
        }
    }

    /// Something may have become runnable, perhaps `hint` messages.
    pub(super) fn signal(&mut self, hint: usize) {
        self.epoch += 1;
        self.hint = self.hint.max(hint);
    }

    /// Whether nobody waits and nobody may come back to wait.
    pub(super) fn is_idle(&self) -> bool {
        self.held == 0 && self.fresh.is_empty() && self.streams.is_empty()
    }

    /// Askers that were never asked for.
    pub(super) fn fresh(&self) -> usize {
        self.fresh.len()
    }

    /// Askers that wait for a signal.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Makes up the next dequeue: of each group that a signal concerns as many waiters as may find something, then
    /// everyone who has just come; at most [`BATCH_ITEMS_MAX`] leases.
    pub(super) fn dispatch(&mut self, now: Instant) -> Option<Asks> {
        let (epoch, hint) = (self.epoch, std::mem::take(&mut self.hint));
        if self.held == 0 && self.fresh.is_empty() {
            return None;
        }
        let Waiting { groups, fresh, streams, held, .. } = self;
        let mut asks = Asks::default();
        let mut room = BATCH_ITEMS_MAX;
        let mut concerned: Vec<&mut Group> = match *held {
            0 => Vec::new(),
            _ => groups.values_mut().filter(|group| group.wanted(epoch, hint) > 0).collect(),
        };
        concerned.sort_unstable_by_key(|group| group.waiting.front().map(|asker| asker.place));
        for group in concerned {
            let mut wanted = group.wanted(epoch, hint);
            while wanted > 0
                && let Some(asker) = group.waiting.front()
            {
                let limit = asker.limit(streams);
                if limit > room {
                    break;
                }
                let Some(asker) = group.waiting.pop_front() else { break };
                *held -= 1;
                if limit > 0 {
                    room -= limit;
                    wanted = wanted.saturating_sub(limit);
                    group.asked = epoch;
                    group.in_flight += 1;
                    asks.add(asker, limit, streams, now);
                }
            }
            group.more = if group.waiting.is_empty() { 0 } else { wanted };
        }
        while let Some(asker) = fresh.front() {
            let limit = asker.limit(streams);
            if limit > room {
                break;
            }
            let Some(asker) = fresh.pop_front() else { break };
            if limit > 0 {
                room -= limit;
                let group = group_of(groups, asker.filters(streams));
                group.asked = epoch;
                group.in_flight += 1;
                asks.add(asker, limit, streams, now);
            }
        }
        asks.wait |= *held > 0;
        (!asks.requests.is_empty()).then_some(asks)
    }

    fn place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }
}

fn group_of<'a>(groups: &'a mut HashMap<Vec<Filter>, Group>, filters: &[Filter]) -> &'a mut Group {
    if !groups.contains_key(filters) {
        groups.insert(filters.to_vec(), Group::default());
    }
    groups.get_mut(filters).expect("just put there")
}

impl Asker {
    /// How many leases it asks for now; 0: it has gone, or has had enough.
    fn limit(&self, streams: &mut HashMap<StreamId, Stream>) -> usize {
        match &self.who {
            Who::Caller(waiter) if waiter.reply.is_closed() => 0,
            Who::Caller(waiter) => waiter.request.limit,
            Who::Stream(id) => streams.get_mut(id).map_or(0, |stream| {
                stream.queued &= stream.credits > 0;
                stream.credits
            }),
        }
    }

    /// The name of its group; a stream that has gone has none, and no limit either.
    fn filters<'a>(&'a self, streams: &'a HashMap<StreamId, Stream>) -> &'a [Filter] {
        match &self.who {
            Who::Caller(waiter) => &waiter.request.filters,
            Who::Stream(id) => streams.get(id).map_or(&[], |stream| &stream.request.filters),
        }
    }
}

impl Asks {
    /// Puts one in who is still there; a stream's credits go into the ask and come back with what is left of them.
    fn add(&mut self, asker: Asker, limit: usize, streams: &mut HashMap<StreamId, Stream>, now: Instant) {
        let request = match &asker.who {
            Who::Caller(waiter) => {
                self.wait |= waiter.until > now;
                waiter.request.clone()
            }
            Who::Stream(id) => {
                let Some(stream) = streams.get_mut(id) else { return };
                self.wait = true;
                stream.queued = false;
                stream.credits = 0;
                DequeueRequest { limit, ..stream.request.clone() }
            }
        };
        let (filters, keyed) = (request.filters.clone(), !request.request_id.is_empty());
        self.requests.push(request);
        self.asks.push(Ask { asker, limit, filters, keyed });
    }
}
