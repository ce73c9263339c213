//! All processes of a large installation: two servers on a Redis, Kafka, two indexers, Elasticsearch.

use crate::crash::machines::Machines;
use crate::system::program::{self, Running, SOON};
use elasticsearch::http::Method;
use elasticsearch::http::headers::HeaderMap;
use elasticsearch::http::transport::Transport;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tallystone_tests::{TestElasticsearch, TestKafka, lasting_port};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(10);

/// The processes.
pub(super) struct Installation {
    pub(super) machines: Machines,
    pub(super) kafka: TestKafka,
    pub(super) elasticsearch: TestElasticsearch,
    pub(super) indexers: [Indexer; 2],
}

impl Installation {
    /// Starts all processes except the second indexer. Clients retry calls for this long.
    pub(super) async fn start(retry_for: Duration) -> Installation {
        let (kafka, elasticsearch) = tokio::join!(TestKafka::start(), TestElasticsearch::start());
        let config = format!(
            "relay_leader_lease_ms = 1000\n[kafka]\nbrokers = '{}'\npartitions = 4\n[elasticsearch]\nurl = '{}'\n",
            kafka.address(),
            elasticsearch.address()
        );
        let indexer = || Indexer::new(kafka.address(), elasticsearch.address());
        let mut indexers = [indexer(), indexer()];
        indexers[0].start().await;
        let machines = Machines::start_with(&config, retry_for).await;
        Installation { machines, kafka, elasticsearch, indexers }
    }

    /// Begins or ends what a disk above its flood stage does to every index.
    pub(super) async fn read_only(&self, blocked: bool) {
        let raw = Transport::single_node(&self.elasticsearch.address()).expect("a transport");
        let value = if blocked { json!(true) } else { json!(null) };
        let body = json!({ "index.blocks.read_only_allow_delete": value }).to_string();
        let sent = raw.send(Method::Put, "tallystone-*/_settings", HeaderMap::new(), None::<&()>, Some(body), None);
        assert!(sent.await.expect("a response").status_code().is_success());
    }
}

/// One `tallystone indexer`.
pub(super) struct Indexer {
    kafka: String,
    elasticsearch: String,
    address: SocketAddr,
    process: Option<Running>,
}

impl Indexer {
    fn new(kafka: String, elasticsearch: String) -> Indexer {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, lasting_port()));
        Indexer { kafka, elasticsearch, address, process: None }
    }

    /// Starts it, if it is not running, and waits until it listens.
    pub(super) async fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        // The first call builds the program, which must not count as start time.
        program::path();
        let listen = self.address.to_string();
        let (kafka, elasticsearch) = (self.kafka.as_str(), self.elasticsearch.as_str());
        let args = ["indexer", "--listen", &listen, "--kafka-brokers", kafka, "--elasticsearch-url", elasticsearch];
        let mut command = program::command(&[&args[..], &["--log", "error"]].concat());
        // One node cannot hold replicas, and Kafka's default would wait 45 s for a dead member.
        command.env("TALLYSTONE_ELASTICSEARCH_REPLICAS", "0");
        command.env("TALLYSTONE_KAFKA_PARTITIONS", "4");
        command.env("TALLYSTONE_KAFKA_PROPERTIES", "[\"session.timeout.ms=6000\"]");
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
}
