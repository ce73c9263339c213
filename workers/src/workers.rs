//! The rollup workers of a process: for every namespace, in its latest revision, one worker for each of its queues.

use crate::batches::{Batches, roll_up};
use crate::records::Records;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Client, Worker};
use tallystone_counters::namespace::CounterType;
use tallystone_counters::redis::{Namespace, NamespaceWatcher, RedisNamespace, RedisNamespaces};
use tallystone_counters::service::rollup_queue;
use tallystone_counters::{NamespaceName, Refusal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pause before a queue that does not exist yet is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// How long rollups that have begun may take when the worker stops.
const GRACE: Duration = Duration::from_secs(5);
/// How many batches of jobs are leased: while one is in the store, the next one is made up of the others.
const BATCHES_LEASED: u32 = 2;

/// The options of a worker process.
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// Its name in the queue's history and in the records.
    pub name: String,
    /// Where it records its rollups; `None`: it does not.
    pub records: Option<Arc<Records>>,
}

/// The rollup workers of one process, for all namespaces of a Redis.
pub struct RollupWorkers {
    namespaces: RedisNamespaces,
    queue: Client,
    options: WorkerOptions,
    stale: Arc<Notify>,
}

/// A namespace whose rollup queues have workers.
struct RunningNamespace {
    namespace: Namespace,
    until: CancellationToken,
    tasks: JoinSet<()>,
}

impl RunningNamespace {
    async fn stop(mut self) {
        self.until.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl RollupWorkers {
    /// Rolls up the counters of a Redis, with jobs of the queue behind this client.
    pub fn new(namespaces: RedisNamespaces, queue: Client, options: WorkerOptions) -> RollupWorkers {
        RollupWorkers { namespaces, queue, options, stale: Arc::default() }
    }

    /// Runs until the token is cancelled, then finishes the rollups that have begun, for at most five seconds.
    pub fn run(self, stopping: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.work(stopping))
    }

    async fn work(self, stopping: CancellationToken) {
        let mut running: BTreeMap<NamespaceName, RunningNamespace> = BTreeMap::new();
        let mut watcher = NamespaceWatcher::new(self.namespaces.clone());
        while let Some(all) = stopping.run_until_cancelled(watcher.next(&self.stale)).await {
            for namespace in all {
                // A registry that has lost its last change gives that change's revision to another one, so the
                // configuration is compared, too.
                let is_running = running.get(&namespace.name).is_some_and(|running| running.namespace == namespace);
                if is_running || namespace.config.counter_type == CounterType::BestEffort {
                    continue;
                }
                let name = namespace.name.clone();
                match self.start(&namespace).await {
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
        for running in running.values() {
            running.until.cancel();
        }
        for (_, running) in running {
            running.stop().await;
        }
    }

    async fn start(&self, namespace: &Namespace) -> Result<RunningNamespace, Refusal> {
        let store = self.namespaces.open(namespace).await?;
        let (until, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for number in 0..namespace.config.num_queues {
            let queue = rollup_queue(&namespace.name, &namespace.config, number);
            tasks.spawn(self.work_on(queue, store.clone(), until.clone()));
        }
        tracing::info!(namespace = %namespace.name, revision = namespace.revision, "rolling up");
        Ok(RunningNamespace { namespace: namespace.clone(), until, tasks })
    }

    /// The worker of one queue, until `until` is cancelled.
    fn work_on(
        &self,
        queue: String,
        store: RedisNamespace,
        until: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let batch_count = store.config().rollup_batch_count;
        let worker = Worker::new(self.queue.clone(), &queue)
            .name(self.options.name.clone())
            .concurrency(batch_count * BATCHES_LEASED)
            .grace(GRACE);
        let (worker_name, records, stale) =
            (self.options.name.clone(), self.options.records.clone(), self.stale.clone());
        let batches = Batches { store, worker: worker_name, records, stale };
        async move {
            let (leased, receiver) = mpsc::channel((batch_count * BATCHES_LEASED) as usize);
            let batches = tokio::spawn(batches.run(receiver));
            while !until.is_cancelled() {
                let leased = leased.clone();
                let handler = move |lease| roll_up(leased.clone(), lease);
                match worker.run_until(until.cancelled(), handler).await {
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(queue, %error, "the queue does not exist yet");
                        until.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
                    }
                }
            }
            drop(leased);
            // The batches end when no handler is left; the client's worker has awaited all of them.
            let _ = batches.await;
        }
    }
}
