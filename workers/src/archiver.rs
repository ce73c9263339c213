//! The archiver: it takes archive jobs from the queue, moves the events of a namespace to the archive, merges its objects, and
//! deletes what is past its retention (N15).

use crate::metrics;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_client::{Client, Failure, Lease, Worker};
use tallystone_counters::redis::{Namespace, RedisNamespace, RedisNamespaces};
use tallystone_counters::service::{archive_queue, archive_queue_config};
use tallystone_counters::{NamespaceName, Refusal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Namespaces that are archived at once.
const AT_ONCE: u32 = 2;
/// How long a job that has begun may take when the worker stops.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after a failure to reach the queue.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two searches for slices that are past their retention.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// An entry of `known` is dropped this time after its last prune. A namespace that still has jobs is pruned sooner.
const FORGET_AFTER: Duration = Duration::from_secs(2 * 3_600);

/// What this process knows of the archive of a namespace.
struct ArchiveState {
    /// When slices past their retention were last deleted.
    pruned_at: Instant,
    /// The closed slices that have nothing left to merge.
    merged: BTreeSet<u64>,
}

/// Archives the namespaces of a store.
#[derive(Clone)]
pub(crate) struct Archiver {
    namespaces: RedisNamespaces,
    /// By tag, for namespaces that had a job lately.
    known: Arc<Mutex<HashMap<String, ArchiveState>>>,
}

impl Archiver {
    pub(crate) fn new(namespaces: RedisNamespaces) -> Archiver {
        Archiver { namespaces, known: Arc::default() }
    }

    /// Runs until the token is cancelled.
    pub(crate) async fn run(self, queue: Client, name: String, until: CancellationToken) {
        let jobs = archive_queue();
        let worker = Worker::new(queue.clone(), &jobs).name(name).concurrency(AT_ONCE).grace(GRACE);
        while !until.is_cancelled() {
            let archiver = self.clone();
            let handler = move |lease: Lease| {
                let archiver = archiver.clone();
                async move { archiver.archive(&lease.id).await.map_err(Failure::from) }
            };
            match worker.run_until(until.cancelled(), handler).await {
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "the queue of archive jobs does not exist yet");
                    // Another worker may create it meanwhile.
                    let created = queue.create_queue(&jobs, archive_queue_config());
                    let _ = until.run_until_cancelled(created).await;
                    until.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
                }
            }
        }
    }

    /// Archives what is old enough of the namespace with this tag.
    async fn archive(&self, tag: &str) -> Result<(), Refusal> {
        // A tag is a name, or a name and an incarnation. It may have been deleted since.
        let name = NamespaceName::parse(tag.split(':').next().unwrap_or_default())?;
        let found = self.namespaces.get(&name).await?.filter(|namespace| namespace.tag() == tag);
        let Some(namespace) = found else { return Ok(()) };
        let store = self.namespaces.open(&namespace).await?;
        let passed = loop {
            let begin = Instant::now();
            let pass = store.archive_pass().await;
            metrics::archived(&pass, begin.elapsed());
            match pass {
                Ok(pass) if pass.is_behind => {}
                done => break done,
            }
        };
        // What retention deletes is gone, and a clock is wrong.
        if let Err(skew @ Refusal::ClockSkew { .. }) = passed {
            return Err(skew);
        }
        // Also after a pass that has failed for some shards: an unavailable partition stops no retention.
        let tidied = self.tidy(tag, &store).await;
        passed.and(tidied)
    }

    /// Merges objects, and once an hour deletes what is past its retention.
    async fn tidy(&self, tag: &str, store: &RedisNamespace) -> Result<(), Refusal> {
        let known = self.known().remove(tag).map(|ArchiveState { pruned_at, merged }| (Some(pruned_at), merged));
        let (pruned_at, mut merged) = known.unwrap_or_default();
        match store.merge_archive(&mut merged).await {
            Ok(objects) => metrics::merged(objects),
            // It does not fail the job: events still go to the archive, in more objects.
            Err(error) => tracing::warn!(namespace = %store.name(), %error, "cannot merge objects of the archive"),
        }
        let pruned_at = pruned_at.filter(|at| at.elapsed() < PRUNE_EVERY);
        if pruned_at.is_none() {
            // The job may have taken long: it must not delete what another retention keeps now.
            let now = self.namespaces.get(store.name()).await?;
            let is_same =
                |now: &Namespace| now.tag() == tag && now.revision == store.revision() && now.config == *store.config();
            if !now.as_ref().is_some_and(is_same) {
                return Err(Refusal::Stale);
            }
            let objects = store.prune_archive().await?;
            if objects > 0 {
                tracing::info!(namespace = %store.name(), objects, "archived events past their retention were deleted");
            }
        }
        let mut known = self.known();
        known.retain(|_, known| known.pruned_at.elapsed() < FORGET_AFTER);
        known.insert(tag.to_owned(), ArchiveState { pruned_at: pruned_at.unwrap_or_else(Instant::now), merged });
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, ArchiveState>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
