//! `tallystone rollup-worker`

use crate::config::{ConfigFile, MetricsFlag, Overrides, PortFlags, RedisFlags, load, redis_with};
use crate::error::CliError;
use crate::global::Global;
use crate::serving::cannot_assemble;
use crate::shutdown::Shutdown;
use crate::traces;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_model::limits::WORKER_BYTES_MAX;
use tallystone_model::names::check_text;
use tallystone_workers::{Records, WorkerOptions};
use tokio_util::sync::CancellationToken;

#[derive(Args, Debug)]
#[command(mut_arg("redis_url", redis_with("the counters")))]
pub(crate) struct RollupWorkerArgs {
    #[command(flatten)]
    file: ConfigFile,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    ports: PortFlags,
    #[command(flatten)]
    redis: RedisFlags,
    /// The worker's name, which `msg get` and `msg explain` show [default: a generated name]
    #[arg(long, value_name = "NAME", value_parser = worker_name)]
    name: Option<String>,
    /// Append a line of JSON to this file before and after each rollup, with the fields at_us (Unix microseconds),
    /// worker, namespace, counter, fencing_token and stage. Before a rollup the stage is begin; afterwards it is committed
    /// (a new checkpoint), nothing (no new closed window), lost (another rollup committed first, or a later lease has
    /// written) or failed (Redis was unavailable, or the namespace was changed)
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
}

/// The queue refuses leases to a worker with another name.
fn worker_name(text: &str) -> Result<String, String> {
    check_text("worker", text, 1, WORKER_BYTES_MAX).map_err(|refusal| refusal.to_string())?;
    Ok(text.to_owned())
}

/// The flag `--server` names the queue that hands out rollups.
pub(crate) async fn run(args: RollupWorkerArgs, global: &Global) -> Result<(), CliError> {
    let flags = Overrides::default()
        .set("rollup_worker.metrics_listen", args.metrics.metrics_listen)
        .set_server("rollup_worker.queue_url", global.server.clone())
        .set_credentials(&global.credentials)
        .set_telemetry(&global.telemetry);
    let config = load(args.file.path.as_deref(), args.redis.set(args.ports.set(flags)))?;
    traces::start(&config.telemetry, "tallystone-rollup-worker")?;
    let mut shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let name = args.name.unwrap_or_else(tallystone_assembly::own_name);
    let records = args.records.as_deref().map(open).transpose()?;
    let options = WorkerOptions { name: name.clone(), records, ..WorkerOptions::default() };
    let stopping = CancellationToken::new();
    let workers = tallystone_assembly::rollup_worker(&config, options, &stopping);
    let Some(workers) = shutdown.or_requested(workers).await else { return Ok(()) };
    let workers = workers.map_err(cannot_assemble)?;
    tracing::info!(worker = name, queue = config.rollup_worker.queue_url, "rolling up counters");
    let stop = stopping.clone();
    tokio::spawn(async move {
        shutdown.requested().await;
        tracing::info!("stopping");
        stop.cancel();
    });
    workers.run(stopping).await;
    Ok(())
}

fn open(path: &Path) -> Result<Arc<Records>, CliError> {
    let records = Records::open(path);
    Ok(Arc::new(records.map_err(|error| CliError::usage(format!("--records {}: {error}", path.display())))?))
}
