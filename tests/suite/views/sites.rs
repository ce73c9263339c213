//! Two view counters, and all that they need: the components of a site, each of which can be killed.

use super::machines::Machines;
use super::stage::Http;
use crate::crash::machines::{Redis, Server};
use crate::kafka::views::Stage;
use crate::system::program::{Running, command};
use std::sync::Arc;
use tallystone_tests::TestKafka;
use tempfile::TempDir;

/// A site.
pub(super) trait Site {
    /// A client of one of the two view counters.
    fn http(&self, number: usize) -> Http;
    /// What can be killed.
    fn components(&self) -> &'static [&'static str];
    /// Kills a component (SIGKILL).
    async fn kill(&mut self, what: &str);
    /// Starts it again.
    async fn restart(&mut self, what: &str);
}

/// With the log in a Redis, and a queue and a worker for the rollups of the counters.
pub(super) struct OnRedis {
    machines: Machines,
    counts: Redis,
    queue: Server,
    worker: Option<Running>,
    _dir: TempDir,
}

impl OnRedis {
    pub(super) async fn start() -> OnRedis {
        let counts = Redis::start().await;
        let dir = TempDir::new().expect("a temporary folder");
        let config = dir.path().join("tallystone.toml");
        std::fs::write(&config, "").expect("a file");
        let queue = Server::start(counts.url(), &config).await;
        let machines = Machines::start_on(&counts.url(), &["--server", &queue.url()], 2).await;
        let mut site = OnRedis { machines, counts, queue, worker: None, _dir: dir };
        site.start_worker();
        site
    }

    fn start_worker(&mut self) {
        let (counts, queue) = (self.counts.url(), self.queue.url());
        let args = ["rollup-worker", "--redis-url", &counts, "--server", &queue, "--log", "error"];
        self.worker = Some(Running::start(command(&args)));
    }
}

impl Site for OnRedis {
    fn http(&self, number: usize) -> Http {
        self.machines.http(number)
    }

    fn components(&self) -> &'static [&'static str] {
        &["the log's Redis", "the counters' Redis", "counters", "queue", "rollup worker", "views 0", "views 1"]
    }

    async fn kill(&mut self, what: &str) {
        match what {
            "the log's Redis" => self.machines.redis.kill().await,
            "the counters' Redis" => self.counts.kill().await,
            "counters" => self.machines.counters.kill().await,
            "queue" => self.queue.kill().await,
            "rollup worker" => self.worker.take().expect("it runs").kill().await,
            "views 0" => self.machines.views[0].kill().await,
            _ => self.machines.views[1].kill().await,
        }
    }

    async fn restart(&mut self, what: &str) {
        match what {
            "the log's Redis" => self.machines.redis.restart().await,
            "the counters' Redis" => self.counts.restart().await,
            "counters" => self.machines.counters.restart().await,
            "queue" => self.queue.restart().await,
            "rollup worker" => self.start_worker(),
            "views 0" => self.machines.views[0].restart().await,
            _ => self.machines.views[1].restart().await,
        }
    }
}

/// With the log in a Kafka of one broker.
pub(super) struct OnKafka(Stage);

impl OnKafka {
    pub(super) async fn start() -> OnKafka {
        let mut stage = Stage::start(Arc::new(TestKafka::start().await), "available", 2, "").await;
        for _ in 0..2 {
            // A topic that the program creates: its broker sets the times.
            stage.add_views_on("views").await;
        }
        OnKafka(stage)
    }
}

impl Site for OnKafka {
    fn http(&self, number: usize) -> Http {
        self.0.http(number)
    }

    fn components(&self) -> &'static [&'static str] {
        &["broker", "the counters' Redis", "counters", "views 0", "views 1"]
    }

    async fn kill(&mut self, what: &str) {
        match what {
            "broker" => self.0.kafka.kill().await,
            "the counters' Redis" => self.0.redis.kill().await,
            "counters" => self.0.counters.kill().await,
            "views 0" => self.0.views[0].kill().await,
            _ => self.0.views[1].kill().await,
        }
    }

    async fn restart(&mut self, what: &str) {
        match what {
            "broker" => self.0.kafka.start_again().await,
            "the counters' Redis" => self.0.redis.restart().await,
            "counters" => self.0.counters.restart().await,
            "views 0" => self.0.views[0].restart().await,
            _ => self.0.views[1].restart().await,
        }
    }
}
