//! `tallystone demo …`: jobs that show the queue at work and check what they see.
//!
//! What lives here: the jobs, and the server that they bring along where none is named. A job knows the queue only
//! through its client.

mod flights;

pub(crate) use flights::FlightsArgs;

use crate::connection::{failure, server_url};
use crate::failure::Failure;
use crate::output::Output;
use crate::server::cannot_serve;
use std::sync::Arc;
use tallystone_client::Client;
use tallystone_server::ServerConfig;
use tallystone_server::private_redis::{PrivateRedis, PrivateRedisOptions};
use tallystone_server::store::{RedisOptions, RedisStore};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// `demo flights`: on the server named, or on one of its own.
pub(crate) async fn flights(mut args: FlightsArgs, server: Option<String>, output: Output) -> Result<(), Failure> {
    args.quiet |= output.json;
    let own = match &server {
        Some(_) => None,
        None => Some(OwnServer::start().await?),
    };
    let url = own.as_ref().map_or_else(|| server_url(server.as_deref()), |own| own.url.clone());
    let flown = fly(args, &url, output).await;
    if let Some(own) = own {
        own.stop().await;
    }
    flown
}

async fn fly(args: FlightsArgs, url: &str, output: Output) -> Result<(), Failure> {
    let client = Client::connect(url).await.map_err(|error| failure(&error))?;
    let report = flights::run(args, client).await.map_err(|error| Failure::unavailable(format!("{error:#}")))?;
    output.one(&report, ToString::to_string)?;
    if report.passed() { Ok(()) } else { Err(Failure::refused("a check failed")) }
}

/// A server and its private Redis, as durable as any, whose data goes when the demo ends.
struct OwnServer {
    url: String,
    redis: PrivateRedis,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), tallystone_server::ServeError>>,
    _data: tempfile::TempDir,
}

impl OwnServer {
    async fn start() -> Result<Self, Failure> {
        let data = tempfile::tempdir().map_err(Failure::usage)?;
        let options = PrivateRedisOptions::new(data.path());
        let redis = PrivateRedis::start(options).await.map_err(|error| cannot_serve(&error))?;
        let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
        let store = RedisStore::connect(options).await.map_err(|error| cannot_serve(&error))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::usage)?;
        let url = format!("http://{}", listener.local_addr().map_err(Failure::usage)?);
        let config = ServerConfig { redis_url: redis.url(), ..ServerConfig::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let served = tokio::spawn(tallystone_server::serve_on(Arc::new(store), listener, config, shutdown));
        Ok(OwnServer { url, redis, stop, served, _data: data })
    }

    async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.served.await.map_err(anyhow::Error::from).and_then(|served| Ok(served?)) {
            tracing::warn!(%error, "the demo's server did not stop well");
        }
        self.redis.stop().await;
    }
}
