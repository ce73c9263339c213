//! A Kafka, a Redis and a server of counters, and view counters whose log is in that Kafka.

use crate::crash::machines::{Redis, Server};
use crate::ingest::topics::Topics;
use crate::views::stage::Http;
use crate::views::view;
use std::path::PathBuf;
use std::sync::Arc;
use tallystone_tests::TestKafka;
use tempfile::TempDir;

/// Videos with these names are in both of two partitions.
const ENDS: usize = 8;

/// If a test fails, it prints what its processes have logged.
const LOG: &str = "info,tallystone_kafka=debug,tallystone_views=debug,tallystone_ingest=debug";

/// All of them.
pub(crate) struct Stage {
    pub(crate) kafka: Arc<TestKafka>,
    pub(crate) topics: Topics,
    pub(crate) redis: Redis,
    pub(crate) counters: Server,
    pub(crate) views: Vec<Server>,
    config: PathBuf,
    _dir: TempDir,
}

impl Stage {
    /// On a topic of views that the test has created: its records have the times that their producer has set.
    pub(crate) async fn start(kafka: Arc<TestKafka>, test: &str, partitions: i32, config: &str) -> Stage {
        let topics = Topics::create(kafka.address(), test, partitions).await;
        let (redis, dir) = (Redis::start().await, TempDir::new().expect("a temporary folder"));
        let counters = Server::start_as(&["counters", "--redis-url", &redis.url(), "--log", "error"]).await;
        let path = dir.path().join("tallystone.toml");
        std::fs::write(&path, format!("[views]\npartitions = {partitions}\n{config}")).expect("a file");
        Stage { kafka, topics, redis, counters, views: Vec::new(), config: path, _dir: dir }
    }

    /// One more view counter.
    pub(crate) async fn add_views(&mut self) {
        let topic = self.topics.source.clone();
        self.add_views_on(&topic).await;
    }

    /// One more view counter, on this topic.
    pub(crate) async fn add_views_on(&mut self, topic: &str) {
        let (brokers, counters) = (self.topics.brokers.clone(), self.counters.url());
        let config = self.config.to_str().expect("a plain path");
        let mut args = vec!["views", "--config", config, "--kafka-brokers", &brokers, "--topic", topic];
        args.extend(["--counters", &counters, "--log", LOG]);
        let views = Server::start_as(&args).await;
        self.views.push(views);
    }

    /// A client of one of them.
    pub(crate) fn http(&self, number: usize) -> Http {
        Http::new(self.views[number].url())
    }

    /// Everything that was posted or written before is counted when this returns: later views of both partitions are. `name` is used
    /// once.
    pub(crate) async fn has_counted_all(&self, number: usize, name: &str) {
        let http = self.http(number);
        for end in 0..ENDS {
            http.until_accepted(&view(&format!("{name}-{end}"), "u")).await;
        }
        for end in 0..ENDS {
            http.until_count(&format!("/v1/videos/{name}-{end}/views"), 1).await;
        }
    }
}
