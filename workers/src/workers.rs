//! The rollup workers of a process: for every namespace that has dirty counters, in its latest revision, one worker for
//! each of its queues. A namespace without dirty counters has no jobs, so it has no workers (Q18): those that have none are
//! checked together, once a second, and a dirty counter waits for longer than that before it becomes a job.

use crate::archiver::Archiver;
use crate::batches::{Batches, Lanes};
use crate::publisher::Publisher;
use crate::records::Records;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_client::{Client, Worker};
use tallystone_counters::namespace::{CounterType, NamespaceConfig};
use tallystone_counters::publish::CounterSets;
use tallystone_counters::redis::{Namespace, NamespaceWatcher, RedisNamespaces};
use tallystone_counters::service::rollup_queue;
use tallystone_counters::{NamespaceName, Refusal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// The pause before a queue that does not exist yet is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// A namespace that has had no job for this long, and has no dirty counter, has no workers.
const QUIET: Duration = Duration::from_secs(60);
/// The workers of a namespace stay where a counter may become a job sooner than this after an add: that add would be
/// noticed too late.
const DUE_AFTER_MS_MIN: u64 = 2_000;
/// How long rollups that have begun may take when the worker stops.
const GRACE: Duration = Duration::from_secs(5);
/// How long the last counts may take on their way to a counter set.
const PUBLISH_GRACE: Duration = Duration::from_secs(1);
/// How many batches of jobs are leased: while one is in the store, the next one is made up of the others.
const BATCHES_LEASED: u32 = 2;
/// Batches of one namespace that are in a partition of the store at once. A batch has jobs of many queues, because it costs a
/// few calls of each shard, however many counters it has. The jobs of one queue and partition are always in the same one, so
/// that two leases of a counter follow each other.
const BATCHES_AT_ONCE: u16 = 2;
/// Queues up to which each has a Work stream. With more, those of further namespaces share streams: they take a third less
/// memory, but one task serves them, and a few busy queues are some percent faster without.
const OWN_STREAMS_MAX: usize = 200;
/// Counters of one batch.
const COUNTERS_MAX: usize = 512;

/// The options of a worker process.
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// Its name in the queue's history and in the records.
    pub name: String,
    /// Where it records its rollups; `None`: it does not.
    pub records: Option<Arc<Records>>,
    /// Where it publishes counts (W6); `None`: it does not.
    pub counter_sets: Option<CounterSets>,
}

/// The rollup workers of one process, for all namespaces of a Redis.
pub struct RollupWorkers {
    namespaces: RedisNamespaces,
    queue: Client,
    options: WorkerOptions,
    publisher: Option<Arc<Publisher>>,
    stale: Arc<Notify>,
}

/// A namespace whose rollup queues have workers.
struct RunningNamespace {
    namespace: Namespace,
    until: CancellationToken,
    tasks: JoinSet<()>,
    /// The number of jobs leased so far.
    leased: Arc<AtomicU64>,
    /// That number, and when it was first seen.
    seen: (u64, Instant),
}

impl RunningNamespace {
    /// Whether no job came for [`QUIET`].
    fn is_quiet(&mut self) -> bool {
        let leased = self.leased.load(Ordering::Relaxed);
        if leased != self.seen.0 {
            self.seen = (leased, Instant::now());
        }
        self.seen.1.elapsed() >= QUIET
    }

