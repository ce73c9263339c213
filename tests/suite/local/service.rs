//! The processes that are killed and stopped: a Redis that writes each reply's changes to disk first, a queue, the counters, a worker.

use super::namespace;
use crate::counting::house::until;
use crate::crash::machines::{Redis, Server};
use crate::system::program::{Running, command};
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::{CounterClient, CounterType, NewAdd};
use tempfile::TempDir;

pub(super) struct Service {
    pub(super) redis: Redis,
    pub(super) counters: Server,
    /// Repeats a call for longer than any outage here.
    pub(super) client: CounterClient,
    _queue: Server,
    _worker: Running,
    _dir: TempDir,
}

impl Service {
    /// With the namespaces `accurate` and `eventual`.
    pub(super) async fn start() -> Service {
        let dir = TempDir::new().expect("a temporary folder");
        let config = dir.path().join("tallystone.toml");
        std::fs::write(&config, "[server]\nsweeper_leader_lease_ms = 1000\n").expect("a file");
        let redis = Redis::start().await;
        let (redis_url, queue) = (redis.url(), Server::start(redis.url(), &config).await);
        let (queue_url, log) = (queue.url(), ["--log", "error"]);
        let args = ["counters", "--redis-url", &redis_url, "--server", &queue_url];
        let counters = Server::start_as(&[&args[..], &log].concat()).await;
        let args = ["rollup-worker", "--redis-url", &redis_url, "--server", &queue_url, "--name", "worker"];
        let worker = Running::start(command(&[&args[..], &log].concat()));
        let builder = CounterClient::builder(counters.url()).retry_for(Duration::from_secs(60));
        let client = builder.call_timeout(Duration::from_secs(5)).connect_lazy().expect("a good address");
        for (name, counter_type) in [("accurate", CounterType::Accurate), ("eventual", CounterType::Eventual)] {
            client.put_namespace(name, namespace(counter_type)).await.expect("a new namespace");
        }
        // A worker that has not connected yet would end when Redis is killed.
        client.add("eventual", NewAdd::new("first", 1)).await.expect("an add");
        let rolled_up = async || client.get("eventual", "first").await.expect("a count").count;
        until(rolled_up, |count| *count == 1).await;
        Service { redis, counters, client, _queue: queue, _worker: worker, _dir: dir }
    }

    /// Halts the counters, or lets them continue.
    pub(super) fn signal_counters(&self, signal: Signal) {
        self.counters.signal(signal);
    }
}
