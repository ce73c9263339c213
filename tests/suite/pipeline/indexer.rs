//! One `tallystone indexer` as a process that is killed and started again.

use crate::system::program::{self, Running, SOON, metrics_page};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tallystone_tests::lasting_port;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(10);

/// The process, and how it is started.
pub(super) struct Indexer {
    kafka: String,
    elasticsearch: String,
    address: SocketAddr,
    metrics: SocketAddr,
    environment: Vec<(&'static str, String)>,
    process: Option<Running>,
}

impl Indexer {
    /// Not started yet. The settings are variables of its environment.
    pub(super) fn new(kafka: String, elasticsearch: String, settings: &[(&'static str, &str)]) -> Indexer {
        let [address, metrics] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, lasting_port())));
        // One node cannot hold replicas.
        let fixed = [("TALLYSTONE_ELASTICSEARCH_REPLICAS", "0"), ("TALLYSTONE_KAFKA_PARTITIONS", "4")];
        let environment = fixed.iter().chain(settings).map(|(name, value)| (*name, (*value).to_owned())).collect();
        Indexer { kafka, elasticsearch, address, metrics, environment, process: None }
    }

    /// Starts it, if it is not running, and waits until it listens.
    pub(super) async fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        // The first call builds the program, which must not count as start time.
        program::path();
        let (listen, metrics) = (self.address.to_string(), self.metrics.to_string());
        let (kafka, elasticsearch) = (self.kafka.as_str(), self.elasticsearch.as_str());
        let args = ["indexer", "--listen", &listen, "--kafka-brokers", kafka, "--elasticsearch-url", elasticsearch];
        let mut command = program::command(&[&args[..], &["--metrics-listen", &metrics, "--log", "warn"]].concat());
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        let mut process = Running::start(command);
        let give_up_at = Instant::now() + SOON;
        while TcpStream::connect(self.address).await.is_err() {
            assert!(!process.has_ended(), "the indexer has ended: {}", process.last_words().await);
            assert!(Instant::now() < give_up_at, "the indexer does not listen");
            sleep(POLL).await;
        }
        self.process = Some(process);
    }

    /// kill -9, if it is running.
    pub(super) async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// kill -9; its metrics, and what it had written.
    pub(super) async fn killed(&mut self) -> String {
        let Some(mut process) = self.process.take() else { return String::new() };
        let metrics = metrics_page(&self.metrics.to_string()).await;
        process.send_kill();
        format!("{}\n{metrics}", process.last_words().await)
    }

    /// Where it serves its metrics.
    pub(super) fn metrics_address(&self) -> String {
        self.metrics.to_string()
    }

    /// The value of one of its metrics without labels; 0: it does not report the metric yet.
    pub(super) async fn metric(&self, name: &str) -> u64 {
        let page = metrics_page(&self.metrics.to_string()).await;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }
}

/// Waits until one of them has ended that was not killed, and returns what it wrote last.
pub(super) async fn any_ended(indexers: &mut [Indexer]) -> String {
    loop {
        for process in indexers.iter_mut().filter_map(|indexer| indexer.process.as_mut()) {
            if process.has_ended() {
                return process.last_words().await;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}
