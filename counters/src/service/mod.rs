//! The counters as a service: which namespaces there are, adds gathered for a millisecond where they are events, reads
//! that hurry rollups on, rollups made due in the queue, and retention.
//!
//! What lives here: [`CounterService`] and what runs beside it. What may not: the wire (`api/`), the store (`redis/`), and
//! summing (`rollup`): that is the workers'.

mod directory;
mod gather;
mod rollup_queue;
mod touches;
mod trigger;

pub use rollup_queue::{EXCLUSIVITY_KEY, queue_of, rollup_queue};

use crate::cache::Cache;
use crate::checkpoints::Checkpoints;
use crate::log::{Appended, Change, Event, Events, NewEvent, WINDOW_MS};
use crate::names::{CounterName, NamespaceName, Token};
use crate::namespace::{CounterType, NamespaceConfig, SHARDS};
use crate::read::accurate;
use crate::redis::{CounterPage, Namespace, RedisNamespaces};
use crate::refusal::Refusal;
use directory::{Directory, Open, Stored};
use futures::future::BoxFuture;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::Client;
use tallystone_model::Applied;
use tokio_util::sync::CancellationToken;

/// How often a call is made anew because the namespace has been changed meanwhile.
const STALE_TRIES: usize = 5;
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// A change as its caller asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// Of which counter.
    pub counter: CounterName,
    /// What is to be done.
    pub change: Change,
    /// Which event it is, and when it happened, in Unix ms; `None`: it happens when it is counted, and nobody says it
    /// twice.
    pub event: Option<(Token, u64)>,
}

impl From<ChangeRequest> for NewEvent {
    fn from(ChangeRequest { counter, change, event }: ChangeRequest) -> NewEvent {
        let (token, time_ms) = match event {
            Some((token, time_ms)) => (token, Some(time_ms)),
            None => (Token::drawn(), None),
        };
        NewEvent { counter, token, time_ms, change }
    }
}

/// A count, and what is promised of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The number.
    pub count: i64,
    /// Nothing that happened before this time can come any more, and the count holds all of it; 0: never rolled up.
    pub exact_to_ms: u64,
    /// What is promised.
    pub counter_type: CounterType,
}

/// Some events of a counter, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// In the order of their times.
    pub events: Vec<Event>,
    /// The window that the next page begins with, and how many of its events are before it; `None`: that was all.
    pub next: Option<(u64, usize)>,
    /// Where the list ends, in Unix ms: the next page is asked for with the same, or it would go on for as long as
    /// something comes.
    pub end_ms: u64,
}

/// All counters of a Redis.
pub struct CounterService {
    directory: Directory,
    queue: Option<Client>,
}

impl CounterService {
    /// Serves the namespaces of a Redis, and makes rollups due in the queue behind this client; without one, nobody is told.
    pub fn new(namespaces: RedisNamespaces, queue: Option<Client>) -> Arc<CounterService> {
        Arc::new(CounterService { directory: Directory::new(namespaces), queue })
    }

