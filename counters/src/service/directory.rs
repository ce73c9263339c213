//! Which namespaces there are, as this server believes; it learns of changes within a second, or when a shard says so.

use super::gather::{Gather, Pace};
use super::touches::Touches;
use crate::cache::Cache;
use crate::log::{Appended, Events, NewEvent};
use crate::names::{CounterName, NamespaceName};
use crate::redis::{Namespace, RedisNamespace, RedisNamespaces};
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What became of an event.
pub(super) enum Stored {
    /// This.
    Done(Result<Appended, Refusal>),
    /// Nothing: the namespace has a later revision, which is to be asked.
    Stale(NewEvent),
}

/// A script costs 24 µs before it has done anything: few of them, with many events each.
const EVENTS: Pace = Pace { wait: Duration::from_millis(1), in_flight: 2 };
/// A pipeline costs next to nothing, so none waits for company: what comes while two are on their way gathers.
const CACHED: Pace = Pace { wait: Duration::ZERO, in_flight: 2 };

impl From<Refusal> for Stored {
    fn from(refusal: Refusal) -> Stored {
        Stored::Done(Err(refusal))
    }
}

/// A namespace in use, as one revision has it.
pub(crate) struct Open {
    pub(crate) store: RedisNamespace,
    pub(super) events: Gather<NewEvent, Stored>,
    pub(super) cached: Gather<(CounterName, i64), Result<(), Refusal>>,
    pub(super) touches: Touches,
    /// A shard does not go by this revision.
    refused: AtomicBool,
    /// Cancelled when it is taken up anew.
    pub(super) until: CancellationToken,
}

impl Open {
    fn new(store: RedisNamespace) -> Open {
        let (log, cache) = (store.clone(), store.clone());
        Open {
            events: Gather::start(EVENTS, move |events: Vec<NewEvent>| {
                let log = log.clone();
                async move {
                    let results = log.append(&events).await;
                    let stored = |(result, event)| match result {
                        Err(Refusal::Stale) => Stored::Stale(event),
                        result => Stored::Done(result),
                    };
                    results.into_iter().zip(events).map(stored).collect()
                }
            }),
            cached: Gather::start(CACHED, move |adds: Vec<(CounterName, i64)>| {
                let cache = cache.clone();
                async move { cache.cache_add(&adds).await }
            }),
            touches: Touches::default(),
            refused: AtomicBool::new(false),
            until: CancellationToken::new(),
            store,
        }
    }

    /// A shard has refused what goes by this revision: there is a later one, or the shard has lost this one.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    fn is(&self, namespace: &Namespace) -> bool {
        self.store.revision() == namespace.revision && *self.store.config() == namespace.config
    }
}

/// The namespaces in use.
pub(super) struct Directory {
    pub(super) namespaces: RedisNamespaces,
    open: RwLock<HashMap<NamespaceName, Arc<Open>>>,
    /// One at a time: many calls find the same namespace changed.
    opening: Mutex<()>,
    news: mpsc::UnboundedSender<Arc<Open>>,
    opened: Mutex<mpsc::UnboundedReceiver<Arc<Open>>>,
}

impl Directory {
    pub(super) fn new(namespaces: RedisNamespaces) -> Directory {
        let (news, opened) = mpsc::unbounded_channel();
        let (open, opening) = Default::default();
        Directory { namespaces, open, opening, news, opened: Mutex::new(opened) }
    }

    pub(super) fn known(&self, name: &NamespaceName) -> Option<Arc<Open>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A namespace.
    pub(super) async fn get(&self, name: &NamespaceName) -> Result<Arc<Open>, Refusal> {
        match self.known(name) {
            Some(open) => Ok(open),
            None => self.other(name, None).await,
        }
    }

    /// A namespace otherwise than so, for who cannot go on with that.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: the registry has it no otherwise (yet).
    pub(super) async fn other(&self, name: &NamespaceName, than: Option<&Arc<Open>>) -> Result<Arc<Open>, Refusal> {
        let _one_at_a_time = self.opening.lock().await;
        if let Some(open) = self.known(name).filter(|open| than.is_none_or(|than| !Arc::ptr_eq(open, than))) {
            return Ok(open);
        }
        let not_found = || Refusal::NamespaceNotFound { namespace: name.to_string() };
        let found = self.namespaces.get(name).await?.ok_or_else(not_found)?;
        if than.is_some_and(|than| than.is(&found)) {
            return Err(Refusal::Stale);
        }
        self.take_up(found).await
    }

    /// A namespace otherwise than as a shard has refused it: there is a later revision, or the shard has lost this one.
    ///
    /// # Errors
    /// As [`other`](Directory::other); the next look has the shard told again.
    pub(super) async fn instead_of(&self, refused: &Arc<Open>) -> Result<Arc<Open>, Refusal> {
        refused.refuse();
        self.other(refused.store.name(), Some(refused)).await
    }

    async fn take_up(&self, namespace: Namespace) -> Result<Arc<Open>, Refusal> {
        let open = Arc::new(Open::new(self.namespaces.open(&namespace).await?));
        let mut all = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.insert(namespace.name, open.clone()) {
            before.until.cancel();
        }
        // Nobody listens where nothing runs beside the calls.
        let _ = self.news.send(open.clone());
        Ok(open)
    }

    /// Follows what other servers change, and tells of each revision that this one takes up.
    pub(super) async fn follow(&self, opened: impl Fn(Arc<Open>)) {
        let mut news = self.opened.lock().await;
        let mut every = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                Some(open) = news.recv() => opened(open),
                _ = every.tick() => {
                    if let Err(error) = self.look().await {
                        tracing::warn!(%error, "cannot look for changes of namespaces");
                    }
                }
            }
        }
    }

    async fn look(&self) -> Result<(), Refusal> {
        for namespace in self.namespaces.all().await? {
            let known = self.known(&namespace.name);
            let taken_up = match known.as_ref().filter(|open| open.is(&namespace)) {
                None => self.other(&namespace.name, known.as_ref()).await,
                Some(open) if open.refused.load(Ordering::Relaxed) => {
                    let (name, revision) = (&namespace.name, namespace.revision);
                    tracing::warn!(%name, revision, "the store has lost its last change; it is told again");
                    let _one_at_a_time = self.opening.lock().await;
                    self.take_up(namespace).await
                }
                Some(_) => continue,
            };
            match taken_up {
                // Changed once more meanwhile: the next look finds it.
                Ok(_) | Err(Refusal::Stale) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(())
    }

    /// Ends what runs for each namespace.
    pub(super) fn close(&self) {
        for open in self.open.read().unwrap_or_else(PoisonError::into_inner).values() {
            open.until.cancel();
        }
    }
}
