//! Fair shares of the store (S5): each flush needs a permit, so that a flood on one queue does not delay the calls on others.
//!
//! The store executes one script call after the other, so all that is in flight delays every later call. Two rules bound
//! this. A flush starts only while those in flight have fewer than [`IN_FLIGHT_MAX`] items together. Otherwise lanes
//! wait, and start-time fair queuing (Goyal, Vin, Cheng, 1996) chooses the next: each flow has a virtual time that
//! advances by the items of its flushes, and the flow that is furthest behind is next. So a small flush overtakes the
//! large ones of a flood, and no lane waits forever. While the store does not answer there is no limit, so that all
//! calls fail together.

use super::gather::FLUSH_ITEMS;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The items of all flushes in flight. A lane that is alone may have two full flushes.
const IN_FLIGHT_MAX: u64 = 2 * FLUSH_ITEMS as u64;

/// With fewer flows than this, none is forgotten while flushes are in flight.
const FORGET_MIN: usize = 1_024;

/// The permits of one server.
#[derive(Clone, Default)]
pub(crate) struct FairQueue(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The items of all permits.
    in_flight: u64,
    /// The virtual time: the start of the latest permit.
    now: u64,
    /// A flow that is not ahead, and has no lane that waits, needs no entry.
    flows: HashMap<Arc<str>, Flow>,
    /// With so many entries, those that are not needed are removed.
    forget_at: usize,
    /// The flows with lanes that wait.
    waiting: BTreeSet<Turn>,
    arrivals: u64,
    /// The store did not answer the flush that ended last.
    is_store_away: bool,
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
    items: u64,
    permit: oneshot::Sender<Permit>,
}

/// When the first lane of a flow is next: by the virtual time at which its permit starts, then by arrival.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    start: u64,
    arrival: u64,
    flow: Arc<str>,
}

/// Where a lane enters.
pub(super) struct Entrance {
    queue: FairQueue,
    flow: Arc<str>,
    waits: Option<oneshot::Receiver<Permit>>,
    /// The items of its last flush.
    last: usize,
}

impl Entrance {
    pub(super) fn new(queue: &FairQueue, flow: &str) -> Entrance {
        Entrance { queue: queue.clone(), flow: Arc::from(flow), waits: None, last: 0 }
    }

    /// A permit for a flush of at least so many items. If there is none now, [`permit`](Self::permit) returns it later.
    pub(super) fn enter(&mut self, items: usize) -> Option<Permit> {
        if self.waits.is_some() {
            return None;
        }
        // While it waits, a lane gathers about as much as the last time.
        let items = items.max(self.last).clamp(1, FLUSH_ITEMS);
        let entered = self.queue.enter(&self.flow, items as u64);
        entered.map_err(|later| self.waits = Some(later)).ok()
    }

    /// The lane has formed a flush of so many items.
    pub(super) fn flushed(&mut self, items: usize) {
        self.last = items;
    }

    /// The permit that the lane waits for, if it waits. May be cancelled and called again.
    pub(super) async fn permit(&mut self) -> Permit {
        let given = match &mut self.waits {
            Some(waits) => waits.await,
            None => std::future::pending().await,
        };
        self.waits = None;
        match given {
            Ok(permit) => permit,
            Err(_) => std::future::pending().await,
        }
    }
}

/// Until it is dropped, a flush of its lane may be in flight.
pub(super) struct Permit {
    queue: FairQueue,
    flow: Arc<str>,
    /// What it takes of the room.
    held: u64,
    /// What its flow is charged with.
    charged: u64,
    /// Its lane has ended: nothing is left to return.
    is_void: bool,
}

impl FairQueue {
    /// A permit, or the receiver of one.
    fn enter(&self, flow: &Arc<str>, items: u64) -> Result<Permit, oneshot::Receiver<Permit>> {
        let mut state = self.lock();
        if state.waiting.is_empty() && state.has_room() {
            return Ok(self.begin(&mut state, flow, items));
        }
        let (permit, given) = oneshot::channel();
        state.arrivals += 1;
        let lane = Lane { arrival: state.arrivals, items, permit };
        let lanes = &mut state.flow(flow).lanes;
        lanes.push_back(lane);
        if lanes.len() == 1 {
            state.line_up(flow);
        }
        Err(given)
    }