    /// What runs beside the calls, until the token is cancelled: changes of namespaces are noticed, rollups become due,
    /// and what is past its retention goes.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_beside(stopping))
    }

    async fn run_beside(self: Arc<Self>, stopping: CancellationToken) {
        let follow = self.directory.follow(|open| {
            let (until, counters) = (open.until.clone(), self.clone());
            tokio::spawn(until.clone().run_until_cancelled_owned(touches::run(open.clone())));
            tokio::spawn(until.clone().run_until_cancelled_owned(prune(open.clone())));
            if let Some(queue) = &counters.queue {
                tokio::spawn(until.run_until_cancelled_owned(trigger::run(open, queue.clone())));
            }
        });
        stopping.run_until_cancelled(follow).await;
        self.directory.close();
    }

    /// Adds and clears, of one namespace; of each, whether it counts.
    pub async fn append(
        &self,
        namespace: &NamespaceName,
        asked: Vec<ChangeRequest>,
    ) -> Result<Vec<Result<Appended, Refusal>>, Refusal> {
        let mut open = self.directory.get(namespace).await?;
        let results = match open.store.config().counter_type {
            CounterType::BestEffort => append_cached(&open, asked).await,
            CounterType::Eventual | CounterType::Accurate => {
                let clears_now = asked.iter().any(|asked| asked.change == Change::Clear && asked.event.is_none());
                if clears_now {
                    // What has happened in any shard happened before them, whatever clocks show.
                    let latest_ms = self.tick(&mut open, 0).await?;
                    self.tick(&mut open, latest_ms).await?;
                }
                let mut results = vec![Err(Refusal::Stale); asked.len()];
                let mut numbers: Vec<usize> = (0..asked.len()).collect();
                let mut events: Vec<NewEvent> = asked.into_iter().map(NewEvent::from).collect();
                for tries_left in (0..STALE_TRIES).rev() {
                    let (mut stale, mut again) = (Vec::new(), Vec::new());
                    for (number, stored) in numbers.into_iter().zip(open.events.ask(events).await) {
                        match stored {
                            Stored::Done(result) => results[number] = result,
                            Stored::Stale(event) => {
                                stale.push(number);
                                again.push(event);
                            }
                        }
                    }
                    (numbers, events) = (stale, again);
                    if numbers.is_empty() || tries_left == 0 {
                        break;
                    }
                    open = match self.directory.instead_of(&open).await {
                        Ok(open) => open,
                        Err(refusal) => {
                            // Of those only: what has been stored is.
                            numbers.iter().for_each(|number| results[*number] = Err(refusal.clone()));
                            break;
                        }
                    };
                }
                if clears_now {
                    self.acknowledge_clears(&mut open, &mut results).await;
                }
                results
            }
        };
        crate::metrics::added(&results);
        Ok(results)
    }

    /// A clear is acknowledged when it is sure that whatever happens from now on, in any shard, happens after it.
    async fn acknowledge_clears(&self, open: &mut Arc<Open>, results: &mut [Result<Appended, Refusal>]) {
        let Some(latest_ms) = results.iter().flatten().map(|appended| appended.time_ms).max() else { return };
        if let Err(refusal) = self.tick(open, latest_ms + 1).await {
            let why = refusal.to_string();
            let unknown = || Refusal::Unavailable { applied: Applied::Unknown, why: why.clone() };
            results.iter_mut().filter(|result| result.is_ok()).for_each(|result| *result = Err(unknown()));
        }
    }

    async fn tick(&self, open: &mut Arc<Open>, at_least_ms: u64) -> Result<u64, Refusal> {
        for _ in 0..STALE_TRIES {
            match open.store.tick(at_least_ms).await {
                Err(Refusal::Stale) => *open = self.directory.instead_of(open).await?,
                // It counts nothing.
                Err(Refusal::Unavailable { why, .. }) => {
                    return Err(Refusal::Unavailable { applied: Applied::No, why });
                }
                ticked => return ticked,
            }
        }
        Err(Refusal::Stale)
    }

    /// The counts of one namespace.
    pub async fn get(&self, namespace: &NamespaceName, counters: &[CounterName]) -> Result<Vec<Count>, Refusal> {
        let open = self.directory.get(namespace).await?;
        let counter_type = open.store.config().counter_type;
        if counter_type == CounterType::BestEffort {
            let counts = open.store.cache_get(counters).await?;
            return Ok(counts.into_iter().map(|count| Count { count, exact_to_ms: 0, counter_type }).collect());
        }
        let counts: Vec<Count> = match counter_type {
            CounterType::Accurate => accurate(&open.store, &open.store, counters).await?,
            _ => {
                open.store.read(counters).await?.into_iter().map(|checkpoint| (checkpoint.count, checkpoint)).collect()
            }
        }
        .into_iter()
        .map(|(count, checkpoint)| Count { count, exact_to_ms: checkpoint.exact_to_ms, counter_type })
        .collect();
        for (counter, count) in counters.iter().zip(&counts) {
            open.touches.read(counter, count.exact_to_ms, &open.store);
        }
        Ok(counts)
    }

    /// Some of a namespace's counters.
    pub async fn list(&self, namespace: &NamespaceName, token: &str, count: usize) -> Result<CounterPage, Refusal> {
        self.directory.get(namespace).await?.store.list(token, count).await
    }

    /// A counter's events within a time; an end of 0: now, a beginning of 0: ten minutes before the end.
    pub async fn events(
        &self,
        namespace: &NamespaceName,
        counter: &CounterName,
        within_ms: Range<u64>,
        from: Option<(u64, usize)>,
        count: usize,
    ) -> Result<EventPage, Refusal> {
        let open = self.directory.get(namespace).await?;
        if open.store.config().counter_type == CounterType::BestEffort {
            return Err(Refusal::invalid("namespace", "is BEST_EFFORT: it keeps no events"));
        }
        let future_ms = open.store.now_ms() + crate::namespace::FUTURE_LIMIT_MS + WINDOW_MS;
        let end_ms = if within_ms.end == 0 { future_ms } else { within_ms.end.min(future_ms) };
        let begin_ms = if within_ms.start == 0 { end_ms.saturating_sub(600_000) } else { within_ms.start };
        let (first, seen) = from.unwrap_or((begin_ms / WINDOW_MS, 0));
        let end = end_ms.div_ceil(WINDOW_MS);
        let mut page = EventPage { end_ms, ..EventPage::default() };
        if first >= end {
            return Ok(page);
        }
        let scan = open.store.scan(counter, first..end, count.saturating_add(seen)).await?;
        let (mut window, mut number) = (first, 0);
        for event in scan.events {
            if event.time_ms / WINDOW_MS != window {
                (window, number) = (event.time_ms / WINDOW_MS, 0);
            }
            number += 1;
            if (window == first && number <= seen) || !(begin_ms..end_ms).contains(&event.time_ms) {
                continue;
            }
            if page.events.len() == count {
                page.next = Some((window, number - 1));
                return Ok(page);
            }
            page.events.push(event);
        }
        page.next = (scan.next_window < end).then_some((scan.next_window, 0));
        Ok(page)
    }

    /// Makes a namespace or changes it. When this answers, every server's events go by it; reads, and adds to
    /// best-effort counters, within a second.
    pub async fn put_namespace(
        &self,
        name: &NamespaceName,
        change: impl FnOnce(Option<NamespaceConfig>) -> Result<NamespaceConfig, Refusal>,
    ) -> Result<Namespace, Refusal> {
        let before = self.directory.namespaces.get(name).await?;
        let config = change(before.as_ref().map(|before| before.config.clone()))?;
        if before.as_ref().is_some_and(|before| before.config == config) {
            return before.ok_or(Refusal::Stale);
        }
        let namespace = self.directory.namespaces.replace(name, before.as_ref(), config).await?;
        if let Err(refusal) = self.directory.other(name, self.directory.known(name).as_ref()).await {
            // It stands, and the shards go by it: this server finds that with the next call or look.
            tracing::debug!(%name, %refusal, "a change is not taken up yet");
        }
        Ok(namespace)
    }

    /// One of them.
    pub async fn namespace(&self, name: &NamespaceName) -> Result<Namespace, Refusal> {
        let found = self.directory.namespaces.get(name).await?;
        found.ok_or_else(|| Refusal::NamespaceNotFound { namespace: name.to_string() })
    }

    /// All of them.
    pub async fn namespaces(&self) -> Result<Vec<Namespace>, Refusal> {
        self.directory.namespaces.all().await
    }
}

