//! `tallystone counters` and `tallystone rollup-worker`: the service of the counters, and what rolls them up.
//!
//! What lives here: their configuration, how they are put together, and how they stop; `dev` runs both beside its queue.

mod config;
mod worker;

pub(crate) use config::{CountersArgs, RollupWorkerArgs};
pub(crate) use worker::{run as run_worker, working};

use crate::config::load;
use crate::error::CliError;
use crate::server::cannot_serve;
use crate::shutdown::Shutdown;
use config::CountersConfig;
use std::net::SocketAddr;
use tallystone_client::Client;
use tallystone_counters::api::Api;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::service::CounterService;
use tallystone_server::serve_only;
use tallystone_server::store::ConnectError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(args: CountersArgs, server: Option<String>) -> Result<(), CliError> {
    let file = args.file();
    let config: CountersConfig = load(file.as_deref(), args.flags(server))?;
    config.check()?;
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let namespaces = config.redis.connect().await?;
    let queue = config.queue()?;
    let listener = listen(config.listen).await?;
    let address = listener.local_addr().map_err(CliError::usage)?;
    tracing::info!(%address, queue = config.server, "serving counters");
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    tokio::spawn(async move {
        shutdown.requested().await;
        tracing::info!(%address, "stopping");
        stop.cancel();
    });
    serving(namespaces, queue, listener, config.metrics_listen, stopping).await
}

/// A port for the counters.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|error| {
        CliError::usage(format!("cannot listen on {address}: {error}"))
            .hint("is one running already? port 0 takes a free one")
    })
}

/// Serves the counters of a Redis until the token is cancelled.
pub(crate) async fn serving(
    namespaces: RedisNamespaces,
    queue: Client,
    listener: TcpListener,
    metrics_listen: Option<SocketAddr>,
    stopping: CancellationToken,
) -> Result<(), CliError> {
    let _stop_in_any_case = stopping.clone().drop_guard();
    let counters = CounterService::new(namespaces, Some(queue));
    let beside = tokio::spawn(counters.clone().run(stopping.clone()));
    let served = serve_only(listener, metrics_listen, Api::new(counters).routes(), stopping.clone()).await;
    stopping.cancel();
    beside
        .await
        .map_err(|error| CliError::unavailable(format!("what runs beside the counters has failed: {error}")))?;
    served.map_err(|error| cannot_serve(&error))
}

/// Why a Redis is not worked with.
fn unsuited(error: &ConnectError) -> CliError {
    match error {
        ConnectError::Unreachable { .. } => {
            cannot_serve(error).hint("--redis-url names another; `tallystone dev` brings a Redis of its own along")
        }
        _ => CliError::usage(error),
    }
}
