//! `tallystone server`

use crate::config::{ConfigFile, HistoryServices, MetricsFlag, Overrides, PortFlags, RedisFlags, load, redis_with};
use crate::error::CliError;
use crate::global::Global;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use crate::traces;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(mut_arg("redis_url", redis_with("the queues")))]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve gRPC [default: 127.0.0.1:7600]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    ports: PortFlags,
    #[command(flatten)]
    redis: RedisFlags,
    #[command(flatten)]
    history: HistoryServices,
    /// Keep history in this SQLite file, on one machine without Kafka and Elasticsearch
    #[arg(long, value_name = "FILE")]
    history_file: Option<PathBuf>,
}

pub(crate) async fn run(args: ServerArgs, global: &Global) -> Result<(), CliError> {
    let flags = Overrides::default()
        .set_telemetry(&global.telemetry)
        .set("server.listen", args.listen)
        .set("server.metrics_listen", args.metrics.metrics_listen)
        .set("history.file", args.history_file);
    let flags = args.history.set(args.redis.set(args.ports.set(flags)));
    let config = load(args.file.path.as_deref(), flags)?;
    traces::start(&config.telemetry, "tallystone-server")?;
    let mut shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let Some(host) = shutdown.or_requested(tallystone_assembly::queue(&config)).await else { return Ok(()) };
    let host = host.map_err(cannot_assemble)?;
    let listener = listen(config.server.listen).await?;
    host.serve(listener, shutdown.requested()).await.map_err(|error| cannot_serve(&error))
}
