//! Fair shares of the store (S5): each flush needs a permit, so that a flood on one queue does not delay the calls on others.
//!
//! The store executes one script call after the other, so all that is in flight delays every later call. Two rules bound
//! this. A flush starts only while those in flight cost less than [`IN_FLIGHT_MAX`] together. Otherwise lanes wait, and
//! start-time fair queuing (Goyal, Vin, Cheng, 1996) chooses the next: each flow has a virtual time that advances by the
//! cost of its flushes, and the flow that is furthest behind is next. So a small flush overtakes the large ones of a
//! flood, and no lane waits forever. While the store does not answer there is no limit, so that all calls fail together.
//!
//! What lives here: the queue and its permits, `entrance` (which flow a lane is in), `known` (the queues that exist), `light`
//! (which flows have small flushes). What may not: calls, and what they cost.

mod entrance;
mod known;
mod light;
#[cfg(test)]
mod tests;

pub(super) use entrance::Entrance;

use super::gather::FLUSH_ITEMS;
use known::KnownQueues;
use light::LightFlows;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The cost of all flushes in flight. A lane that is alone may have two full flushes.
const IN_FLIGHT_MAX: u64 = 2 * FLUSH_ITEMS as u64;

/// The flow of all queues that the server does not know to exist. No queue and no tenant has this name.
const NEW_QUEUES: &str = "";

/// The least cost of a flush in that flow: it may have to create its queue, which takes three more store calls, one after
/// the other.
const NEW_QUEUE_COST: u64 = 16;

/// The items of one step: a large flush is sent in steps while another flow has small ones.
const STEP_ITEMS: usize = 25;

/// With fewer flows than this, none is forgotten while flushes are in flight.
const FORGET_MIN: usize = 1_024;

/// The permits of one server.
#[derive(Clone, Default)]
pub(crate) struct FairQueue(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The cost of all permits.
    in_flight: u64,
    /// The virtual time: the start of the latest permit.
    now: u64,
    /// A flow that is not ahead, and has no lane that waits, needs no entry.
    flows: HashMap<Arc<str>, Flow>,
    /// At this number of entries, those that are not needed are removed.
    forget_at: usize,
    /// The flows with lanes that wait.
    waiting: BTreeSet<Turn>,
    arrivals: u64,
    /// The store did not answer the flush that ended last.
    is_store_away: bool,
    known: KnownQueues,
    light: LightFlows,
}

#[derive(Default)]
struct Flow {
    /// The virtual time at which its next permit may start.
    next: u64,
    /// The one at which the permit of its first lane that waits starts.
    start: u64,
    /// Those that wait, in order of arrival.
    lanes: VecDeque<Lane>,
}

/// A lane that waits.
struct Lane {
    arrival: u64,
    cost: u64,
    permit: oneshot::Sender<Permit>,
}

/// When the first lane of a flow is next: by the virtual time at which its permit starts, then by arrival.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    start: u64,
    arrival: u64,
    flow: Arc<str>,
}

/// Until it is dropped, a flush of its lane may be in flight.
pub(super) struct Permit {
    queue: FairQueue,
    flow: Arc<str>,
    /// What it takes of the room.
    held: u64,
    /// What its flow is charged with.
    charged: u64,
    /// What it costs at least.
    least: u64,
    /// Its lane has ended: nothing is left to return.
    is_void: bool,
}

impl FairQueue {
    /// Whether this server knows that the queue exists.
    pub(super) fn knows(&self, queue: &str) -> bool {
        self.lock().known.has(queue)
    }

    /// A flow has small flushes through another server, which are slow.
    pub(super) fn note_light(&self, flow: &str) {
        self.lock().light.begins(&Arc::from(flow), 0);
    }

    /// A permit, or the receiver of one.
    fn enter(&self, flow: &Arc<str>, cost: u64) -> Result<Permit, oneshot::Receiver<Permit>> {
        let mut state = self.lock();
        if state.waiting.is_empty() && state.has_room() {
            return Ok(self.begin(&mut state, flow, cost));
        }
        let (permit, given) = oneshot::channel();
        state.arrivals += 1;
        let lane = Lane { arrival: state.arrivals, cost, permit };
        let lanes = &mut state.flow(flow).lanes;
        lanes.push_back(lane);
        if lanes.len() == 1 {
            state.line_up(flow);
        }
        Err(given)
    }

    fn begin(&self, state: &mut State, flow: &Arc<str>, cost: u64) -> Permit {
        let least = if **flow == *NEW_QUEUES { NEW_QUEUE_COST } else { 0 };
        let cost = cost.max(least);
        let now = state.now;
        let entry = state.flow(flow);
        let start = now.max(entry.next);
        entry.next = start + cost;
        state.now = start;
        state.in_flight += cost;
        state.light.begins(flow, cost);
        Permit { queue: self.clone(), flow: flow.clone(), held: cost, charged: cost, least, is_void: false }
    }

