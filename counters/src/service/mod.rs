//! The counters as a service.
//!
//! What lives here: [`CounterService`], the calls (adds and clears in `append`, deletions in `delete`); `directory` and `open`, the namespaces
//! that it serves; `gather`, which sends calls of one millisecond to a partition of the
//! store together (`gathers`: to all partitions), and `slot`, where each of them waits; `fresh` and `exact_check`, reads that
//! wait for rollups, and `read_room`, their bound; `global`, counts in all regions; `recount`, audits and recounts; `crossings`, the feed of
//! passed thresholds; `top`, the highest counts; `background`, `touches` and
//! `trigger` (with `gates` and `idle`), the work between calls: rollups become jobs of the queue, reads hurry them, old
//! events go to the archive (`archiving`) or are dropped. What may not:
//! the wire (`api/`), the stores (`redis/`), and summing (`rollup`), which is the workers'.

mod append;
mod archiving;
mod background;
mod crossings;
mod delete;
mod directory;
mod exact_check;
mod fresh;
mod gates;
mod gather;
mod gathers;
mod global;
mod idle;
mod open;
mod read_room;
mod recount;
mod rollup_queue;
mod slot;
mod top;
mod touches;
mod trigger;

pub use append::ChangeRequest;
pub use archiving::{archive_queue, archive_queue_config};
pub use crossings::{CrossingsAfter, CrossingsFrom, CrossingsPosition};
pub use fresh::Freshness;
pub use recount::Audited;
pub use rollup_queue::{EXCLUSIVITY_KEY, queue_of, rollup_queue};
pub use tallystone_serving::WaitingBounds;
pub use top::{TOP_MAX, TopCounters};

use crate::cache::Cache;
use crate::checkpoints::{Checkpoint, Checkpoints, Deletions};
use crate::log::{Event, Events, WINDOW_MS};
use crate::names::{CounterName, NamespaceName, Token};
use crate::namespace::{CounterType, FUTURE_LIMIT_MS, NamespaceConfig};
use crate::read::accurate;
use crate::redis::{CounterPage, Namespace, RedisNamespace, RedisNamespaces};
use crate::refusal::Refusal;
use crate::sums::{KeptSums, Period, SumsPosition, sums};
use directory::Directory;
use futures::future::BoxFuture;
use idle::IdleNamespaces;
use open::OpenNamespace;
use read_room::ReadRoom;
use std::ops::Range;
use std::sync::Arc;
use tallystone_client::Client;
use tallystone_link::StoreStatus;
use tallystone_serving::WaitingRoom;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use top::TopWalks;

/// How long a rollup that is under way may take before a read hurries it.
const PATIENCE_MS: u64 = 1_000;
/// A read has a counter with nothing pending rolled up again when its last rollup is this old: its answers stay exact to
/// a recent time, and a dirty mark that was lost is made up for.
const IDLE_MS: u64 = 60_000;
/// The time range of a list of events whose begin is not given.
const LIST_MS: u64 = 600_000;

/// A count, and what its namespace promises of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The count.
    pub count: i64,
    /// The count holds every event before this time, and no more can come (Unix ms); 0: no rollup has run yet.
    pub exact_to_ms: u64,
    /// The type of the namespace's counters.
    pub counter_type: CounterType,
}

/// A place in the order of a counter's events: after the event of this time and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPosition {
    /// Unix ms.
    pub time_ms: u64,
    /// `None`: before the first event of this time.
    pub token: Option<Token>,
}

impl EventPosition {
    fn is_before(&self, event: &Event) -> bool {
        (self.time_ms, self.token.as_ref()) < (event.time_ms, Some(&event.token))
    }
}

/// A page of a counter's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// In the order of their times.
    pub events: Vec<Event>,
    /// Where the next page begins; `None`: this was the last page.
    pub next: Option<EventPosition>,
    /// Where the list ends, in Unix ms. The caller requests the next page with the same end: without one, the list would
    /// grow for as long as events come.
    pub end_ms: u64,
}

/// All counters of a Redis.
pub struct CounterService {
    directory: Directory,
    queue: Option<Client>,
    read_room: ReadRoom,
    top_walks: TopWalks,
    /// Cancelled when the server stops: ends the calls that wait.
    stopping: CancellationToken,
    /// Notified when a namespace was deleted.
    namespace_deleted: Notify,
}

impl CounterService {
    /// Serves the namespaces of a Redis. Due rollups become jobs in the queue behind this client; without one, none does.
    pub fn new(namespaces: RedisNamespaces, queue: Option<Client>, waiting: WaitingBounds) -> Arc<CounterService> {
        crate::metrics::describe();
        let directory = Directory::new(namespaces, WaitingRoom::new(waiting, crate::metrics::waiting));
        Arc::new(CounterService {
            directory,
            queue,
            read_room: ReadRoom::new(),
            top_walks: TopWalks::new(),
            stopping: CancellationToken::new(),
            namespace_deleted: Notify::new(),
        })
    }

