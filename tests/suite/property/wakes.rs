//! Which notifications must arrive (Q18): at a waiting server, when another makes something runnable for it; at the
//! sweeper, when something falls due before the planned sweep.

use crate::property::call::{Call, CallReply};
use crate::property::compare::Outcome;
use crate::property::program::QUEUES;
use crate::property::sides::WholeOracle;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tallystone_model::store::{DequeueRequest, Swept};
use tallystone_model::{Message, Shard, State, Store};
use tallystone_server::store::RedisStore;
use tokio::sync::Notify;

/// A server polls again by itself before the store forgets that it waits.
const POLLS_AGAIN_MS: u64 = 60_000;

/// How often one server was notified of each queue, by its first shard.
#[derive(Default)]
pub(super) struct Notifications {
    times: Mutex<HashMap<Shard, u64>>,
    changed: Notify,
}

impl Notifications {
    /// Listens to a server.
    pub(super) fn by(server: &RedisStore) -> Arc<Notifications> {
        let notified = Arc::new(Notifications::default());
        let ear = notified.clone();
        server.on_ready(Box::new(move |shard| {
            *ear.times.lock().unwrap_or_else(PoisonError::into_inner).entry(shard.sibling(0)).or_default() += 1;
            ear.changed.notify_one();
        }));
        notified
    }

    fn times(&self, shard: &Shard) -> u64 {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).get(shard).copied().unwrap_or(0)
    }

    /// Waits until it was notified more often than that.
    async fn again(&self, shard: &Shard, than: u64, patience: Duration) -> bool {
        let notified = async {
            while self.times(shard) <= than {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(patience, notified).await.is_ok()
    }
}

/// A request that got nothing and is held by its server.
struct Waiting {
    queue: usize,
    server: usize,
    request: DequeueRequest,
    since_ms: u64,
    /// The count when it began to wait; or, if its dequeue moved due messages, when it called: that call clears the mark of
    /// waiting servers, and the notification may arrive before the result. A server records notifications during a call.
    notified: u64,
    /// Something was there for it after the last step.
    is_served: bool,
}

/// What the sweeper knows of a shard: when it plans to sweep.
#[derive(Clone, Copy)]
struct Plan {
    at_ms: u64,
    notified: u64,
}

/// Which callers wait for what in one run of a program.
pub(super) struct Wakes<'a> {
    notified: &'a [Arc<Notifications>; 2],
    patience: Duration,
    waiting: Vec<Waiting>,
    plans: [Option<Plan>; QUEUES],
}

impl<'a> Wakes<'a> {
    /// No server waits. `patience` is how long a message from Redis to a server may take.
    pub(super) fn new(notified: &'a [Arc<Notifications>; 2], patience: Duration) -> Self {
        Wakes { notified, patience, waiting: Vec::new(), plans: [None; QUEUES] }
    }

    /// How often a server was notified of a shard so far.
    pub(super) fn notified(&self, server: usize, shard: &Shard) -> u64 {
        self.notified[server].times(shard)
    }