    /// Gives permits to the lanes that wait, as far as there is room.
    fn proceed(&self) {
        let mut state = self.lock();
        while state.has_room() {
            let Some(Turn { flow, .. }) = state.waiting.pop_first() else { return };
            let Some(lane) = state.flow(&flow).lanes.pop_front() else { continue };
            let permit = self.begin(&mut state, &flow, lane.cost);
            if let Err(mut permit) = lane.permit.send(permit) {
                // Its lane has ended. Dropped as it is, it would take the lock.
                permit.is_void = true;
                state.in_flight -= permit.held;
                state.charge(&flow, permit.charged, 0);
            }
            state.line_up(&flow);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics with the state half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn flow(&mut self, flow: &Arc<str>) -> &mut Flow {
        let now = self.now;
        if self.flows.len() > self.forget_at {
            self.flows.retain(|_, flow| flow.next > now || !flow.lanes.is_empty());
            self.forget_at = FORGET_MIN.max(2 * self.flows.len());
        }
        self.flows.entry(flow.clone()).or_default()
    }

    /// Puts the first lane of the flow into the order, if it has one that waits.
    fn line_up(&mut self, flow: &Arc<str>) {
        let now = self.now;
        let Some(entry) = self.flows.get_mut(flow) else { return };
        entry.start = now.max(entry.next);
        self.waiting.extend(entry.turn(flow));
    }

    /// Takes the flow out of the order. Returns whether it was in it.
    fn step_out(&mut self, flow: &Arc<str>) -> bool {
        let turn = self.flows.get(flow).and_then(|entry| entry.turn(flow));
        turn.is_some_and(|turn| self.waiting.remove(&turn))
    }

    fn has_room(&self) -> bool {
        self.is_store_away || self.in_flight < IN_FLIGHT_MAX
    }

    /// The flow has used this instead of what it was charged with.
    fn charge(&mut self, flow: &Arc<str>, charged: u64, used: u64) {
        let was_waiting = self.step_out(flow);
        if let Some(entry) = self.flows.get_mut(flow) {
            entry.next = (entry.next + used).saturating_sub(charged);
        }
        if was_waiting {
            self.line_up(flow);
        }
    }
}

impl Flow {
    fn turn(&self, flow: &Arc<str>) -> Option<Turn> {
        Some(Turn { start: self.start, arrival: self.lanes.front()?.arrival, flow: flow.clone() })
    }
}

impl Permit {
    /// The cost of the flush, and about that of the messages that it will lease.
    pub(super) fn set_cost(&mut self, sent: usize, leased: usize) {
        let sent = self.least.max(sent as u64);
        self.set(sent, sent + leased as u64);
    }

    /// The most items of one store call of the flush; `None`: no bound. What the store executes at once delays the small
    /// flushes of others.
    pub(super) fn step_items(&self) -> Option<usize> {
        self.queue.lock().light.are_others(&self.flow).then_some(STEP_ITEMS)
    }

    /// The flow, if other servers are to be notified that its small flushes are slow: the store has answered the flush in
    /// this time.
    pub(super) fn slow_flow(&self, took: Duration) -> Option<Arc<str>> {
        let is_slow = self.least == 0 && self.queue.lock().light.is_to_be_notified(&self.flow, self.held, took);
        is_slow.then(|| self.flow.clone())
    }

    /// The flush waits for something else than the store.
    pub(super) fn give_back(&mut self) {
        self.set(self.charged, 0);
    }

    fn set(&mut self, charged: u64, held: u64) {
        let mut state = self.queue.lock();
        state.charge(&self.flow, self.charged, charged);
        state.in_flight = state.in_flight + held - self.held;
        drop(state);
        let has_freed = held < self.held;
        (self.charged, self.held) = (charged, held);
        if has_freed {
            self.queue.proceed();
        }
    }

    /// Whether the store has not answered the flush.
    pub(super) fn set_store_away(&self, is_store_away: bool) {
        self.queue.lock().is_store_away = is_store_away;
    }

    /// The cost of the messages that the flush has leased.
    pub(super) fn leased(&self, cost: usize) {
        self.queue.lock().charge(&self.flow, 0, cost as u64);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_void {
            return;
        }
        let mut state = self.queue.lock();
        state.in_flight -= self.held;
        if state.in_flight == 0 && state.waiting.is_empty() {
            // The store is idle: no flow is ahead.
            state.flows.clear();
            return;
        }
        drop(state);
        self.queue.proceed();
    }
}
