//! The services that a demo starts when no server is named: a private Redis, a queue server with embedded history, and
//! the counters. As durable as any other; all data but the history goes when the demo ends.

use crate::flights::CounterServices;
use anyhow::{Context, Result};
use futures::FutureExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::Client;
use tallystone_counters::api::Api;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::service::CounterService;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::embedded::{Embedded, EmbeddedOptions};
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::{RedisOptions, RedisStore, ReplicaWait};
use tallystone_server::{Beside, ServerConfig, outbox_bound, serve_only, serve_redis};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// Running services; [`OwnServer::stop`] ends them in order.
pub struct OwnServer {
    url: String,
    counters_url: String,
    redis: PrivateRedis,
    queue: Service,
    counters: Service,
    _data: tempfile::TempDir,
}

/// One service in this process.
struct Service {
    name: &'static str,
    stopping: CancellationToken,
    served: JoinHandle<Result<()>>,
}

impl OwnServer {
    /// Starts them. The history of this demo replaces that of the last one in `history_file`; a file that cannot be
    /// used costs only the history.
    ///
    /// # Errors
    /// Redis is not installed or does not start, or no port is free.
    pub async fn start(history_file: PathBuf) -> Result<Self> {
        let data = tempfile::tempdir().context("a folder for the demo's data")?;
        let redis = PrivateRedis::start(PrivateRedisOptions::new(data.path())).await?;
        let (url, queue) = start_queue(&redis.url(), history_file).await?;
        let (counters_url, counters) = start_counters(&redis.url(), &url).await?;
        Ok(OwnServer { url, counters_url, redis, queue, counters, _data: data })
    }

    /// Where the queue is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the flights can be counted.
    pub fn counter_services(&self) -> CounterServices {
        CounterServices {
            counters_url: self.counters_url.clone(),
            queue_url: self.url.clone(),
            redis_url: self.redis.url(),
        }
    }

    /// Stops the counters, then the queue that they use, then Redis. What fails is logged.
    pub async fn stop(self) {
        self.counters.stop().await;
        self.queue.stop().await;
        self.redis.stop().await;
    }
}

impl Service {
    async fn stop(self) {
        self.stopping.cancel();
        let name = self.name;
        match self.served.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(name, error = format!("{error:#}"), "a service of the demo failed"),
            Err(error) => tracing::warn!(name, %error, "a service of the demo failed"),
        }
    }
}

async fn start_queue(redis_url: &str, history_file: PathBuf) -> Result<(String, Service)> {
    let options = RedisOptions { url: redis_url.to_owned(), ..RedisOptions::default() };
    let store = Arc::new(RedisStore::connect(options).await?);
    let (listener, url) = listen().await?;
    let mut config = ServerConfig { redis_url: redis_url.to_owned(), ..ServerConfig::default() };
    remove_history(&history_file);
    let beside = match open_history(&history_file) {
        Ok(history) => {
            config.history_file = Some(history_file);
            with_history(&store, &config, Arc::new(history))
        }
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "this demo keeps no history");
            Beside::default()
        }
    };
    let stopping = CancellationToken::new();
    let shutdown = Box::pin(stopping.clone().cancelled_owned());
    let served = tokio::spawn(serve_redis(store, listener, config, beside, shutdown).map(|served| Ok(served?)));
    Ok((url, Service { name: "queue", stopping, served }))
}

async fn start_counters(redis_url: &str, queue_url: &str) -> Result<(String, Service)> {
    let namespaces = RedisNamespaces::connect(redis_url, false, ReplicaWait::default()).await?;
    let queue = Client::builder(queue_url).connect_lazy()?;
    let (listener, url) = listen().await?;
    let stopping = CancellationToken::new();
    let counters = CounterService::new(namespaces, Some(queue));
    let background = tokio::spawn(counters.clone().run(stopping.clone()));
    let serving = serve_only(listener, None, Api::new(counters).routes(), stopping.clone());
    let served = tokio::spawn(async move {
        serving.await?;
        Ok(background.await?)
    });
    Ok((url, Service { name: "counters", stopping, served }))
}

async fn listen() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no port is free")?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((listener, url))
}

/// Removes the history of the last demo. This demo's stays after its end, so that it can be queried.
fn remove_history(file: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let mut name = file.to_owned().into_os_string();
        name.push(ending);
        // Most likely there is none; any other failure shows when the file is opened.
        let _ = std::fs::remove_file(name);
    }
}

fn open_history(file: &Path) -> Result<Embedded> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    Ok(Embedded::open(EmbeddedOptions::new(file))?)
}

/// The relay into the history store, and the service that answers from it.
fn with_history(store: &Arc<RedisStore>, config: &ServerConfig, history: Arc<Embedded>) -> Beside {
    let health = OutboxHealth::default();
    let options = RelayOptions {
        leader_lease_ms: config.relay_lead_ms,
        events_max: u64::from(outbox_bound(config).events_max),
        // To the embedded store a watermark is one row: each is written.
        watermark_every: Duration::ZERO,
    };
    let relay = Relay::new(store.clone(), history.clone(), options, health.clone());
    Beside {
        routes: Routes::new(HistoryApi::new(history).service()),
        outbox_health: Some(health),
        tasks: vec![Box::new(|stopping| relay.run(stopping).boxed())],
    }
}