    /// The sweeper runs on the first server. Counts of two servers do not compare: each also wakes the shards whose mark
    /// it misses, and the other one does not learn of it.
    fn of_sweeper(&self) -> &'a Notifications {
        &self.notified[0]
    }

    /// After a call with equal results: every necessary notification arrived. `notified`: how often its server was
    /// notified before it waits. `swept` is Redis's own answer.
    pub(super) async fn after(
        &mut self,
        (queue, server, notified): (usize, usize, u64),
        (call, answer): (&Call, &CallReply),
        swept: Option<&Swept>,
        (oracle, shard, now_ms): (&WholeOracle, &Shard, u64),
    ) -> Outcome {
        match (call, answer) {
            // Servers whose callers wait are notified of new shards, and poll again: that is tested in `conformance::shards::resharding`.
            (call, _) if call.changes_shards() => {
                self.waiting.retain(|waiting| waiting.queue != queue);
                self.plans[queue] = None;
            }
            (Call::Dequeue(requests, true, _), CallReply::Dequeued(Ok(dequeued))) => {
                let hungry = requests.iter().zip(&dequeued.leases).filter(|(_, leases)| **leases == Ok(Vec::new()));
                let waiting = |request: &DequeueRequest| {
                    let request = request.clone();
                    Waiting { queue, server, request, since_ms: now_ms, notified, is_served: false }
                };
                self.waiting.extend(hungry.map(|(request, _)| waiting(request)));
            }
            _ => {}
        }
        if let Some(swept) = swept {
            let at_ms = swept.next_ms.unwrap_or(u64::MAX);
            self.plans[queue] = Some(Plan { at_ms, notified: self.of_sweeper().times(shard) });
        }
        self.waiters_are_notified((queue, server), call, (oracle, shard, now_ms)).await?;
        self.sweeper_is_notified(queue, (oracle, shard, now_ms)).await
    }

    async fn waiters_are_notified(
        &mut self,
        (queue, server): (usize, usize),
        call: &Call,
        (oracle, shard, now_ms): (&WholeOracle, &Shard, u64),
    ) -> Outcome {
        let notified = |waiting: &Waiting| self.notified[waiting.server].times(shard) > waiting.notified;
        self.waiting.retain(|w| w.queue != queue || (now_ms < w.since_ms + POLLS_AGAIN_MS && !notified(w)));
        if self.waiting.iter().all(|waiting| waiting.queue != queue) {
            return Ok(());
        }
        let runnable = runnable(oracle, shard).await;
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.queue == queue) {
            let serves = |message: &Message| {
                let filters = &waiting.request.filters;
                filters.is_empty() || filters.iter().any(|filter| filter.matches(&message.metadata))
            };
            let was_served = std::mem::replace(&mut waiting.is_served, runnable.iter().any(serves));
            // A server checks again after its own workers' calls; it notifies no other when a queue is resumed.
            let looks_itself = waiting.server == server && call.is_by_worker() || matches!(call, Call::Configure(_));
            if !waiting.is_served || was_served || looks_itself {
                continue;
            }
            if !self.notified[waiting.server].again(shard, waiting.notified, self.patience).await {
                let Waiting { server, request, .. } = waiting;
                return Err(format!("server {server} waits for {request:?} and was not notified of a message for it"));
            }
        }
        Ok(())
    }

    async fn sweeper_is_notified(
        &mut self,
        queue: usize,
        (oracle, shard, now_ms): (&WholeOracle, &Shard, u64),
    ) -> Outcome {
        let notified = self.of_sweeper();
        let Some(Plan { at_ms, notified: before }) = self.plans[queue] else { return Ok(()) };
        let mut next_ms = u64::MAX;
        for state in State::ALL.into_iter().filter(|state| *state != State::Pending) {
            let first =
                oracle.list_messages(shard, state, "", 1).await.ok().and_then(|page| page.items.into_iter().next());
            next_ms = next_ms.min(first.map_or(u64::MAX, |message| message.due_ms));
        }
        // A sweeper whose time has come sweeps anyway.
        if now_ms < at_ms && next_ms < at_ms && !notified.again(shard, before, self.patience).await {
            return Err(format!("something is due at {next_ms}, and the sweeper, due at {at_ms}, was not notified"));
        }
        if notified.times(shard) > before {
            self.plans[queue] = None;
        }
        Ok(())
    }
}

/// What the next Dequeue could lease, by the lists.
async fn runnable(oracle: &WholeOracle, shard: &Shard) -> Vec<Message> {
    let Ok(queue) = oracle.get_queue(&shard.queue).await else { return Vec::new() };
    if queue.config.dequeue_blocked {
        return Vec::new();
    }
    let list = async |state| match oracle.list_messages(shard, state, "", usize::MAX).await {
        Ok(page) => page.items,
        Err(_) => Vec::new(),
    };
    let key = queue.config.queue_type.key();
    let value = |message: &Message| key.and_then(|key| message.metadata.get(key).map(str::to_owned));
    let locked: BTreeSet<String> = list(State::Running).await.iter().filter_map(value).collect();
    let mut pending = list(State::Pending).await;
    pending.retain(|message| value(message).is_none_or(|value| !locked.contains(&value)));
    pending
}
