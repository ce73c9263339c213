//! A namespace that this server serves, as one revision has it: its stores, and what gathers calls for them.

use super::exact_check::{Exact, ExactChecks, Required};
use super::gather::{Gather, Pace};
use super::gathers::Gathers;
use super::slot::Wanted;
use super::touches::Touches;
use crate::cache::Cache;
use crate::log::{Appended, Events, NewEvent, Unlogged};
use crate::names::{CounterName, NamespaceName};
use crate::namespace::{CounterType, NamespaceConfig};
use crate::redis::{Namespace, RedisNamespace};
use crate::refusal::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_serving::{WaitingBounds, WaitingRoom};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

/// A script costs 24 µs before it has done anything: few calls, with many events each.
const EVENTS: Pace = Pace { wait: Duration::from_millis(1), in_flight: 2 };
/// A pipeline costs next to nothing, so no add waits for others: what arrives while two pipelines are under way gathers.
const CACHED: Pace = Pace { wait: Duration::ZERO, in_flight: 2 };

/// Reads that wait for rollups are checked together, one flush after the other.
const CHECKS: Pace = Pace { wait: Duration::from_millis(25), in_flight: 1 };

/// Late retries go to the archive together, one read after the other: a namespace with many takes no place of others.
const LATE: Pace = Pace { wait: Duration::from_millis(5), in_flight: 1 };

/// Late retries of a namespace that wait for the archive: some megabytes.
const LATE_BOUNDS: WaitingBounds = WaitingBounds { items_max: 10_000, bytes_max: 16 << 20 };

/// The outcome of an event that went to the store.
pub(super) enum Stored {
    /// The store's reply.
    Done(Result<Appended, Refusal>),
    /// Nothing has changed: a shard follows another revision. The event goes to that one next.
    Stale(NewEvent),
    /// The archive has the answer.
    Late(NewEvent),
}

impl From<Refusal> for Stored {
    fn from(refusal: Refusal) -> Stored {
        Stored::Done(Err(refusal))
    }
}

impl From<Refusal> for Result<Appended, Refusal> {
    fn from(refusal: Refusal) -> Result<Appended, Refusal> {
        Err(refusal)
    }
}

/// Retries of events that have left the store.
pub(super) struct LateRetries {
    room: WaitingRoom,
    gather: Gather<NewEvent, Result<Appended, Refusal>>,
}

impl LateRetries {
    fn of(log: impl Events + Clone + 'static) -> LateRetries {
        let room = WaitingRoom::new(LATE_BOUNDS, |_, _| {});
        let gather = Gather::start(LATE, room.clone(), move |events: Vec<NewEvent>, _| {
            let log = log.clone();
            async move { log.find_archived(&events).await }
        });
        LateRetries { room, gather }
    }

    /// The answers of the archive.
    ///
    /// # Errors
    /// For each: [`Refusal::Overloaded`], too many wait already; or as `find_archived`.
    pub(super) async fn answers(&self, events: Vec<NewEvent>) -> Vec<Result<Appended, Refusal>> {
        let (count, bytes) = (events.len(), events.len() * size_of::<NewEvent>());
        match self.room.take(count, bytes) {
            Ok(place) => self.gather.call(events, &Arc::new(place)).await,
            Err(overloaded) => vec![Err(overloaded.into()); count],
        }
    }
}

/// Its parts use only the traits of the store that they name.
pub(super) struct OpenNamespace<S = RedisNamespace> {
    pub(super) name: NamespaceName,
    /// What its rollup queues are named after.
    pub(super) tag: String,
    pub(super) config: NamespaceConfig,
    pub(super) store: S,
    pub(super) events: Gathers<NewEvent, Stored>,
    pub(super) cached: Gathers<(CounterName, i64), Result<(), Refusal>>,
    pub(super) late: LateRetries,
    pub(super) exact_checks: Gathers<Required, Result<Exact, Refusal>>,
    pub(super) touches: Arc<Touches>,
    /// Notified when a counter is dirty.
    pub(super) dirtied: Notify,
    refused: AtomicBool,
    /// Cancelled when the namespace is opened again: ends its background work.
    pub(super) until: CancellationToken,
}

