//! What is killed and stopped: a durable Redis, a server of counters, and view counters.

use super::life::PARTITIONS;
use super::stage::Http;
use super::waiting_records;
use crate::counting::house::until;
use crate::crash::machines::{Redis, Server, config_file};
use std::path::PathBuf;
use tempfile::TempDir;

/// All of them.
pub(super) struct Machines {
    pub(super) redis: Redis,
    pub(super) counters: Server,
    pub(super) views: Vec<Server>,
    config: PathBuf,
    _dir: TempDir,
}

impl Machines {
    /// With this number of view counters, each on two partitions.
    pub(super) async fn start(views: usize) -> Machines {
        Machines::start_with("", views).await
    }

    /// With more keys of `[views]` (TOML).
    pub(super) async fn start_with(config: &str, views: usize) -> Machines {
        let redis = Redis::start().await;
        let counters = redis.url();
        Machines::on(redis, &counters, &[], config, views).await
    }

    /// The counters are on another Redis, and have more arguments.
    pub(super) async fn start_on(counters_redis: &str, counters_args: &[&str], views: usize) -> Machines {
        Machines::on(Redis::start().await, counters_redis, counters_args, "", views).await
    }

    async fn on(redis: Redis, counters_redis: &str, counters_args: &[&str], config: &str, views: usize) -> Machines {
        let (dir, config) = config_file(&format!("[views]\npartitions = {PARTITIONS}\n{config}"));
        let args = ["counters", "--redis-url", counters_redis, "--log", "error"];
        let counters = Server::start_as(&[&args[..], counters_args].concat()).await;
        let mut machines = Machines { redis, counters, views: Vec::new(), config, _dir: dir };
        for _ in 0..views {
            machines.add_views().await;
        }
        machines
    }

    /// One more view counter.
    pub(super) async fn add_views(&mut self) {
        let (redis, counters) = (self.redis.url(), self.counters.url());
        let config = self.config.to_str().expect("a plain path");
        let args = ["views", "--config", config, "--redis-url", &redis, "--counters", &counters, "--log", "error"];
        self.views.push(Server::start_with_metrics(&args).await);
    }

    /// A client of one of them.
    pub(super) fn http(&self, number: usize) -> Http {
        Http::new(self.views[number].url())
    }

    /// How many entries these streams of both partitions have.
    pub(super) async fn entries_in(&self, streams: &[&str]) -> u64 {
        let (mut redis, mut lengths) = (self.redis.connection().await, redis::pipe());
        for partition in 0..PARTITIONS {
            for stream in streams {
                lengths.cmd("XLEN").arg(format!("tc:views:{{{partition}}}:{stream}"));
            }
        }
        let lengths: Vec<u64> = lengths.query_async(&mut redis).await.expect("streams");
        lengths.iter().sum()
    }

    /// Waits until no entry waits for an owner, and no delta for the counters.
    pub(super) async fn until_nothing_waits(&self) {
        until(async || self.entries_in(&["log", "deltas", "late"]).await, |waiting| *waiting == 0).await;
    }

    /// The times of the deltas that wait for the counters, in Unix ms.
    pub(super) async fn waiting_deltas(&self) -> Vec<u64> {
        let records = waiting_records(&mut self.redis.connection().await, PARTITIONS).await;
        records.iter().filter_map(|(id, _)| id.split('-').next()?.parse().ok()).collect()
    }

    /// The records of deltas that wait for the counters, those that came too late not among them.
    pub(super) async fn waiting_records(&self) -> Vec<Vec<u8>> {
        let records = waiting_records(&mut self.redis.connection().await, PARTITIONS).await;
        records.into_iter().map(|(_, record)| record).collect()
    }
}