    fn begin(&self, state: &mut State, flow: &Arc<str>, items: u64) -> Permit {
        let now = state.now;
        let entry = state.flow(flow);
        let start = now.max(entry.next);
        entry.next = start + items;
        state.now = start;
        state.in_flight += items;
        Permit { queue: self.clone(), flow: flow.clone(), held: items, charged: items, is_void: false }
    }

    /// Gives permits to the lanes that wait, as far as there is room.
    fn proceed(&self) {
        let mut state = self.lock();
        while state.has_room() {
            let Some(Turn { flow, .. }) = state.waiting.pop_first() else { return };
            let Some(lane) = state.flow(&flow).lanes.pop_front() else { continue };
            let permit = self.begin(&mut state, &flow, lane.items);
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

    /// The flow has used so many items instead of as many as it was charged with.
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
    /// The flush has so many items, and may lease about so many messages.
    pub(super) fn set_items(&mut self, items: usize, leases: usize) {
        self.set(items as u64, (items + leases) as u64);
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

    /// The flush has leased so many messages: each costs the store as much as an item.
    pub(super) fn leased(&self, messages: usize) {
        self.queue.lock().charge(&self.flow, 0, messages as u64);
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

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = FLUSH_ITEMS as u64;

    fn flow(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn has(permit: &mut oneshot::Receiver<Permit>) -> Option<Permit> {
        permit.try_recv().ok()
    }

    #[test]
    fn s5_a_lane_that_is_alone_has_two_full_flushes_in_flight() {
        let (queue, a) = (FairQueue::default(), flow("a"));
        let first = queue.enter(&a, FULL).ok().unwrap();
        let _second = queue.enter(&a, FULL).ok().unwrap();
        let mut third = queue.enter(&a, FULL).err().unwrap();
        assert!(has(&mut third).is_none());
        drop(first);
        assert!(has(&mut third).is_some());
    }

    #[test]
    fn s5_a_small_flush_overtakes_those_of_a_flood() {
        let (queue, flood, innocent) = (FairQueue::default(), flow("flood"), flow("innocent"));
        let first = queue.enter(&flood, FULL).ok().unwrap();
        let _second = queue.enter(&flood, FULL).ok().unwrap();
        let mut waiting: Vec<_> = (0..10).map(|_| queue.enter(&flood, FULL).err().unwrap()).collect();
        let mut overtaking = queue.enter(&innocent, 1).err().unwrap();
        drop(first);
        assert!(has(&mut overtaking).is_some());
        assert!(has(&mut waiting[0]).is_some(), "in the room that is left");
        assert!(has(&mut waiting[1]).is_some(), "the overtaking one is over");
        assert!(has(&mut waiting[2]).is_some());
    }

    #[test]
    fn s5_flows_that_flood_get_equal_numbers_of_items() {
        let queue = FairQueue::default();
        let mut lanes: Vec<_> = [("small", 10), ("large", FULL)].map(|(name, items)| (flow(name), items, 0)).into();
        let mut waiting = Vec::new();
        let mut held = Vec::new();
        for _ in 0..10_000 {
            for (which, (flow, items, _)) in lanes.iter().enumerate() {
                // Each keeps three flushes waiting.
                while waiting.iter().filter(|(of, _)| *of == which).count() < 3 {
                    match queue.enter(flow, *items) {
                        Ok(permit) => held.push((which, permit)),
                        Err(permit) => waiting.push((which, permit)),
                    }
                }
            }
            let (which, permit) = held.remove(0);
            lanes[which].2 += permit.charged;
            drop(permit);
            waiting.retain_mut(|(which, permit)| has(permit).map(|permit| held.push((*which, permit))).is_none());
        }
        let [small, large] = [lanes[0].2, lanes[1].2].map(|items| items as f64);
        assert!((0.9..1.1).contains(&(small / large)), "{small} and {large} items");
    }

    #[test]
    fn s5_a_flow_with_many_lanes_gets_as_much_as_one_with_one() {
        let queue = FairQueue::default();
        let flows = ["many", "one"].map(flow);
        let full = queue.enter(&flows[0], 2 * FULL).ok().unwrap();
        // Each flush turns out to be larger than what its lane entered with.
        let enter = |of: usize| (of, queue.enter(&flows[of], FULL / 2).err().unwrap());
        let mut waiting: Vec<_> = std::iter::repeat_n(0, 200).chain([1]).map(enter).collect();
        let mut flushes = [0_u32; 2];
        let mut held = vec![full];
        for _ in 0..200 {
            held.remove(0);
            let mut given = Vec::new();
            waiting.retain_mut(|(of, permit)| has(permit).map(|permit| given.push((*of, permit))).is_none());
            for (of, mut permit) in given {
                permit.set_items(FLUSH_ITEMS, 0);
                flushes[of] += 1;
                held.push(permit);
                waiting.push(enter(of));
            }
        }
        assert!(flushes[0] > 90 && flushes[0].abs_diff(flushes[1]) <= 4, "{flushes:?}");
    }

    #[test]
    fn s5_messages_that_a_flush_may_lease_take_room() {
        let (queue, a) = (FairQueue::default(), flow("a"));
        let mut first = queue.enter(&a, 1).ok().unwrap();
        first.set_items(1, 2 * FLUSH_ITEMS);
        let mut second = queue.enter(&flow("b"), 1).err().unwrap();
        first.give_back();
        assert!(has(&mut second).is_some(), "the first one waits for something else");
        drop(first);
        assert_eq!(queue.lock().in_flight, 0);
    }

    #[test]
    fn s5_what_a_flush_turns_out_to_be_counts() {
        let (queue, a, b) = (FairQueue::default(), flow("a"), flow("b"));
        let mut first = queue.enter(&a, 1).ok().unwrap();
        first.set_items(2 * FLUSH_ITEMS, 0);
        let mut of_a = queue.enter(&a, 1).err().unwrap();
        let mut of_b = queue.enter(&b, 1).err().unwrap();
        first.set_items(2 * FLUSH_ITEMS - 1, 0);
        first.leased(100);
        drop(first);
        let [a, b] = [has(&mut of_a), has(&mut of_b)];
        assert!(a.is_some() && b.is_some());
        assert_eq!(queue.lock().in_flight, 2);
        drop((a, b));
        assert_eq!(queue.lock().in_flight, 0);
    }

    #[test]
    fn s5_while_the_store_is_away_no_lane_waits() {
        let (queue, a) = (FairQueue::default(), flow("a"));
        let full = queue.enter(&a, 2 * FULL).ok().unwrap();
        let mut waiting: Vec<_> = (0..10).map(|_| queue.enter(&a, FULL).err().unwrap()).collect();
        full.set_store_away(true);
        drop(full);
        let failing: Vec<_> = waiting.iter_mut().map(|permit| has(permit).unwrap()).collect();
        assert!(queue.enter(&a, FULL).is_ok());
        failing[0].set_store_away(false);
        assert!(queue.enter(&a, FULL).is_err(), "the store is back");
    }

    #[test]
    fn s5_a_lane_that_ends_while_it_waits_delays_no_other_and_flows_are_forgotten() {
        let (queue, a) = (FairQueue::default(), flow("a"));
        let full = queue.enter(&a, 2 * FULL).ok().unwrap();
        drop(queue.enter(&a, 2 * FULL));
        let mut last = queue.enter(&flow("b"), 1).err().unwrap();
        drop(full);
        assert!(has(&mut last).is_some());
        assert_eq!(queue.lock().in_flight, 0);
        let _in_flight = queue.enter(&a, 1);
        for n in 0..100 * FORGET_MIN as u64 {
            // The virtual time advances.
            drop(queue.enter(&a, 1));
            drop(queue.enter(&flow(&n.to_string()), 1));
        }
        assert!(queue.lock().flows.len() <= FORGET_MIN + 1);
    }
}
