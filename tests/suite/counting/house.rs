//! Servers of counters within this process, on a separate Redis; with a queue and workers where a test needs rollups.

use super::machines::listed;
use crate::histories::pair::Server;
use crate::system::program::SOON;
use redis::aio::ConnectionLike;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tallystone_assembly::{RollupWorker, attach_counters};
use tallystone_client::{Client, Counted, CounterClient, CounterEntry, NamespaceConfig};
use tallystone_counters::CountersConfig;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_server::store::{Clock, RedisStore};
use tallystone_serving::{Host, Running};
use tallystone_tests::{Polling, TestRedis, volatile};
use tallystone_workers::{Record, Records, WorkerOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::transport::Channel;

/// Two servers of counters. All of it ends when it is dropped.
pub(crate) struct House {
    pub(crate) redis: TestRedis,
    /// Where each answers.
    pub(crate) urls: Vec<String>,
    /// Clients of each.
    pub(crate) clients: Vec<CounterClient>,
    /// The queue that drives them, if there is one.
    pub(crate) queue: Option<Client>,
    records: PathBuf,
    servers: Vec<Running>,
    _worker: Option<RollupWorker>,
    _server: Option<Server>,
    _dir: TempDir,
}

impl House {
    /// Without rollups.
    pub(crate) async fn without_rollups() -> Self {
        House::start(false, false).await
    }

    /// With a queue, but without workers.
    pub(crate) async fn without_worker() -> Self {
        House::start(true, false).await
    }

    /// With a queue and a worker.
    pub(crate) async fn with_rollups() -> Self {
        House::start(true, true).await
    }

    async fn start(has_queue: bool, has_worker: bool) -> Self {
        House::on(TestRedis::start().await, has_queue, has_worker).await
    }

    /// On this Redis.
    pub(crate) async fn on(redis: TestRedis, has_queue: bool, has_worker: bool) -> Self {
        let queue = if has_queue { Some(redis.store(Clock::default()).await) } else { None };
        House::driven_by(redis, queue, has_worker).await
    }

    /// On a Redis whose clock the test sets: no process compares it with another clock.
    pub(crate) async fn on_any_clock(redis: TestRedis) -> Self {
        let queue = redis.store(Clock::redis("queues", 0)).await;
        House::assembled(redis, Some(queue), true, 0).await
    }

    /// On this Redis, with this store of the queue.
    pub(crate) async fn driven_by(redis: TestRedis, queue_store: Option<RedisStore>, has_worker: bool) -> Self {
        House::assembled(redis, queue_store, has_worker, CLOCK_SKEW_MAX_MS).await
    }

    async fn assembled(redis: TestRedis, queue_store: Option<RedisStore>, has_worker: bool, skew_max_ms: u32) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let (mut server, mut queue, mut worker) = (None, None, None);
        let records = dir.path().join("records");
        if let Some(queue_store) = queue_store {
            let started = Server::start_on(queue_store).await;
            let client = Client::connect(started.url()).await.expect("a server that listens");
            if has_worker {
                let namespaces = connect(&redis, skew_max_ms).await;
                worker = Some(start_worker(namespaces, client.clone(), &records));
            }
            (server, queue) = (Some(started), Some(client));
        }
        let waiting = CountersConfig::default().waiting();
        let (mut servers, mut urls, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let host = Host::new().http_hosts(&["Counters.example".to_owned()]);
            let host = attach_counters(host, connect(&redis, skew_max_ms).await, queue.clone(), waiting);
            let server = Running::start(host, listener).expect("a bound port");
            let url = server.url();
            servers.push(server);
            // Nothing is ever away here: what has to be repeated is a failure of the test.
            let builder = CounterClient::builder(&url).retry_for(Duration::ZERO);
            clients.push(builder.connect().await.expect("a server that listens"));
            urls.push(url);
        }
        House { redis, urls, clients, queue, records, servers, _worker: worker, _server: server, _dir: dir }
    }

    /// A worker, from now on.
    pub(super) async fn start_worker(&mut self) {
        let queue = self.queue.clone().expect("a house with a queue");
        let namespaces = connect(&self.redis, CLOCK_SKEW_MAX_MS).await;
        self._worker = Some(start_worker(namespaces, queue, &self.records));
    }

    /// Stops the server of this number, and waits until it has ended.
    pub(super) async fn stop(&mut self, server: usize) {
        self.servers.remove(server).stop().await.expect("it stops in order");
    }

    /// How often Redis has executed this command so far, inside scripts too.
    pub(super) async fn calls(&self, command: &str) -> u64 {
        calls(&mut self.redis.connection().await, command).await
    }

    /// The commands that Redis has executed so far, those inside scripts included.
    pub(super) async fn commands(&self) -> u64 {
        let mut connection = self.redis.connection().await;
        let info: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("statistics");
        let calls = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
        info.lines().filter(|line| !line.starts_with("cmdstat_info")).filter_map(calls).sum()
    }

    /// Makes or changes a namespace, through the first server.
    pub(crate) async fn put(&self, namespace: &str, config: NamespaceConfig) {
        self.clients[0].put_namespace(namespace, config).await.expect("a good configuration");
    }

    /// What no client of ours would send.
    pub(crate) async fn wire(&self, via: usize) -> Wire {
        let channel = Channel::from_shared(self.urls[via].clone()).expect("a good address").connect().await;
        Wire { counters: CountersClient::new(channel.expect("a server that listens")) }
    }

    /// A count, through one of the servers.
    pub(crate) async fn count(&self, via: usize, namespace: &str, counter: &str) -> Counted {
        self.clients[via].get(namespace, counter).await.expect("a count")
    }

    /// A counter as the last rollup left it, without a read of its count.
    pub(crate) async fn entry(&self, namespace: &str, counter: &str) -> Option<CounterEntry> {
        listed(&self.clients[1], namespace).await.remove(counter)
    }

    /// Waits until the last rollup of a counter is as expected.
    pub(crate) async fn until_entry(
        &self,
        namespace: &str,
        counter: &str,
        is_expected: impl Fn(&CounterEntry) -> bool,
    ) -> CounterEntry {
        let read = async || self.entry(namespace, counter).await;
        until(read, |entry| entry.as_ref().is_some_and(&is_expected)).await.expect("the expected entry")
    }

    /// What the worker has written of one namespace.
    pub(crate) fn records(&self, namespace: &str) -> Vec<Record> {
        let records = Records::read(&self.records).expect("records");
        records.into_iter().filter(|record| record.namespace == namespace).collect()
    }
}