async fn append_cached(open: &Open, asked: Vec<ChangeRequest>) -> Vec<Result<Appended, Refusal>> {
    // Cleared first and then added to: a batch is not in any order.
    let appended = Appended { time_ms: 0, duplicate: false };
    let mut results = vec![Ok(appended); asked.len()];
    let (mut cleared, mut clears, mut added) = <(Vec<usize>, Vec<CounterName>, Vec<usize>)>::default();
    let mut adds = Vec::with_capacity(asked.len());
    for (number, ChangeRequest { counter, change, .. }) in asked.into_iter().enumerate() {
        match change {
            Change::Clear => {
                cleared.push(number);
                clears.push(counter);
            }
            Change::Add(delta) => {
                added.push(number);
                adds.push((counter, delta));
            }
        }
    }
    if !clears.is_empty() {
        for (number, result) in cleared.into_iter().zip(open.store.cache_clear(&clears).await) {
            results[number] = result.map(|()| appended);
        }
    }
    if !adds.is_empty() {
        for (number, result) in added.into_iter().zip(open.cached.ask(adds).await) {
            results[number] = result.map(|()| appended);
        }
    }
    results
}

/// Drops what is past its retention, for as long as this revision of the namespace holds.
async fn prune(open: Arc<Open>) {
    let mut every = tokio::time::interval(PRUNE_EVERY);
    loop {
        every.tick().await;
        for shard in 0..SHARDS {
            match open.store.prune(shard).await {
                Ok(0) => {}
                Ok(slices) => tracing::info!(namespace = %open.store.name(), shard, slices, "slices of events dropped"),
                Err(Refusal::Stale) => return open.refuse(),
                Err(error) => tracing::warn!(namespace = %open.store.name(), shard, %error, "cannot drop old events"),
            }
        }
    }
}