impl OpenNamespace {
    pub(super) fn over(store: RedisNamespace, room: &WaitingRoom) -> OpenNamespace {
        let (name, tag, config) = (store.name().clone(), store.tag().to_owned(), store.config().clone());
        let touches = Arc::<Touches>::default();
        OpenNamespace {
            name,
            tag,
            config,
            events: {
                let (homes, room) = (store.clone(), room.clone());
                let log = store.clone();
                Gathers::new(
                    store.homes(),
                    move |event: &NewEvent| homes.home_of_event(event),
                    move || gather_events(log.clone(), room.clone()),
                )
            },
            cached: {
                let (homes, room) = (store.clone(), room.clone());
                let cache = store.clone();
                Gathers::new(
                    store.homes(),
                    move |(counter, _): &(CounterName, i64)| homes.home_of(counter),
                    move || gather_cached(cache.clone(), room.clone()),
                )
            },
            exact_checks: {
                let (homes, room) = (store.clone(), room.clone());
                let checks = Arc::new(ExactChecks::new(store.clone(), store.config().counter_type, touches.clone()));
                Gathers::new(
                    store.homes(),
                    move |(counter, _): &Required| homes.home_of(counter),
                    move || gather_checks(checks.clone(), room.clone()),
                )
            },
            late: LateRetries::of(store.clone()),
            touches,
            dirtied: Notify::new(),
            refused: AtomicBool::new(false),
            until: CancellationToken::new(),
            store,
        }
    }

    /// Whether this is the namespace as the registry has it. A registry that has lost its last change gives that
    /// change's revision to another one, so the configuration is compared, too.
    pub(super) fn is(&self, namespace: &Namespace) -> bool {
        self.store.revision() == namespace.revision && self.config == namespace.config && self.tag == namespace.tag()
    }
}

fn gather_events(log: impl Events + Clone + 'static, room: WaitingRoom) -> Gather<NewEvent, Stored> {
    Gather::start(EVENTS, room, move |events: Vec<NewEvent>, wanted: Wanted<NewEvent>| {
        let log = log.clone();
        async move {
            let results = log.append_while(&events, &|number| wanted.is_wanted(number)).await;
            let stored = |(result, event)| match result {
                Err(Unlogged::Refused(Refusal::Stale)) => Stored::Stale(event),
                Err(Unlogged::Refused(refusal)) => refusal.into(),
                Err(Unlogged::Archived) => Stored::Late(event),
                Ok(appended) => Stored::Done(Ok(appended)),
            };
            results.into_iter().zip(events).map(stored).collect()
        }
    })
}

fn gather_cached(
    cache: impl Cache + Clone + 'static,
    room: WaitingRoom,
) -> Gather<(CounterName, i64), Result<(), Refusal>> {
    Gather::start(CACHED, room, move |adds: Vec<(CounterName, i64)>, _| {
        let cache = cache.clone();
        async move { cache.cache_add(&adds).await }
    })
}

fn gather_checks(
    checks: Arc<ExactChecks<RedisNamespace>>,
    room: WaitingRoom,
) -> Gather<Required, Result<Exact, Refusal>> {
    Gather::start(CHECKS, room, move |required: Vec<Required>, _| {
        let checks = checks.clone();
        async move { checks.check(&required).await }
    })
}

impl<S> OpenNamespace<S> {
    /// Distinguishes the namespace from those that had its name before.
    pub(super) fn hash(&self) -> u64 {
        xxh3_64(self.tag.as_bytes())
    }

    /// # Errors
    /// [`Refusal::Invalid`]: its counters have no events.
    pub(super) fn check_has_events(&self) -> Result<(), Refusal> {
        match self.config.counter_type {
            CounterType::BestEffort => Err(Refusal::invalid("namespace", "is BEST_EFFORT, so it has no events")),
            CounterType::Eventual | CounterType::Accurate => Ok(()),
        }
    }

    /// Notes that a shard has refused this revision: there is a later one, or the shard has lost this one.
    pub(super) fn set_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether a shard has refused this revision.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}
