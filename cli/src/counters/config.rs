//! What the service and the workers are told.

use super::unsuited;
use crate::connection::server_url;
use crate::error::CliError;
use crate::server::RedisPromises;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tallystone_client::Client;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_server::ServerConfig;
use tallystone_server::store::ReplicaWait;

#[derive(Args, Debug)]
pub(crate) struct CountersArgs {
    #[command(flatten)]
    flags: ServiceFlags,
    #[command(flatten)]
    redis: RedisFlags,
}

#[derive(Args, Debug)]
pub(crate) struct RollupWorkerArgs {
    #[command(flatten)]
    flags: WorkerFlags,
    #[command(flatten)]
    redis: RedisFlags,
    /// The worker's name, shown by `msg get` and `msg explain` [default: one of its own]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Append what is rolled up when to this file, one line of JSON before each rollup and one after it
    #[arg(long, value_name = "FILE")]
    pub(super) records: Option<PathBuf>,
}

/// As of a server of the queue, at another address.
#[derive(Args, Clone, Debug, Serialize)]
struct ServiceFlags {
    /// Where to serve gRPC and HTTP [default: 127.0.0.1:7610]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    #[serde(flatten)]
    rest: WorkerFlags,
}

/// A worker listens nowhere but for metrics.
#[derive(Args, Clone, Debug, Serialize)]
struct WorkerFlags {
    /// Configuration file (TOML); see docs/operations.md for its keys
    #[arg(long, value_name = "FILE", env = "TALLYSTONE_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Where to serve Prometheus /metrics [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_listen: Option<SocketAddr>,
}

/// Which Redis, and how much it must promise.
#[derive(Args, Clone, Debug, Serialize)]
struct RedisFlags {
    /// The Redis that holds the counters [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    redis_url: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    promises: RedisPromises,
}

/// What is laid over the file and the environment.
#[derive(Serialize)]
pub(super) struct Flags<F> {
    #[serde(flatten)]
    flags: F,
    #[serde(flatten)]
    redis: RedisFlags,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
}

impl CountersArgs {
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.flags.rest.config.clone()
    }

    pub(super) fn flags(self, server: Option<String>) -> Flags<impl Serialize> {
        Flags { flags: self.flags, redis: self.redis, server }
    }
}

impl RollupWorkerArgs {
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.flags.config.clone()
    }

    pub(super) fn flags(self, server: Option<String>) -> Flags<impl Serialize> {
        Flags { flags: self.flags, redis: self.redis, server }
    }
}

/// The configuration of the service; the keys that a server has too mean the same there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CountersConfig {
    /// Where gRPC and HTTP are served.
    pub(super) listen: SocketAddr,
    pub(super) metrics_listen: Option<SocketAddr>,
    #[serde(flatten)]
    pub(super) redis: RedisConfig,
    /// The queue that has the rollups done.
    pub(super) server: String,
}

/// The configuration of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RollupWorkerConfig {
    pub(super) metrics_listen: Option<SocketAddr>,
    #[serde(flatten)]
    pub(super) redis: RedisConfig,
    pub(super) server: String,
}

/// The Redis that has the counters.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RedisConfig {
    redis_url: String,
    allow_volatile: bool,
    replicas_min: u32,
    replica_wait_ms: u64,
}

impl Default for RedisConfig {
    fn default() -> Self {
        let ServerConfig { redis_url, allow_volatile, replicas_min, replica_wait_ms, .. } = ServerConfig::default();
        RedisConfig { redis_url, allow_volatile, replicas_min, replica_wait_ms }
    }
}

impl Default for CountersConfig {
    fn default() -> Self {
        CountersConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7610)),
            metrics_listen: None,
            redis: RedisConfig::default(),
            server: server_url(None),
        }
    }
}

impl Default for RollupWorkerConfig {
    fn default() -> Self {
        RollupWorkerConfig { metrics_listen: None, redis: RedisConfig::default(), server: server_url(None) }
    }
}

impl CountersConfig {
    /// Checks what the server's configuration has too, as there.
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.redis.check(self.listen, self.metrics_listen)
    }

    pub(super) fn queue(&self) -> Result<Client, CliError> {
        queue(&self.server)
    }
}

impl RollupWorkerConfig {
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.redis.check(ServerConfig::default().listen, self.metrics_listen)
    }

    pub(super) fn queue(&self) -> Result<Client, CliError> {
        queue(&self.server)
    }
}

/// The queue may start later than what needs it.
fn queue(server: &str) -> Result<Client, CliError> {
    let client = Client::builder(server_url(Some(server))).call_timeout(Duration::from_secs(5)).connect_lazy();
    client.map_err(|error| CliError::usage(format!("server: {error}")))
}

impl RedisConfig {
    fn check(&self, listen: SocketAddr, metrics_listen: Option<SocketAddr>) -> Result<(), CliError> {
        let RedisConfig { redis_url, allow_volatile, replicas_min, replica_wait_ms } = self.clone();
        let server = ServerConfig {
            listen,
            metrics_listen,
            redis_url,
            allow_volatile,
            replicas_min,
            replica_wait_ms,
            ..ServerConfig::default()
        };
        server.check().map_err(CliError::usage)
    }

    pub(super) async fn connect(&self) -> Result<RedisNamespaces, CliError> {
        let replicas = ReplicaWait { replicas_min: self.replicas_min, wait_ms: self.replica_wait_ms };
        let connected = RedisNamespaces::connect(&self.redis_url, self.allow_volatile, replicas).await;
        connected.map_err(|error| unsuited(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn what_the_help_says_is_so() {
        let mut cli = Cli::command();
        let mut help = |verb| cli.find_subcommand_mut(verb).expect("a verb").render_long_help().to_string();
        let (counters, worker, server) = (help("counters"), help("rollup-worker"), help("server"));
        let CountersConfig { listen, redis, .. } = CountersConfig::default();
        assert!(counters.contains(&format!("[default: {listen}]")), "{counters}");
        for text in [&counters, &worker] {
            assert!(
                text.contains(&format!("The Redis that holds the counters [default: {}]", redis.redis_url)),
                "{text}"
            );
            assert!(!text.contains("7600") && !text.contains("queues ["), "{text}");
        }
        assert!(server.contains("The Redis that holds the queues"), "{server}");
    }
}
