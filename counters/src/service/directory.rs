//! The namespaces that this server serves. It learns of a change within a second, or when a shard refuses a revision.

use super::open::OpenNamespace;
use crate::names::NamespaceName;
use crate::redis::{DeletedNamespace, Namespace, NamespaceWatcher, POLL_EVERY, RedisNamespaces};
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tallystone_serving::WaitingRoom;
use tokio::sync::{Mutex, Notify, mpsc};

pub(super) struct Directory {
    pub(super) namespaces: RedisNamespaces,
    /// For what waits in all of them.
    pub(super) room: WaitingRoom,
    open: RwLock<HashMap<NamespaceName, Arc<OpenNamespace>>>,
    /// Held while a namespace is opened: many calls find the same one changed, and one of them opens it.
    opening: Mutex<()>,
    opened: mpsc::UnboundedSender<Arc<OpenNamespace>>,
    opened_receiver: Mutex<mpsc::UnboundedReceiver<Arc<OpenNamespace>>>,
}

impl Directory {
    pub(super) fn new(namespaces: RedisNamespaces, room: WaitingRoom) -> Directory {
        let (opened, receiver) = mpsc::unbounded_channel();
        let (open, opening) = Default::default();
        Directory { namespaces, room, open, opening, opened, opened_receiver: Mutex::new(receiver) }
    }

    /// The namespace, if this server has opened it.
    pub(super) fn cached(&self, name: &NamespaceName) -> Option<Arc<OpenNamespace>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The namespace, opened if need be.
    pub(super) async fn get(&self, name: &NamespaceName) -> Result<Arc<OpenNamespace>, Refusal> {
        match self.cached(name) {
            Some(open) => Ok(open),
            None => self.reopen(name, None).await,
        }
    }

    /// The namespace in its latest revision, for a caller that cannot use `outdated`.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: the registry has no later revision than `outdated` (yet).
    pub(super) async fn reopen(
        &self,
        name: &NamespaceName,
        outdated: Option<&Arc<OpenNamespace>>,
    ) -> Result<Arc<OpenNamespace>, Refusal> {
        let _one_at_a_time = self.opening.lock().await;
        if let Some(open) = self.cached(name).filter(|open| outdated.is_none_or(|old| !Arc::ptr_eq(open, old))) {
            return Ok(open);
        }
        let not_found = || Refusal::NamespaceNotFound { namespace: name.to_string() };
        let found = self.namespaces.get(name).await?.ok_or_else(not_found)?;
        if outdated.is_some_and(|outdated| outdated.is(&found)) {
            return Err(Refusal::Stale);
        }
        self.open(found).await
    }

    /// The namespace in the revision that its shards follow, after one of them has refused `refused`.
    ///
    /// # Errors
    /// As [`reopen`](Directory::reopen): the shard has lost the revision, and the next poll configures it again.
    pub(super) async fn instead_of(&self, refused: &Arc<OpenNamespace>) -> Result<Arc<OpenNamespace>, Refusal> {
        refused.set_refused();
        self.reopen(&refused.name, Some(refused)).await
    }

    /// The same, for a call that is of one incarnation of the namespace: its counters are others in a later one.
    ///
    /// # Errors
    /// As [`instead_of`](Directory::instead_of). [`Refusal::Stale`]: the namespace was deleted and created again.
    pub(super) async fn instead_of_the_same(
        &self,
        refused: &Arc<OpenNamespace>,
    ) -> Result<Arc<OpenNamespace>, Refusal> {
        let later = self.instead_of(refused).await?;
        if later.tag == refused.tag { Ok(later) } else { Err(Refusal::Stale) }
    }

    async fn open(&self, namespace: Namespace) -> Result<Arc<OpenNamespace>, Refusal> {
        let open = Arc::new(OpenNamespace::over(self.namespaces.open(&namespace).await?, &self.room));
        let mut all = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.insert(namespace.name, open.clone()) {
            before.until.cancel();
        }
        // A service that runs no background work has no receiver.
        let _ = self.opened.send(open.clone());
        Ok(open)
    }

