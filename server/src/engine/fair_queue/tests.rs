//! The fair queue alone, without lanes and without a store.

use super::*;
use futures::FutureExt;

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
            permit.set_cost(FLUSH_ITEMS, 0);
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
    first.set_cost(1, 2 * FLUSH_ITEMS);
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
    first.set_cost(2 * FLUSH_ITEMS, 0);
    let mut of_a = queue.enter(&a, 1).err().unwrap();
    let mut of_b = queue.enter(&b, 1).err().unwrap();
    first.set_cost(2 * FLUSH_ITEMS - 1, 0);
    first.leased(100);
    drop(first);
    let [a, b] = [has(&mut of_a), has(&mut of_b)];
    assert!(a.is_some() && b.is_some());
    assert_eq!(queue.lock().in_flight, 2);
    drop((a, b));
    assert_eq!(queue.lock().in_flight, 0);
}

#[test]
fn s5_while_the_store_is_unavailable_no_lane_waits() {
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

/// The entrance of a queue that the server knows.
fn of_known(queue: &FairQueue, name: &str) -> Entrance {
    let mut entrance = Entrance::of_queue(queue, name);
    entrance.saw(true);
    entrance
}

/// Lanes that wait, as many as a burst of calls on different queues starts.
fn burst(entrance: impl Fn(&str) -> Entrance) -> Vec<Entrance> {
    let mut lanes: Vec<_> = (0..3_000).map(|n| entrance(&format!("new-{n}"))).collect();
    assert!(lanes.iter_mut().all(|lane| lane.enter(1).is_none()));
    lanes
}

fn given(entrance: &mut Entrance) -> Option<Permit> {
    entrance.permit().now_or_never()
}

#[test]
fn s5_a_burst_of_new_queues_has_one_share() {
    let queue = FairQueue::default();
    let mut innocent = of_known(&queue, "innocent");
    let full = queue.enter(&flow("flood"), 2 * FULL).ok().unwrap();
    let mut new = burst(|name| Entrance::of_queue(&queue, name));
    assert!(innocent.enter(1).is_none());
    drop(full);
    let innocents = given(&mut innocent).expect("it is next after one of the burst");
    let mut begun: Vec<_> = new.iter_mut().filter_map(given).collect();
    assert_eq!(begun.len() as u64, IN_FLIGHT_MAX / NEW_QUEUE_COST, "the burst has the rest of the room");
    begun[0].set_cost(1, 0);
    assert_eq!(queue.lock().in_flight, IN_FLIGHT_MAX + 1, "it may still have to create its queue");
    drop(innocents);
    let mut served = 0;
    while !begun.is_empty() {
        served += begun.len();
        begun.clear();
        begun.extend(new.iter_mut().filter_map(given));
    }
    assert_eq!((served, queue.lock().in_flight), (3_000, 0), "all of it is served");
}

#[test]
fn s5_a_lane_leaves_the_flow_of_new_queues_when_its_queue_exists() {
    let queue = FairQueue::default();
    let full = queue.enter(&flow("flood"), 2 * FULL).ok().unwrap();
    let mut new = burst(|name| Entrance::of_queue(&queue, name));
    let mut last = new.pop().unwrap();
    // The store answers its first call.
    last.saw(true);
    assert!(last.enter(1).is_none());
    drop(full);
    drop(given(&mut last).expect("it does not wait for the burst"));
    let mut later = Entrance::of_queue(&queue, "new-2999");
    assert!(later.enter(1).is_none(), "a later lane of the queue");
    drop(given(&mut new[0]));
    drop(given(&mut later).expect("the queue stays known"));
    later.saw(false);
    assert!(!queue.knows("new-2999"), "it was deleted");
    let mut served: Vec<_> = new.iter_mut().filter_map(given).collect();
    while !served.is_empty() {
        served.clear();
        served.extend(new.iter_mut().filter_map(given));
    }
    assert_eq!(queue.lock().in_flight, 0, "the place that the lane has left holds nothing");
}

#[test]
fn s5_a_permit_that_was_given_meanwhile_is_not_lost() {
    let queue = FairQueue::default();
    let full = queue.enter(&flow("flood"), 2 * FULL).ok().unwrap();
    let mut lane = Entrance::of_queue(&queue, "new");
    assert!(lane.enter(1).is_none());
    drop(full);
    lane.saw(true);
    assert!(lane.enter(1).is_none(), "its permit is on the way");
    assert!(given(&mut lane).is_some());
}

#[test]
fn s5_the_new_queues_of_a_tenant_are_in_its_flow() {
    let queue = FairQueue::default();
    let full = queue.enter(&flow("flood"), 2 * FULL).ok().unwrap();
    let mut of_tenant = burst(|_| Entrance::of_tenant(&queue, "t/"));
    let mut other = Entrance::of_queue(&queue, "new");
    assert!(other.enter(1).is_none());
    drop(full);
    assert!(given(&mut other).is_some());
    // A queue that exists changes nothing.
    of_tenant[2_999].saw(true);
    assert!(of_tenant[2_999].enter(1).is_none());
    assert!(queue.lock().flows.keys().all(|flow| ["t/", "flood", NEW_QUEUES].contains(&&**flow)));
}

#[test]
fn s5_new_queues_do_not_starve() {
    let (queue, flood) = (FairQueue::default(), flow("flood"));
    let mut held: VecDeque<_> = (0..2).map(|_| queue.enter(&flood, FULL).ok().unwrap()).collect();
    let mut waiting: VecDeque<_> = (0..3).map(|_| queue.enter(&flood, FULL).err().unwrap()).collect();
    let mut new = burst(|name| Entrance::of_queue(&queue, name));
    let mut flushes_of_flood = 0;
    while !new.is_empty() {
        held.pop_front();
        while let Some(permit) = waiting.front_mut().and_then(has) {
            waiting.pop_front();
            held.push_back(permit);
            flushes_of_flood += 1;
            waiting.push_back(queue.enter(&flood, FULL).err().unwrap());
        }
        new.retain_mut(|lane| given(lane).is_none());
        assert!(flushes_of_flood < 800, "3,000 lanes of cost 16 have the share of 375 full flushes");
    }
}
