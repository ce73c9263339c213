//! The services that a demo starts when no server is named: a private Redis, a queue server with embedded history, the
//! counters, and a view counter. As durable as any other; all data but the history goes when the demo ends.

use crate::flights::CounterServices;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tallystone_assembly::{AllInOne, AssemblyError, Config, Listeners};
use tallystone_local::{Password, PrivateRedis, PrivateRedisOptions};
use tokio::net::TcpListener;

/// Running services; [`OwnServer::stop`] ends them in order.
pub struct OwnServer {
    url: String,
    counters_url: String,
    redis: PrivateRedis,
    services: AllInOne,
    _data: tempfile::TempDir,
}

impl OwnServer {
    /// Starts them. The history of this demo replaces that of the last one in `history_file`; a file that cannot be
    /// used costs only the history.
    ///
    /// # Errors
    /// Redis is not installed or does not start, or no port is free.
    pub async fn start(history_file: PathBuf) -> Result<Self> {
        let data = tempfile::tempdir().context("cannot create a folder for the demo's data")?;
        let options = PrivateRedisOptions { password: Password::New, ..PrivateRedisOptions::new(data.path()) };
        let redis = PrivateRedis::start(options).await?;
        remove_history(&history_file);
        let mut config = Config::default();
        config.redis.url = redis.url();
        config.history.file = Some(history_file);
        let services = match AllInOne::start(&config, listeners().await?).await {
            Err(AssemblyError::History(error)) => {
                tracing::warn!(error, "this demo keeps no history");
                config.history.file = None;
                AllInOne::start(&config, listeners().await?).await?
            }
            started => started?,
        };
        let services = services.with_views(&config, listener().await?).await?;
        let (url, counters_url) = (services.queue_url(), services.counters_url());
        Ok(OwnServer { url, counters_url, redis, services, _data: data })
    }

    /// Where the queue is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the flights can be counted.
    pub fn counter_services(&self) -> CounterServices {
        CounterServices {
            counters_url: self.counters_url.clone(),
            views_url: self.services.views_url().unwrap_or_default(),
            queue_url: self.url.clone(),
            redis_url: self.redis.url(),
        }
    }

    /// Stops the counters, then the queue that they use, then Redis. What fails is logged.
    pub async fn stop(self) {
        if let Err(error) = self.services.stop().await {
            tracing::warn!(%error, "a service of the demo did not stop well");
        }
        self.redis.stop().await;
    }
}

/// Two free ports on loopback.
async fn listeners() -> Result<Listeners> {
    Ok(Listeners { queue: listener().await?, counters: listener().await? })
}

/// A free port on loopback.
async fn listener() -> Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.context("cannot bind a free port")
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
