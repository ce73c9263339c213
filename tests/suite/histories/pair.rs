//! Two servers on one durable Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::Client;
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_server::{Beside, ServeError, ServerConfig, serve_on};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server in this process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    /// One on the Redis at `redis_url`.
    pub(crate) async fn start(redis_url: &str) -> Self {
        let options = RedisOptions { url: redis_url.to_owned(), ..RedisOptions::default() };
        Server::start_on(RedisStore::connect(options).await.expect("a durable Redis")).await
    }

    /// One on this store.
    pub(crate) async fn start_on(store: RedisStore) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        // A sweeper's turn as short as it may be: another server takes over soon.
        let config = ServerConfig { sweep_lead_ms: 1_000, ..ServerConfig::default() };
        let served = tokio::spawn(serve_on(Arc::new(store), listener, config, Beside::default(), shutdown));
        Server { address, stop, served }
    }

    /// Where clients connect to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it, and waits until it has.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.served.await.expect("a server that does not panic").expect("an orderly end");
    }
}

/// Two of them.
pub(crate) struct Pair {
    pub(crate) clients: [Client; 2],
    servers: [Server; 2],
    redis: PrivateRedis,
    _dir: TempDir,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
        let servers = [Server::start(&redis.url()).await, Server::start(&redis.url()).await];
        let connect = async |server: &Server| {
            // Nothing is ever away here: what has to be repeated is a failure of the test.
            let client = Client::builder(server.url()).retry_for(Duration::ZERO).connect();
            client.await.expect("a server that listens").with_call_timeout(Duration::from_secs(60))
        };
        let clients = [connect(&servers[0]).await, connect(&servers[1]).await];
        Pair { clients, servers, redis, _dir: dir }
    }

    pub(crate) async fn stop(self) {
        drop(self.clients);
        for server in self.servers {
            server.stop().await;
        }
        self.redis.stop().await;
    }
}
