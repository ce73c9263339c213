//! Which queues are worked on: all of every namespace, as its latest revision has them.

use crate::batches::{Batches, ask};
use crate::records::Records;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Client, Worker};
use tallystone_counters::namespace::CounterType;
use tallystone_counters::redis::{Namespace, RedisNamespace, RedisNamespaces};
use tallystone_counters::service::rollup_queue;
use tallystone_counters::{NamespaceName, Refusal};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A queue that is not there yet is looked for again after this.
const PAUSE: Duration = Duration::from_millis(500);
/// How long rollups in hand may take when the worker stops.
const GRACE: Duration = Duration::from_secs(5);
/// Jobs leased beyond those of the batch in the store: of them the next batch is made up.
const BATCHES_LEASED: u32 = 2;

/// How a worker process works.
#[derive(Clone, Debug, Default)]
pub struct WorkerOptions {
    /// Its name in the queue's history.
    pub name: String,
    /// Where it writes what it did when.
    pub records: Option<Arc<Records>>,
}

/// The rollup worker of one process, for all namespaces of a Redis.
pub struct RollupWorkers {
    namespaces: RedisNamespaces,
    queue: Client,
    options: WorkerOptions,
    stale: Arc<Notify>,
}

/// A namespace that is worked on.
struct Running {
    namespace: Namespace,
    until: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    async fn stop(mut self) {
        self.until.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl RollupWorkers {
    /// Works on the counters of a Redis, with jobs of the queue behind this client.
    pub fn new(namespaces: RedisNamespaces, queue: Client, options: WorkerOptions) -> RollupWorkers {
        RollupWorkers { namespaces, queue, options, stale: Arc::default() }
    }

    /// Works until the token is cancelled; then what is in hand is finished, for five seconds at most.
    pub fn run(self, stopping: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.work(stopping))
    }

    async fn work(self, stopping: CancellationToken) {
        let mut running: BTreeMap<NamespaceName, Running> = BTreeMap::new();
        let mut every = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = stopping.cancelled() => break,
                _ = every.tick() => {}
                () = self.stale.notified() => {}
            }
            let all = match self.namespaces.all().await {
                Ok(all) => all,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for namespaces");
                    continue;
                }
            };
            for namespace in all {
                // A registry that has lost its last change gives that one's number to another.
                let is_known = running.get(&namespace.name).is_some_and(|running| running.namespace == namespace);
                if is_known || namespace.config.counter_type == CounterType::BestEffort {
                    continue;
                }
                let name = namespace.name.clone();
                match self.take_up(&namespace).await {
                    Ok(begun) => {
                        // What it has in hand belongs to its own revision: nobody else does it meanwhile.
                        if let Some(before) = running.insert(name, begun) {
                            tokio::spawn(before.stop());
                        }
                    }
                    Err(error) => tracing::warn!(namespace = %name, %error, "cannot work for it yet"),
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

    async fn take_up(&self, namespace: &Namespace) -> Result<Running, Refusal> {
        let store = self.namespaces.open(namespace).await?;
        let (until, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for number in 0..namespace.config.num_queues {
            let queue = rollup_queue(&namespace.name, &namespace.config, number);
            tasks.spawn(self.work_on(queue, store.clone(), until.clone()));
        }
        tracing::info!(namespace = %namespace.name, revision = namespace.revision, "rolling up");
        Ok(Running { namespace: namespace.clone(), until, tasks })
    }

    /// Works on one queue, for as long as this revision holds.
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
                let handler = move |lease| ask(leased.clone(), lease);
                match worker.run_until(until.cancelled(), handler).await {
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(queue, %error, "the queue is not there yet");
                        until.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
                    }
                }
            }
            drop(leased);
            // It ends with the last handler, which the runtime has awaited.
            let _ = batches.await;
        }
    }
}