    async fn stop(mut self) {
        self.until.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl RollupWorkers {
    /// Rolls up the counters of a Redis, with jobs of the queue behind this client.
    pub fn new(namespaces: RedisNamespaces, queue: Client, options: WorkerOptions) -> RollupWorkers {
        crate::metrics::describe();
        let publisher = options.counter_sets.clone().map(|sets| Arc::new(Publisher::new(sets)));
        RollupWorkers { namespaces, queue, options, publisher, stale: Arc::default() }
    }

    /// Runs until the token is cancelled, then finishes the rollups that have begun, for at most five seconds.
    pub fn run(self, stopping: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.work(stopping))
    }

    async fn work(self, stopping: CancellationToken) {
        let mut running: BTreeMap<NamespaceName, RunningNamespace> = BTreeMap::new();
        let mut watcher = NamespaceWatcher::new(self.namespaces.clone());
        let no_more_rollups = CancellationToken::new();
        let publisher = self.publisher.clone();
        let publishing = publisher.map(|publisher| tokio::spawn(publisher.run(no_more_rollups.clone())));
        let archiving = self.namespaces.archive().map(|_| {
            let archiver = Archiver::new(self.namespaces.clone());
            tokio::spawn(archiver.run(self.queue.clone(), self.options.name.clone(), stopping.clone()))
        });
        while let Some(all) = stopping.run_until_cancelled(watcher.next(&self.stale)).await {
            // A Redis that does not answer would keep it from stopping.
            stopping.run_until_cancelled(self.follow(all, &mut running)).await;
        }
        for running in running.values() {
            running.until.cancel();
        }
        for (_, running) in running {
            running.stop().await;
        }
        if let Some(archiving) = archiving {
            let _ = timeout(GRACE, archiving).await;
        }
        no_more_rollups.cancel();
        if let Some(publishing) = publishing {
            let _ = timeout(PUBLISH_GRACE, publishing).await;
        }
    }

    /// Starts and ends workers, so that they are those of `all` namespaces.
    async fn follow(&self, all: Vec<Namespace>, running: &mut BTreeMap<NamespaceName, RunningNamespace>) {
        // Without the store nothing could start.
        let Ok(idle) = self.idle(&all, running).await else { return };
        let is_deleted = |name: &&NamespaceName| all.iter().all(|namespace| namespace.name != **name);
        let deleted: Vec<NamespaceName> = running.keys().filter(is_deleted).cloned().collect();
        for before in deleted.iter().filter_map(|name| running.remove(name)) {
            tokio::spawn(before.stop());
        }
        for namespace in all {
            // A registry that has lost its last change gives that change's revision to another one, so the
            // configuration is compared, too.
            let is_running = running.get(&namespace.name).is_some_and(|running| running.namespace == namespace);
            if idle.contains(&namespace.name) {
                if let Some(before) = running.remove(&namespace.name) {
                    tracing::debug!(namespace = %namespace.name, "idle: no counter waits for a rollup");
                    tokio::spawn(before.stop());
                }
                continue;
            }
            if is_running || namespace.config.counter_type == CounterType::BestEffort {
                continue;
            }
            let name = namespace.name.clone();
            let queues = |running: &RunningNamespace| usize::from(running.namespace.config.num_queues);
            let all_queues = running.values().map(queues).sum::<usize>() + usize::from(namespace.config.num_queues);
            match self.start(&namespace, all_queues > OWN_STREAMS_MAX).await {
                Ok(started) => {
                    // Rollups of the revision before are finished: their leases keep others from those counters.
                    if let Some(before) = running.insert(name, started) {
                        tokio::spawn(before.stop());
                    }
                }
                Err(error) => tracing::warn!(namespace = %name, %error, "cannot roll up its counters yet"),
            }
        }
    }

    /// The namespaces that need no workers: they have no dirty counter, and those with workers have had no job for a while.
    async fn idle(
        &self,
        all: &[Namespace],
        running: &mut BTreeMap<NamespaceName, RunningNamespace>,
    ) -> Result<BTreeSet<NamespaceName>, Refusal> {
        let may_be_idle = |namespace: &&Namespace| {
            let may_wait = namespace.config.due_after_ms() >= DUE_AFTER_MS_MIN;
            may_wait && running.get_mut(&namespace.name).is_none_or(RunningNamespace::is_quiet)
        };
        let quiet: Vec<&Namespace> = all.iter().filter(may_be_idle).collect();
        let tags: Vec<String> = quiet.iter().map(|namespace| namespace.tag()).collect();
        let have_dirty = self.namespaces.have_dirty(&tags).await?;
        let idle = quiet.into_iter().zip(have_dirty).filter(|(_, dirty)| !dirty);
        Ok(idle.map(|(namespace, _)| namespace.name.clone()).collect())
    }

    async fn start(&self, namespace: &Namespace, shared_streams: bool) -> Result<RunningNamespace, Refusal> {
        let store = self.namespaces.open(namespace).await?;
        let (until, mut tasks, leased) = (CancellationToken::new(), JoinSet::new(), Arc::default());
        let NamespaceConfig { num_queues, rollup_batch_count: batch_count, .. } = namespace.config;
        let at_once = BATCHES_AT_ONCE.min(num_queues);
        let queues_each = usize::from(num_queues.div_ceil(at_once));
        let counters_max = COUNTERS_MAX.min(batch_count as usize * queues_each).max(batch_count as usize);
        let lanes = (0..at_once).map(|_| {
            let batches = (0..store.homes()).map(|_| {
                let (sender, receiver) = mpsc::channel(counters_max);
                let batches = Batches {
                    store: store.clone(),
                    counters_max,
                    worker: self.options.name.clone(),
                    records: self.options.records.clone(),
                    publisher: self.publisher.clone(),
                    stale: self.stale.clone(),
                };
                // The batches end when no handler is left; the client's worker has awaited all of them.
                tasks.spawn(batches.run(receiver));
                sender
            });
            Lanes { store: store.clone(), batches: batches.collect() }
        });
        let lanes: Vec<Lanes> = lanes.collect();
        for number in 0..num_queues {
            let queue = rollup_queue(&namespace.tag(), &namespace.config, number);
            let lanes = lanes[usize::from(number % at_once)].clone();
            let worker = Worker::new(self.queue.clone(), &queue)
                .name(self.options.name.clone())
                .concurrency(batch_count * BATCHES_LEASED)
                .shared_stream(shared_streams)
                .grace(GRACE);
            tasks.spawn(work_on(worker, queue, lanes, until.clone(), Arc::clone(&leased)));
        }
        if namespace.config.published_to.is_some() && self.publisher.is_none() {
            tracing::warn!(namespace = %namespace.name, "this worker publishes no counts");
        }
        if namespace.config.archived && self.namespaces.archive().is_none() {
            tracing::warn!(namespace = %namespace.name, "this worker archives no events (archive.url)");
        }
        tracing::info!(namespace = %namespace.name, revision = namespace.revision, "rolling up");
        Ok(RunningNamespace { namespace: namespace.clone(), until, tasks, leased, seen: (0, Instant::now()) })
    }
}

/// Works on one queue, until `until` is cancelled.
async fn work_on(worker: Worker, queue: String, lanes: Lanes, until: CancellationToken, leased_total: Arc<AtomicU64>) {
    while !until.is_cancelled() {
        let (lanes, leased_total) = (lanes.clone(), leased_total.clone());
        let handler = move |lease| {
            leased_total.fetch_add(1, Ordering::Relaxed);
            lanes.roll_up(lease)
        };
        match worker.run_until(until.cancelled(), handler).await {
            Ok(_) => break,
            Err(error) => {
                tracing::debug!(queue, %error, "the queue does not exist yet");
                until.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
            }
        }
    }
}
