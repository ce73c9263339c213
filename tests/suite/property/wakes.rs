//! Who must be told (Q18): a server that waits, when another makes something runnable for it; the sweeper, when
//! something falls due before it means to look.

use crate::property::call::{Answer, Call};
use crate::property::program::QUEUES;
use crate::property::world::Outcome;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tallystone_model::oracle::Oracle;
use tallystone_model::store::{DequeueRequest, Swept};
use tallystone_model::{Message, Shard, State, Store};
use tallystone_server::store::RedisStore;
use tokio::sync::Notify;

/// A server looks again by itself before the store forgets that it waits.
const LOOKS_AGAIN_MS: u64 = 60_000;

/// How often one server was told of each shard.
#[derive(Default)]
pub(super) struct Told {
    times: Mutex<HashMap<Shard, u64>>,
    changed: Notify,
}

impl Told {
    /// Listens to a server.
    pub(super) fn by(server: &RedisStore) -> Arc<Told> {
        let told = Arc::new(Told::default());
        let ear = told.clone();
        server.on_ready(Box::new(move |shard| {
            *ear.times.lock().unwrap_or_else(PoisonError::into_inner).entry(shard.clone()).or_default() += 1;
            ear.changed.notify_one();
        }));
        told
    }

    fn times(&self, shard: &Shard) -> u64 {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).get(shard).copied().unwrap_or(0)
    }

    /// Waits until it was told more often than that.
    async fn again(&self, shard: &Shard, than: u64, patience: Duration) -> bool {
        let told = async {
            while self.times(shard) <= than {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(patience, told).await.is_ok()
    }
}

/// A request that got nothing and is held by its server.
struct Waiting {
    queue: usize,
    server: usize,
    request: DequeueRequest,
    since_ms: u64,
    /// When it began to wait; when it asked, if its dequeue moved what fell due: that takes the mark of who waits, and
    /// the tell may be there before the answer. A server remembers what it is told while it asks.
    told: u64,
    /// Something was there for it after the last step.
    is_served: bool,
}

/// What the sweeper knows of a shard: when it means to look.
#[derive(Clone, Copy)]
struct Plan {
    at_ms: u64,
    told: u64,
}

/// Who waits for what in one run of a program.
pub(super) struct Wakes<'a> {
    told: &'a [Arc<Told>; 2],
    patience: Duration,
    waiting: Vec<Waiting>,
    plans: [Option<Plan>; QUEUES],
}

impl<'a> Wakes<'a> {
    /// Nobody waits. `patience` is how long a message from Redis to a server may take.
    pub(super) fn new(told: &'a [Arc<Told>; 2], patience: Duration) -> Self {
        Wakes { told, patience, waiting: Vec::new(), plans: [None; QUEUES] }
    }

    /// How often a server was told of a shard so far.
    pub(super) fn told(&self, server: usize, shard: &Shard) -> u64 {
        self.told[server].times(shard)
    }

    /// After a call that was answered alike: whoever had to be told was told. `told`: how often its server was told before
    /// it waits. `swept` is Redis's own answer.
    pub(super) async fn after(
        &mut self,
        (queue, server, told): (usize, usize, u64),
        (call, answer): (&Call, &Answer),
        swept: Option<&Swept>,
        (oracle, shard, now_ms): (&Oracle, &Shard, u64),
    ) -> Outcome {
        match (call, answer) {
            (Call::Create(_) | Call::Delete, _) => {
                self.waiting.retain(|waiting| waiting.queue != queue);
                self.plans[queue] = None;
            }
            (Call::Dequeue(requests, true), Answer::Dequeued(Ok(dequeued))) => {
                let hungry = requests.iter().zip(&dequeued.leases).filter(|(_, leases)| **leases == Ok(Vec::new()));
                let waiting = |request: &DequeueRequest| {
                    let request = request.clone();
                    Waiting { queue, server, request, since_ms: now_ms, told, is_served: false }
                };
                self.waiting.extend(hungry.map(|(request, _)| waiting(request)));
            }
            _ => {}
        }
        if let Some(swept) = swept {
            let at_ms = swept.next_ms.unwrap_or(u64::MAX);
            self.plans[queue] = Some(Plan { at_ms, told: self.told[server].times(shard) });
        }
        self.waiters_are_told((queue, server), call, (oracle, shard, now_ms)).await?;
        self.sweeper_is_told(queue, (oracle, shard, now_ms)).await
    }

    async fn waiters_are_told(
        &mut self,
        (queue, server): (usize, usize),
        call: &Call,
        (oracle, shard, now_ms): (&Oracle, &Shard, u64),
    ) -> Outcome {
        let told = |waiting: &Waiting| self.told[waiting.server].times(shard) > waiting.told;
        self.waiting.retain(|w| w.queue != queue || (now_ms < w.since_ms + LOOKS_AGAIN_MS && !told(w)));
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
            // A server looks again behind its own calls of workers; that a queue runs again it tells nobody.
            let looks_itself = waiting.server == server && call.is_by_worker() || matches!(call, Call::Configure(_));
            if !waiting.is_served || was_served || looks_itself {
                continue;
            }
            if !self.told[waiting.server].again(shard, waiting.told, self.patience).await {
                let Waiting { server, request, .. } = waiting;
                return Err(format!("server {server} waits for {request:?} and was not told of what is there for it"));
            }
        }
        Ok(())
    }

    async fn sweeper_is_told(&mut self, queue: usize, (oracle, shard, now_ms): (&Oracle, &Shard, u64)) -> Outcome {
        // Both servers hear the same.
        let told = &self.told[0];
        let Some(Plan { at_ms, told: before }) = self.plans[queue] else { return Ok(()) };
        let mut next_ms = u64::MAX;
        for state in State::ALL.into_iter().filter(|state| *state != State::Pending) {
            let first =
                oracle.list_messages(shard, state, "", 1).await.ok().and_then(|page| page.items.into_iter().next());
            next_ms = next_ms.min(first.map_or(u64::MAX, |message| message.due_ms));
        }
        // A sweeper whose time has come looks anyway.
        if now_ms < at_ms && next_ms < at_ms && !told.again(shard, before, self.patience).await {
            return Err(format!("something is due at {next_ms}, and the sweeper, who looks at {at_ms}, was not told"));
        }
        if told.times(shard) > before {
            self.plans[queue] = None;
        }
        Ok(())
    }
}

/// What the next Dequeue could lease, by the lists.
async fn runnable(oracle: &Oracle, shard: &Shard) -> Vec<Message> {
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