    /// The work between calls, until the token is cancelled: changes of namespaces are noticed, due rollups become jobs,
    /// events past their retention and deleted namespaces go.
    pub fn run(self: Arc<Self>, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let idle = Arc::new(IdleNamespaces::new(self.directory.namespaces.clone(), &self.directory.room));
            let follow = self.directory.follow(|open| background::start(open, self.queue.clone(), &idle));
            let work = async { tokio::join!(follow, self.remove_deleted()) };
            stopping.run_until_cancelled(work).await;
            self.stopping.cancel();
            self.directory.close();
        })
    }

    /// What the last probe of the store found, and every change of that. `None`: it is not probed.
    pub fn store_status(&self) -> Option<watch::Receiver<StoreStatus>> {
        self.directory.namespaces.status()
    }

    /// The counts of counters of one namespace, in their order.
    pub async fn get(&self, namespace: &NamespaceName, counters: &[CounterName]) -> Result<Vec<Count>, Refusal> {
        let open = self.directory.get(namespace).await?;
        let store = &open.store;
        let counter_type = open.config.counter_type;
        let counts = match counter_type {
            CounterType::BestEffort => store.cache_get(counters).await?.into_iter().map(|count| (count, 0)).collect(),
            CounterType::Accurate => {
                let counts = accurate(store, store, counters).await?.into_iter();
                counts.map(|(count, checkpoint)| (count, checkpoint.shown_exact_to_ms())).collect()
            }
            CounterType::Eventual => {
                let checkpoints = store.read(counters).await?.into_iter();
                let shown = |checkpoint: Checkpoint| (checkpoint.count, checkpoint.shown_exact_to_ms());
                checkpoints.map(shown).collect::<Vec<(i64, u64)>>()
            }
        };
        if counter_type != CounterType::BestEffort {
            let exact_to = counts.iter().map(|(_, exact_to_ms)| *exact_to_ms);
            counters
                .iter()
                .zip(exact_to)
                .for_each(|(counter, exact_to_ms)| touch_if_behind(&open, counter, exact_to_ms));
        }
        Ok(counts.into_iter().map(|(count, exact_to_ms)| Count { count, exact_to_ms, counter_type }).collect())
    }

    /// A page of a namespace's counters.
    pub async fn list(&self, namespace: &NamespaceName, token: &str, count: usize) -> Result<CounterPage, Refusal> {
        self.directory.get(namespace).await?.store.list(token, count).await
    }

    /// The highest counts of the counters whose names begin with `prefix`, as the last walk over the namespace has found them
    /// (N16). The call waits for a walk until this time.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]: the walk has not ended yet, or too many are requested. A later call has its result.
    pub async fn top(
        &self,
        namespace: &NamespaceName,
        prefix: &str,
        until: Instant,
    ) -> Result<Arc<TopCounters>, Refusal> {
        let open = self.directory.get(namespace).await?;
        self.top_walks.found(&open.store, prefix, until, &self.stopping).await
    }

    /// A page of a counter's events within a time range (Unix ms); an end of 0: now; a start of 0: ten minutes before the
    /// end. `from`: where the page before has ended. An event that arrives between two pages is in a later page, or, if
    /// its place in the order is in a page that was read before, in none.
    pub async fn events(
        &self,
        namespace: &NamespaceName,
        counter: &CounterName,
        within_ms: Range<u64>,
        from: Option<EventPosition>,
        count: usize,
    ) -> Result<EventPage, Refusal> {
        let open = self.directory.get(namespace).await?;
        open.check_has_events()?;
        let future_ms = future_ms(&open.store);
        let end_ms = if within_ms.end == 0 { future_ms } else { within_ms.end.min(future_ms) };
        let begin_ms = if within_ms.start == 0 { end_ms.saturating_sub(LIST_MS) } else { within_ms.start };
        // Without those that a deletion has removed.
        let undeleted_from_ms = open.store.undeleted_from(counter).await?;
        let begin = EventPosition { time_ms: begin_ms.max(undeleted_from_ms), token: None };
        let begin_ms = begin.time_ms;
        let from = from.filter(|from| from.time_ms >= begin_ms).unwrap_or(begin);
        let (mut next, end) = (from.time_ms / WINDOW_MS, end_ms.div_ceil(WINDOW_MS));
        let mut page = EventPage { end_ms, ..EventPage::default() };
        // The first scan may find only events of the page before; the second one begins after them.
        for _ in 0..2 {
            if next >= end || page.events.len() == count {
                break;
            }
            let scan = open.store.scan(counter, next..end, count - page.events.len()).await?;
            let is_on_page = |event: &Event| from.is_before(event) && event.time_ms < end_ms;
            for event in scan.events.into_iter().filter(is_on_page) {
                if page.events.len() == count {
                    let last = page.events.last();
                    page.next = last.map(|Event { time_ms, token, .. }| EventPosition {
                        time_ms: *time_ms,
                        token: Some(token.clone()),
                    });
                    return Ok(page);
                }
                page.events.push(event);
            }
            next = scan.next_window;
        }
        page.next = (next < end).then_some(EventPosition { time_ms: next * WINDOW_MS, token: None });
        Ok(page)
    }

    /// A page of the sums of a counter's adds (N16). `within_ms` is extended to whole periods ([`SumsPosition::first`]). `from`:
    /// where the previous page has ended.
    pub async fn sums(
        &self,
        namespace: &NamespaceName,
        counter: &CounterName,
        period: Period,
        within_ms: Range<u64>,
        from: Option<SumsPosition>,
    ) -> Result<KeptSums, Refusal> {
        let open = self.directory.get(namespace).await?;
        open.check_has_events()?;
        let kept_from_ms = open.store.kept_from_ms();
        let from = from.unwrap_or_else(|| SumsPosition::first(period, within_ms, future_ms(&open.store)));
        Ok(KeptSums { page: sums(&open.store, counter, period, from).await?, kept_from_ms })
    }

    /// Creates or changes a namespace. `change` is given the configuration that stands, or that of a new namespace. When
    /// this returns, every shard follows the new revision; reads and BEST_EFFORT adds of other servers follow within a second.
    pub async fn put_namespace(
        &self,
        name: &NamespaceName,
        change: impl FnOnce(NamespaceConfig) -> Result<NamespaceConfig, Refusal>,
    ) -> Result<Namespace, Refusal> {
        let before = self.directory.namespaces.get(name).await?;
        let has_archive = self.directory.namespaces.archive().is_some();
        let new = || NamespaceConfig { archived: has_archive, ..NamespaceConfig::default() };
        let config = change(before.as_ref().map_or_else(new, |before| before.config.clone()))?;
        if config.archived && !has_archive {
            return Err(Refusal::invalid("archived", "must be false: this server has no archive (archive.url)"));
        }
        if before.as_ref().is_some_and(|before| before.config == config) {
            return before.ok_or(Refusal::Stale);
        }
        let has_regions = !config.regions.is_empty();
        let is_here = |region| config.regions.contains(region);
        if has_regions && !self.directory.namespaces.region().is_some_and(is_here) {
            let why = "must have the region of this server, which is set in its configuration (regions.name)";
            return Err(Refusal::invalid("regions", why));
        }
        if before.as_ref().is_none_or(|before| before.config.published_to != config.published_to) {
            self.check_unbound(name, &config).await?;
        }
        let namespace = self.directory.namespaces.replace(name, before.as_ref(), config).await?;
        if let Err(refusal) = self.directory.reopen(name, self.directory.cached(name).as_ref()).await {
            // The shards follow it already: this server opens it with the next call or poll.
            tracing::debug!(%name, %refusal, "a changed namespace is not open yet");
        }
        Ok(namespace)
    }

    /// Refuses a field of a counter set to which another namespace publishes: each would overwrite the counts of the other.
    async fn check_unbound(&self, name: &NamespaceName, config: &NamespaceConfig) -> Result<(), Refusal> {
        let Some(to) = &config.published_to else { return Ok(()) };
        let all = self.directory.namespaces.all().await?;
        let is_other = |other: &&Namespace| other.name != *name && other.config.published_to.as_ref() == Some(to);
        match all.iter().find(is_other) {
            Some(other) => {
                let why = format!("is the field '{}' of '{}', to which '{}' publishes", to.field, to.key, other.name);
                Err(Refusal::invalid("published_to", why))
            }
            None => Ok(()),
        }
    }

    /// A namespace.
    pub async fn namespace(&self, name: &NamespaceName) -> Result<Namespace, Refusal> {
        let found = self.directory.namespaces.get(name).await?;
        found.ok_or_else(|| Refusal::NamespaceNotFound { namespace: name.to_string() })
    }

    /// All namespaces, in the order of their names.
    pub async fn namespaces(&self) -> Result<Vec<Namespace>, Refusal> {
        self.directory.namespaces.all().await
    }
}

/// A time that no event can have yet, in Unix ms.
fn future_ms(store: &RedisNamespace) -> u64 {
    store.now_ms() + FUTURE_LIMIT_MS + WINDOW_MS
}

/// Has a counter rolled up sooner if its count is further behind than rollups leave it.
fn touch_if_behind(open: &OpenNamespace, counter: &CounterName, exact_to_ms: u64) {
    let config = &open.config;
    let behind_ms = open.store.now_ms().saturating_sub(exact_to_ms);
    if behind_ms > config.lag_ms() + WINDOW_MS + PATIENCE_MS {
        // A counter that was never rolled up may not exist: then there is nothing to refresh.
        let though_idle = exact_to_ms > 0 && behind_ms > config.due_after_ms() + IDLE_MS;
        open.touches.add(counter, though_idle);
    }
}
