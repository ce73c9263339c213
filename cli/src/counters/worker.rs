//! `tallystone rollup-worker`: rolls counters up, as the queue says.

use super::config::{RollupWorkerArgs, RollupWorkerConfig};
use crate::config::load;
use crate::error::CliError;
use crate::server::cannot_serve;
use crate::shutdown::Shutdown;
use std::sync::Arc;
use tallystone_client::Client;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_server::serve_metrics;
use tallystone_workers::{Records, RollupWorkers, WorkerOptions};
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(args: RollupWorkerArgs, server: Option<String>) -> Result<(), CliError> {
    let (file, name, records) = (args.file(), args.name.clone(), args.records.clone());
    let config: RollupWorkerConfig = load(file.as_deref(), args.flags(server))?;
    config.check()?;
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let records = match records {
        None => None,
        Some(path) => {
            let opened = Records::open(&path);
            Some(Arc::new(opened.map_err(|error| CliError::usage(format!("--records {}: {error}", path.display())))?))
        }
    };
    if let Some(address) = config.metrics_listen {
        tokio::spawn(serve_metrics(address).map_err(|error| cannot_serve(&error))?);
    }
    let namespaces = config.redis.connect().await?;
    let options = WorkerOptions { name: name.unwrap_or_else(own_name), records };
    tracing::info!(worker = options.name, queue = config.server, "rolling counters up");
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    tokio::spawn(async move {
        shutdown.requested().await;
        tracing::info!("stopping");
        stop.cancel();
    });
    RollupWorkers::new(namespaces, config.queue()?, options).run(stopping).await;
    Ok(())
}

/// Rolls up beside something else, until the token is cancelled.
pub(crate) async fn working(namespaces: RedisNamespaces, queue: Client, stopping: CancellationToken) {
    let options = WorkerOptions { name: own_name(), records: None };
    RollupWorkers::new(namespaces, queue, options).run(stopping).await;
}

fn own_name() -> String {
    format!("rollup-{}", uuid::Uuid::now_v7().simple())
}
