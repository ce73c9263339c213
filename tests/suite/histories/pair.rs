//! Two servers on one durable Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tallystone_assembly::{Config, History, queue_over};
use tallystone_client::Client;
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_server::ServerConfig;
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_serving::{Ports, Running};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// A server in this process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    running: Running,
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
        // The shortest leader lease that is allowed: another server takes over soon.
        let server = ServerConfig { sweeper_leader_lease_ms: 1_000, ..ServerConfig::default() };
        let config = Config { server, ..Config::default() };
        let host = queue_over(Arc::new(store), History::default(), &config, &Ports::default());
        let running = Running::start(host.expect("a good configuration"), listener).expect("a bound port");
        Server { address, running }
    }

    /// Where clients connect to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it, and waits until it has.
    pub(crate) async fn stop(self) {
        self.running.stop().await.expect("an orderly end");
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