async fn connect(redis: &TestRedis, skew_max_ms: u32) -> RedisNamespaces {
    let connected = RedisNamespaces::connect(&volatile(&redis.url()), Clock::redis("counters", skew_max_ms)).await;
    connected.expect("the redis-server of the test")
}

fn start_worker(namespaces: RedisNamespaces, queue: Client, records: &Path) -> RollupWorker {
    let written = Arc::new(Records::open(records).expect("a file"));
    let options = WorkerOptions { name: "worker".to_owned(), records: Some(written), ..WorkerOptions::default() };
    RollupWorker::start(namespaces, queue, options)
}

/// How often a Redis has executed this command so far, inside scripts too.
pub(crate) async fn calls(connection: &mut impl ConnectionLike, command: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.expect("statistics");
    let start = format!("cmdstat_{command}:calls=");
    let calls = info.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
    calls.unwrap_or_default()
}

/// Reads until it is as expected.
pub(crate) async fn until<T: std::fmt::Debug>(read: impl AsyncFn() -> T, is_expected: impl Fn(&T) -> bool) -> T {
    let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
    loop {
        let seen = read().await;
        if is_expected(&seen) {
            return seen;
        }
        assert!(Instant::now() < give_up_at, "still {seen:?}");
        polling.pause().await;
    }
}

/// The generated client of one server.
pub(crate) struct Wire {
    pub(crate) counters: CountersClient<Channel>,
}

impl Wire {
    /// Adds without a token: it happens when it is counted.
    pub(crate) async fn add(&mut self, namespace: &str, counter: &str, delta: i64) -> wire::AddCountResponse {
        let (namespace, counter) = (namespace.to_owned(), counter.to_owned());
        let request = wire::AddCountRequest { namespace, counter, delta, ..Default::default() };
        self.counters.add_count(request).await.expect("an add").into_inner()
    }

    /// Clears without a token.
    pub(crate) async fn clear(&mut self, namespace: &str, counter: &str) -> wire::ClearCountResponse {
        let (namespace, counter) = (namespace.to_owned(), counter.to_owned());
        let request = wire::ClearCountRequest { namespace, counter, token: None };
        self.counters.clear_count(request).await.expect("a clear").into_inner()
    }
}