    /// Follows the registry, and calls `opened` for every namespace that this server opens, by a poll or by a call.
    pub(super) async fn follow(&self, opened: impl Fn(Arc<OpenNamespace>)) {
        let mut receiver = self.opened_receiver.lock().await;
        let opened = async {
            while let Some(open) = receiver.recv().await {
                opened(open);
            }
        };
        let (mut watcher, never) = (NamespaceWatcher::new(self.namespaces.clone()), Notify::new());
        let poll = async {
            loop {
                let all = watcher.next(&never).await;
                if let Err(error) = self.close_deleted(&all).await {
                    tracing::debug!(%error, "cannot check whether a namespace was deleted");
                }
                // To open many takes seconds: a deletion must be noticed meanwhile. What is left follows the next poll.
                let _ = tokio::time::timeout(POLL_EVERY, self.update_all(all)).await;
            }
        };
        tokio::join!(opened, poll);
    }

    async fn update_all(&self, all: Vec<Namespace>) {
        for namespace in all {
            if let Err(error) = self.update(namespace).await {
                tracing::warn!(%error, "cannot open a changed namespace");
            }
        }
    }

    /// Closes the namespaces that are not among `all` any more, or only as another incarnation.
    async fn close_deleted(&self, all: &[Namespace]) -> Result<(), Refusal> {
        let missing: Vec<Arc<OpenNamespace>> = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            let found = |name: &NamespaceName| all.binary_search_by(|namespace| namespace.name.cmp(name)).ok();
            let is_missing = |open: &&Arc<OpenNamespace>| found(&open.name).is_none_or(|at| all[at].tag() != open.tag);
            open.values().filter(is_missing).cloned().collect()
        };
        for open in missing {
            // It may have been created since the registry was read.
            let _one_at_a_time = self.opening.lock().await;
            let found = self.namespaces.get(&open.name).await?;
            let is_open = self.cached(&open.name).is_some_and(|now| Arc::ptr_eq(&now, &open));
            if is_open && found.is_none_or(|found| found.tag() != open.tag) {
                self.drop_open(&open.name);
            }
        }
        Ok(())
    }

    /// Deletes a namespace: this server no longer serves it when this returns.
    pub(super) async fn delete(
        &self,
        name: &NamespaceName,
        incarnation: Option<u64>,
    ) -> Result<DeletedNamespace, Refusal> {
        let deleted = self.namespaces.delete(name, incarnation).await?;
        let _one_at_a_time = self.opening.lock().await;
        if self.cached(name).is_some_and(|open| open.tag == deleted.namespace.tag()) {
            self.drop_open(name);
        }
        Ok(deleted)
    }

    fn drop_open(&self, name: &NamespaceName) {
        let mut all = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.remove(name) {
            open.until.cancel();
        }
    }

    async fn update(&self, namespace: Namespace) -> Result<(), Refusal> {
        let cached = self.cached(&namespace.name);
        let opened = match cached.as_ref().filter(|open| open.is(&namespace)) {
            None => self.reopen(&namespace.name, cached.as_ref()).await,
            Some(open) if open.is_refused() => {
                let (name, revision) = (&namespace.name, namespace.revision);
                tracing::warn!(%name, revision, "a shard has lost its last configuration change; configuring it again");
                let _one_at_a_time = self.opening.lock().await;
                self.open(namespace).await
            }
            Some(_) => return Ok(()),
        };
        match opened {
            // Changed once more meanwhile: the next poll finds it.
            Ok(_) | Err(Refusal::Stale) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Ends the background work of every namespace.
    pub(super) fn close(&self) {
        for open in self.open.read().unwrap_or_else(PoisonError::into_inner).values() {
            open.until.cancel();
        }
    }
}
