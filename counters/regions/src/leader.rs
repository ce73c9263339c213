//! The process that publishes and merges, and the namespaces with regions that it serves.
//!
//! A lease in Redis decides which process works. A term is the time for which one process holds it without a break; how far the
//! topics are merged is stored under the term's lease only. What else two processes write at once is merged, and does no harm.

use crate::metrics::Failing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tallystone_counters::redis::{Namespace, NamespaceWatcher, RedisNamespace, RedisNamespaces};
use tallystone_counters::{NamespaceName, Refusal};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// The length of the lease.
const LEASE: Duration = Duration::from_secs(10);
/// Between two renewals, and between two attempts to begin a term.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// A term of this process.
pub(crate) struct Term {
    /// Its name in Redis.
    pub(crate) name: String,
    /// The namespaces with regions, in their latest revisions.
    pub(crate) namespaces: BTreeMap<NamespaceName, RedisNamespace>,
}

/// `None`: this process has no term, or its lease may be over.
pub(crate) type Led = Option<Arc<Term>>;

/// Holds the lease, and follows the registry.
pub(crate) struct Leader {
    namespaces: RedisNamespaces,
    /// Whether there are namespaces with regions.
    is_needed: watch::Sender<bool>,
    /// The name of the term.
    term: watch::Sender<Option<String>>,
    /// Notified when a term has begun.
    begun: Notify,
    led: watch::Sender<Led>,
}

impl Leader {
    pub(crate) fn new(namespaces: RedisNamespaces) -> Leader {
        let (is_needed, term, led) = (watch::Sender::new(false), watch::Sender::new(None), watch::Sender::new(None));
        Leader { namespaces, is_needed, term, begun: Notify::new(), led }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Led> {
        self.led.subscribe()
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        tokio::join!(self.hold(), self.follow());
    }

    /// Has a term after the other, while there are namespaces with regions.
    async fn hold(&self) {
        let mut is_needed = self.is_needed.subscribe();
        loop {
            if is_needed.wait_for(|is_needed| *is_needed).await.is_err() {
                return;
            }
            // If the answer to an attempt is lost, the term may have begun.
            let term = format!("{:016x}", rand::random::<u64>());
            let mut held_at = Instant::now();
            while !is_held(self.namespaces.begin_term(&term, LEASE.as_millis() as u64).await) {
                sleep(RENEW_EVERY).await;
                held_at = Instant::now();
            }
            self.term.send_replace(Some(term.clone()));
            self.begun.notify_one();
            self.renew(&term, held_at, &is_needed).await;
            self.term.send_replace(None);
            self.led.send_if_modified(|led| led.take().is_some());
        }
    }

    /// Returns when the lease may be over: Redis counts it from a later time than this process.
    async fn renew(&self, term: &str, mut held_at: Instant, is_needed: &watch::Receiver<bool>) {
        let mut renew_at = held_at + RENEW_EVERY;
        while *is_needed.borrow() {
            let over_at = held_at + LEASE;
            sleep_until(renew_at.min(over_at)).await;
            let sent_at = Instant::now();
            match timeout_at(over_at, self.namespaces.renew_term(term, LEASE.as_millis() as u64)).await {
                Ok(Ok(true)) => held_at = sent_at,
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(error)) => tracing::debug!(%error, "cannot renew the lease of the regions"),
            }
            renew_at = sent_at + RENEW_EVERY;
        }
    }

    /// Opens the namespaces with regions, and leads them while this process has a term.
    async fn follow(&self) {
        let mut watcher = NamespaceWatcher::new(self.namespaces.clone());
        let mut open: BTreeMap<NamespaceName, (Namespace, RedisNamespace)> = BTreeMap::new();
        let mut failing = Failing::to("open");
        loop {
            let mut all = watcher.next(&self.begun).await;
            let region = self.namespaces.region();
            all.retain(|namespace| region.is_some_and(|region| namespace.config.regions.contains(region)));
            self.is_needed.send_replace(!all.is_empty());
            if self.term.borrow().is_none() {
                open.clear();
                failing.show(BTreeSet::new());
                continue;
            }
            let (is_changed, failed) = self.open_all(all, &mut open).await;
            failing.show(failed);
            // It may have ended meanwhile.
            let Some(name) = self.term.borrow().clone() else { continue };
            let is_led = self.led.borrow().as_ref().is_some_and(|led| led.name == name);
            if is_changed || !is_led {
                let namespaces = open.iter().map(|(name, (_, store))| (name.clone(), store.clone())).collect();
                self.led.send_replace(Some(Arc::new(Term { name, namespaces })));
            }
        }
    }

    /// Opens the namespaces in their latest revisions. Returns whether one has changed, and which cannot be opened.
    async fn open_all(
        &self,
        all: Vec<Namespace>,
        open: &mut BTreeMap<NamespaceName, (Namespace, RedisNamespace)>,
    ) -> (bool, BTreeSet<NamespaceName>) {
        let before = open.len();
        open.retain(|name, _| all.iter().any(|namespace| namespace.name == *name));
        let (mut is_changed, mut failed) = (open.len() != before, BTreeSet::new());
        for namespace in all {
            if open.get(&namespace.name).is_some_and(|(known, _)| *known == namespace) {
                continue;
            }
            match self.namespaces.open(&namespace).await {
                Ok(store) => {
                    open.insert(namespace.name.clone(), (namespace, store));
                    is_changed = true;
                }
                Err(error) => {
                    tracing::debug!(namespace = %namespace.name, %error, "cannot publish its counters yet");
                    failed.insert(namespace.name);
                }
            }
        }
        (is_changed, failed)
    }
}

fn is_held(answer: Result<bool, Refusal>) -> bool {
    answer.unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot begin a term of the regions");
        false
    })
}
