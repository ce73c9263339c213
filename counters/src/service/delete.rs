//! Counters and namespaces are deleted (N14).

use super::append::STALE_TRIES;
use super::open::OpenNamespace;
use super::{ChangeRequest, CounterService};
use crate::checkpoints::Deletions;
use crate::log::{Appended, Bounds, Change, Labels};
use crate::names::{CounterName, NamespaceName, Token};
use crate::namespace::CounterType;
use crate::redis::{DeletedNamespace, POLL_EVERY};
use crate::refusal::Refusal;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::Client;

/// Between two searches for deleted namespaces whose keys have not gone: another server may have died while it removed them.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
const QUEUES_PAGE: u32 = 1_000;
/// How long a server may take to act on a poll of the registry.
const FOLLOW: Duration = Duration::from_millis(500);

impl CounterService {
    /// Deletes a counter: it answers as one that was never written. What was added up to the time of the call, or of
    /// `event`, never counts again; later adds count from 0. A clear of that time is in the log first, so that a call
    /// which dies half-way has cleared the counter, and a repetition of it is recognized.
    ///
    /// # Errors
    /// Those of a clear. [`Refusal::Unavailable`] with [`Applied::Unknown`](tallystone_model::Applied::Unknown): also if
    /// the counter was cleared but not deleted yet.
    pub async fn delete_counter(
        &self,
        namespace: &NamespaceName,
        counter: &CounterName,
        event: Option<(Token, u64)>,
    ) -> Result<Appended, Refusal> {
        let open = self.directory.get(namespace).await?;
        let (counter_name, bounds, labels) = (counter.clone(), Bounds::default(), Labels::default());
        let request = ChangeRequest { counter: counter_name, change: Change::Clear, event, bounds, labels };
        let cleared = self.append(namespace, vec![request]).await?.remove(0)?;
        if open.config.counter_type != CounterType::BestEffort {
            self.mark_deleted(open, counter, cleared.time_ms).await.map_err(Refusal::after_a_change)?;
        }
        Ok(cleared)
    }

    /// In this incarnation of the namespace or not at all: the clear is in no other one.
    async fn mark_deleted(
        &self,
        mut open: Arc<OpenNamespace>,
        counter: &CounterName,
        cleared_ms: u64,
    ) -> Result<(), Refusal> {
        for _ in 0..STALE_TRIES {
            match open.store.delete(counter, cleared_ms).await {
                Err(Refusal::Stale) => open = self.directory.instead_of_the_same(&open).await?,
                deleted => return deleted,
            }
        }
        Err(Refusal::Stale)
    }

    /// Deletes a namespace with its counters. It returns when every server has noticed, after 1.5 s: an add through any of
    /// them then belongs to a later namespace of the name. Its keys and its rollup queues are removed in the background,
    /// by any server.
    ///
    /// # Errors
    /// [`Refusal::NamespaceNotFound`]: also if only another `incarnation` exists, or the deletion is more than an hour ago.
    /// It comes after 1.5 s, too: an earlier call, whose answer was lost, may have deleted the namespace a moment ago.
    pub async fn delete_namespace(&self, name: &NamespaceName, incarnation: Option<u64>) -> Result<(), Refusal> {
        let deleted = self.directory.delete(name, incarnation).await.map(drop);
        if matches!(deleted, Ok(()) | Err(Refusal::NamespaceNotFound { .. })) {
            self.namespace_deleted.notify_one();
            // No write reaches it any more. A server that has not noticed would still answer reads.
            tokio::time::sleep(POLL_EVERY + FOLLOW).await;
        }
        deleted
    }

    /// Removes what is left of deleted namespaces, until it is dropped.
    pub(super) async fn remove_deleted(&self) {
        let mut is_failing = false;
        loop {
            match self.remove_all().await {
                Ok(()) => is_failing = false,
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::warn!(%error, "cannot remove a deleted namespace; trying until it succeeds");
                }
                Err(error) => tracing::debug!(%error, "cannot remove a deleted namespace"),
            }
            tokio::select! {
                () = self.namespace_deleted.notified() => {}
                () = tokio::time::sleep(SEARCH_EVERY) => {}
            }
        }
    }

    async fn remove_all(&self) -> Result<(), Refusal> {
        let namespaces = &self.directory.namespaces;
        for deleted in namespaces.deleted().await? {
            if namespaces.remove(&deleted, self.remove_queues(&deleted)).await? {
                let DeletedNamespace { namespace, .. } = &deleted;
                tracing::info!(namespace = %namespace.name, namespace.incarnation, "a deleted namespace was removed");
            }
        }
        Ok(())
    }

    /// Deletes the rollup queues of a deleted namespace, with their jobs.
    fn remove_queues<'a>(&'a self, deleted: &'a DeletedNamespace) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async {
            let has_queues = deleted.namespace.config.counter_type != CounterType::BestEffort;
            match self.queue.as_ref().filter(|_| has_queues) {
                Some(queue) => {
                    remove_queues(queue, &deleted.namespace.tag()).await.map_err(|error| Refusal::Unavailable {
                        applied: tallystone_model::Applied::Unknown,
                        why: format!("its rollup queues: {error}"),
                    })
                }
                None => Ok(()),
            }
        })
    }
}

async fn remove_queues(queue: &Client, tag: &str) -> Result<(), tallystone_client::Error> {
    let mut page_token = String::new();
    loop {
        let page = queue.list_queues(&super::rollup_queue::prefix(tag), QUEUES_PAGE, &page_token).await?;
        for found in page.items {
            queue.delete_queue(&found.queue.name, true).await?;
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(());
        }
    }
}
