//! The process `tallystone rollup-worker`: rollups of counters, taken from the queue.

use crate::buckets::buckets;
use crate::counter_sets::counter_sets;
use crate::counters::{connect_counters, queue_client};
use crate::{AssemblyError, Config};
use std::time::Duration;
use tallystone_client::{Client, HealthClient};
use tallystone_counters::redis::RedisNamespaces;
use tallystone_link::StoreStatus;
use tallystone_model::ConfigError;
use tallystone_regions::{RegionOptions, Regions};
use tallystone_serving::{Collectors, ProcessHealth, listen_metrics};
use tallystone_workers::{RollupWorkers, WorkerOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How often a worker checks whether it could get jobs, and how long the queue may take to answer.
const PROBE_EVERY: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// A worker of the configuration. Nothing is opened before the configuration is checked. `metrics_listen` is served
/// until the process ends, with the health of the process; `stopping` is cancelled when it stops.
pub async fn rollup_worker(
    config: &Config,
    options: WorkerOptions,
    stopping: &CancellationToken,
) -> Result<RollupWorkers, AssemblyError> {
    config.check_rollup_worker()?;
    let queue_url = ("rollup_worker.queue_url", config.rollup_worker.queue_url.as_str());
    let queue = queue_client(queue_url.0, queue_url.1, &config.client)?;
    let health = ProcessHealth::new(stopping.clone());
    health.report(false).await;
    if let Some(address) = config.rollup_worker.metrics_listen {
        tokio::spawn(listen_metrics(address, &buckets(), &config.ports()?, &Collectors::default(), &health)?);
    }
    let options = WorkerOptions { counter_sets: Some(counter_sets(config)?), ..options };
    let namespaces = connect_counters(config).await?;
    if config.rollup_worker.metrics_listen.is_some() {
        let probe = HealthClient::builder(queue_url.1).call_timeout(PROBE_TIMEOUT);
        let probe = config.client.apply(probe).connect_lazy();
        let probe = probe.map_err(|error| ConfigError::new(queue_url.0, error.to_string()))?;
        let report = report_readiness(health, namespaces.status(), probe);
        tokio::spawn(stopping.clone().run_until_cancelled_owned(report));
    }
    if let Some(options) = config.region_options()? {
        spawn_regions(options, namespaces.clone(), stopping);
    }
    Ok(RollupWorkers::new(namespaces, queue, options))
}

/// Publishes to other regions and merges theirs, in the background. Its failures do not affect the rollups.
fn spawn_regions(options: RegionOptions, namespaces: RedisNamespaces, stopping: &CancellationToken) {
    let regions = Regions::new(options, namespaces).run(stopping.clone());
    tokio::spawn(async move {
        if let Err(error) = regions.await {
            tracing::error!(%error, "counters are not published to other regions");
        }
    });
}

/// A worker is ready while the Redis of the counters serves, and the queue that has its jobs.
async fn report_readiness(health: ProcessHealth, store: Option<watch::Receiver<StoreStatus>>, queue: HealthClient) {
    loop {
        let has_store = store.as_ref().is_none_or(|status| *status.borrow() == StoreStatus::Serving);
        health.report(has_store && queue.is_serving("").await.unwrap_or(false)).await;
        tokio::time::sleep(PROBE_EVERY).await;
    }
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
