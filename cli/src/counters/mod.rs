//! `tallystone counters`, and `tallystone counters clock`, for a store that was written under a wrong clock.

mod clock;

use crate::config::{ConfigFile, MetricsFlag, Overrides, RedisFlags, load};
use crate::error::CliError;
use crate::output::Output;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use clap::{Args, Subcommand};
use std::net::SocketAddr;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CountersArgs {
    #[command(subcommand)]
    verb: Option<CountersVerb>,
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve gRPC and HTTP [default: 127.0.0.1:7610]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    redis: RedisFlags,
}

#[derive(Debug, Subcommand)]
enum CountersVerb {
    /// Show how far namespaces are ahead of Redis's clock, or set them back to it
    Clock(clock::ClockArgs),
}

/// `queue`: the flag `--server`, here the queue that hands out rollups.
pub(crate) async fn run(args: CountersArgs, queue: Option<String>, output: Output) -> Result<(), CliError> {
    if let Some(CountersVerb::Clock(args)) = args.verb {
        return clock::run(args, output).await;
    }
    let flags = Overrides::default()
        .set("counters.listen", args.listen)
        .set("counters.metrics_listen", args.metrics.metrics_listen)
        .set_server("counters.queue_url", queue);
    let config = load(args.file.path.as_deref(), args.redis.set(flags))?;
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let host = tallystone_assembly::counters(&config).await.map_err(cannot_assemble)?;
    tracing::info!(queue = config.counters.queue_url, "serving counters");
    let listener = listen(config.counters.listen).await?;
    host.serve(listener, shutdown.requested()).await.map_err(|error| cannot_serve(&error))
}
