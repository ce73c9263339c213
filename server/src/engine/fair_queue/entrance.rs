//! Where a lane enters the fair queue, and in which flow.

use super::{FairQueue, NEW_QUEUES, Permit};
use crate::engine::gather::FLUSH_ITEMS;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The entrance of one lane.
///
/// The queues of a tenant share its flow. Another queue has its own, once the store has shown that it exists; until then
/// its lane is in one flow with those of all unknown queues. Otherwise a burst of new names would be a burst of flows, each
/// with a full share.
pub(in crate::engine) struct Entrance {
    queue: FairQueue,
    flow: Flow,
    waits: Option<oneshot::Receiver<Permit>>,
    /// The cost of its last flush.
    last: usize,
}

enum Flow {
    Tenant(Arc<str>),
    Queue { name: Arc<str>, is_known: bool },
}

impl Entrance {
    /// The entrance of a lane whose queue has no tenant.
    pub(in crate::engine) fn of_queue(queue: &FairQueue, name: &str) -> Entrance {
        let is_known = queue.knows(name);
        Entrance::new(queue, Flow::Queue { name: Arc::from(name), is_known })
    }

    /// The entrance of a lane whose queue belongs to the tenant with this prefix.
    pub(in crate::engine) fn of_tenant(queue: &FairQueue, prefix: &str) -> Entrance {
        Entrance::new(queue, Flow::Tenant(Arc::from(prefix)))
    }

    fn new(queue: &FairQueue, flow: Flow) -> Entrance {
        Entrance { queue: queue.clone(), flow, waits: None, last: 0 }
    }

    /// A permit for a flush of at least this cost. If there is none now, [`permit`](Self::permit) returns it later.
    pub(in crate::engine) fn enter(&mut self, cost: usize) -> Option<Permit> {
        if self.waits.is_some() {
            return None;
        }
        // While it waits, a lane gathers about as much as the last time.
        let cost = cost.max(self.last).clamp(1, FLUSH_ITEMS);
        let entered = match &self.flow {
            Flow::Tenant(flow) | Flow::Queue { name: flow, is_known: true } => self.queue.enter(flow, cost as u64),
            Flow::Queue { is_known: false, .. } => self.queue.enter(&Arc::from(NEW_QUEUES), cost as u64),
        };
        entered.map_err(|later| self.waits = Some(later)).ok()
    }

    /// The lane has formed a flush of this cost.
    pub(in crate::engine) fn flushed(&mut self, cost: usize) {
        self.last = cost;
    }

    /// The store has answered whether the queue exists.
    pub(in crate::engine) fn saw(&mut self, exists: bool) {
        let Flow::Queue { name, is_known } = &mut self.flow else { return };
        if *is_known == exists {
            return;
        }
        *is_known = exists;
        let mut state = self.queue.lock();
        match exists {
            true => state.known.insert(name.clone()),
            false => state.known.remove(name),
        }
        // A lane that waits in the other flow enters again, unless its permit is on the way: those are given under the lock.
        self.waits = self.waits.take().filter(|waits| !waits.is_empty());
    }

    /// The permit that the lane waits for, if it waits. May be cancelled and called again.
    pub(in crate::engine) async fn permit(&mut self) -> Permit {
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
