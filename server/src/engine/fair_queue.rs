//! Fair shares of the store (S5): each flush needs a permit, so that a flood on one queue does not delay the calls on others.
//!
//! The store executes one script call after the other, so all that is in flight delays every later call. Two rules bound
//! this. A flush starts only while those in flight have fewer than [`IN_FLIGHT_MAX`] items together. Otherwise lanes
//! wait, and start-time fair queuing (Goyal, Vin, Cheng, 1996) chooses the next: each flow has a virtual time that
//! advances by the items of its flushes, and the flow that is furthest behind is next. So a small flush overtakes the
//! large ones of a flood, and no lane waits forever. While the store does not answer there is no limit, so that all
//! calls fail together.

use super::gather::FLUSH_ITEMS;
use std::collections::{BTreeMap, HashMap};
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
    /// For each flow, the virtual time at which its next permit starts. A flow that is not ahead needs no entry.
    next: HashMap<Arc<str>, u64>,
    /// With so many entries, those that are not needed are removed.
    forget_at: usize,
    /// The lanes that wait, by the virtual time at which their permits start, then by arrival.
    waiting: BTreeMap<(u64, u64), Waiting>,
    arrivals: u64,
    /// The store did not answer the flush that ended last.
    is_store_away: bool,
}

struct Waiting {
    flow: Arc<str>,
    items: u64,
    lane: oneshot::Sender<Permit>,
}

/// Where a lane enters.
pub(super) struct Entrance {
    queue: FairQueue,
    flow: Arc<str>,
    waits: Option<oneshot::Receiver<Permit>>,
}

impl Entrance {
    pub(super) fn new(queue: &FairQueue, flow: &str) -> Entrance {
        Entrance { queue: queue.clone(), flow: Arc::from(flow), waits: None }
    }

    /// A permit for a flush of about so many items. If there is none now, [`permit`](Self::permit) returns it later.
    pub(super) fn enter(&mut self, items: usize) -> Option<Permit> {
        if self.waits.is_some() {
            return None;
        }
        let entered = self.queue.enter(&self.flow, items.clamp(1, FLUSH_ITEMS) as u64);
        entered.map_err(|later| self.waits = Some(later)).ok()
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
    items: u64,
}

impl FairQueue {
    /// A permit, or the receiver of one.
    fn enter(&self, flow: &Arc<str>, items: u64) -> Result<Permit, oneshot::Receiver<Permit>> {
        let mut state = self.lock();
        let start = state.reserve(flow, items);
        if state.waiting.is_empty() && state.has_room() {
            return Ok(self.begin(&mut state, start, flow.clone(), items));
        }
        let (lane, permit) = oneshot::channel();
        state.arrivals += 1;
        let place = (start, state.arrivals);
        state.waiting.insert(place, Waiting { flow: flow.clone(), items, lane });
        Err(permit)
    }

    fn begin(&self, state: &mut State, start: u64, flow: Arc<str>, items: u64) -> Permit {
        state.now = state.now.max(start);
        state.in_flight += items;
        Permit { queue: self.clone(), flow, items }
    }

    /// Gives permits to the lanes that wait, as far as there is room.
    fn proceed(&self) {
        loop {
            let mut state = self.lock();
            if !state.has_room() {
                return;
            }
            let Some(((start, _), Waiting { flow, items, lane })) = state.waiting.pop_first() else { return };
            let permit = self.begin(&mut state, start, flow, items);
            // A lane that has ended does not take its permit, which takes the lock when it is dropped.
            drop(state);
            drop(lane.send(permit));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics with the state half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The virtual time at which a permit of this flow starts; the next one starts after these items.
    fn reserve(&mut self, flow: &Arc<str>, items: u64) -> u64 {
        let now = self.now;
        if self.next.len() > self.forget_at {
            self.next.retain(|_, next| *next > now);
            self.forget_at = FORGET_MIN.max(2 * self.next.len());
        }
        let next = self.next.entry(flow.clone()).or_default();
        let start = now.max(*next);
        *next = start + items;
        start
    }

    fn has_room(&self) -> bool {
        self.is_store_away || self.in_flight < IN_FLIGHT_MAX
    }

    fn advance(&mut self, flow: &Arc<str>, items: u64) {
        if let Some(next) = self.next.get_mut(flow) {
            *next += items;
        }
    }
}

impl Permit {
    /// The flush has so many items.
    pub(super) fn set_items(&mut self, items: usize) {
        let items = items as u64;
        let mut state = self.queue.lock();
        state.in_flight = state.in_flight + items - self.items;
        state.advance(&self.flow, items.saturating_sub(self.items));
        self.items = items;
    }

    /// Whether the store has not answered the flush.
    pub(super) fn set_store_away(&self, is_store_away: bool) {
        self.queue.lock().is_store_away = is_store_away;
    }

    /// The flush has leased so many messages: each costs the store as much as an item.
    pub(super) fn leased(&self, messages: usize) {
        self.queue.lock().advance(&self.flow, messages as u64);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.in_flight -= self.items;
        if state.in_flight == 0 && state.waiting.is_empty() {
            // The store is idle: no flow is ahead.
            state.next.clear();
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
            lanes[which].2 += permit.items;
            drop(permit);
            waiting.retain_mut(|(which, permit)| has(permit).map(|permit| held.push((*which, permit))).is_none());
        }
        let [small, large] = [lanes[0].2, lanes[1].2].map(|items| items as f64);
        assert!((0.9..1.1).contains(&(small / large)), "{small} and {large} items");
    }

    #[test]
    fn s5_what_a_flush_turns_out_to_be_counts() {
        let (queue, a, b) = (FairQueue::default(), flow("a"), flow("b"));
        let mut first = queue.enter(&a, 1).ok().unwrap();
        first.set_items(2 * FLUSH_ITEMS);
        let mut of_a = queue.enter(&a, 1).err().unwrap();
        let mut of_b = queue.enter(&b, 1).err().unwrap();
        first.set_items(2 * FLUSH_ITEMS - 1);
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
        assert!(queue.lock().next.len() <= FORGET_MIN + 1);
    }
}
