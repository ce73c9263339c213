//! The process `tallystone rollup-worker`: rollups of counters, taken from the queue.

use crate::buckets::buckets;
use crate::counter_sets::counter_sets;
use crate::counters::{connect_counters, queue_client};
use crate::{AssemblyError, Config};
use tallystone_client::Client;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_serving::{Collectors, listen_metrics};
use tallystone_workers::{RollupWorkers, WorkerOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A worker of the configuration. Nothing is opened before the configuration is checked. `metrics_listen` is served
/// until the process ends.
pub async fn rollup_worker(config: &Config, options: WorkerOptions) -> Result<RollupWorkers, AssemblyError> {
    config.check_rollup_worker()?;
    let queue = queue_client("rollup_worker.queue_url", &config.rollup_worker.queue_url, &config.client)?;
    if let Some(address) = config.rollup_worker.metrics_listen {
        tokio::spawn(listen_metrics(address, &buckets(), &config.ports()?, &Collectors::default())?);
    }
    let options = WorkerOptions { counter_sets: Some(counter_sets(config)?), ..options };
    Ok(RollupWorkers::new(connect_counters(config).await?, queue, options))
}

/// The name of a worker that was given none. It is short because it is in the record of each job that the worker leases.
pub fn own_name() -> String {
    format!("rollup-{:06x}", uuid::Uuid::new_v4().as_fields().0 >> 8)
}

/// A worker that runs in the background of this process. Dropped, it stops.
pub struct RollupWorker {
    stopping: CancellationToken,
    running: JoinHandle<()>,
    _stop_when_dropped: DropGuard,
}

impl RollupWorker {
    /// Starts a worker of these namespaces on the current runtime.
    pub fn start(namespaces: RedisNamespaces, queue: Client, options: WorkerOptions) -> RollupWorker {
        let stopping = CancellationToken::new();
        let running = tokio::spawn(RollupWorkers::new(namespaces, queue, options).run(stopping.clone()));
        RollupWorker { running, _stop_when_dropped: stopping.clone().drop_guard(), stopping }
    }

    /// Waits until the worker ends by itself, which is a failure.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.running).await;
    }

    /// Gives back the jobs that it holds, and ends.
    pub async fn stop(self) {
        self.stopping.cancel();
        if !self.running.is_finished()
            && let Err(error) = self.running.await
        {
            tracing::error!(%error, "the rollup worker has failed");
        }
    }
}
