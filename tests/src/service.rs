//! A real Kafka and a real Elasticsearch for tests: those of the environment, else containers if these are chosen, else
//! local processes in temporary folders. What was started is gone with its last user. Tests stay separate by their names
//! of topics and indices.

use crate::container::{self, ContainerOptions, ServiceContainer};
use crate::http::http_builder;
use crate::ports::lasting_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tallystone_local::{
    Elasticsearch, Kafka, LocalError, PrivateElasticsearch, PrivateElasticsearchOptions, PrivateKafka,
    PrivateKafkaOptions, Running,
};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// A Kafka.
pub type TestKafka = TestService<Kafka>;
/// An Elasticsearch.
pub type TestElasticsearch = TestService<Elasticsearch>;

/// A service whose address the environment may name; without it, one is started.
pub trait Service: Sized + 'static {
    /// How it is started.
    type Options: Clone;
    /// The variable with the address of one.
    const VARIABLE: &str;

    /// The one that all tests of this process share.
    fn shared() -> &'static Mutex<Weak<TestService<Self>>>;
    /// As a container, on this port.
    fn container(port: u16) -> ContainerOptions;
    /// The address of one on this port.
    fn address_on(port: u16) -> String;
    /// Whether the one there serves.
    #[allow(async_fn_in_trait, reason = "of this crate, and never spawned")]
    async fn answers(address: &str) -> bool;
    /// In this folder, on this port.
    fn options(dir: &TempDir, port: u16) -> Self::Options;
    /// Starts one.
    #[allow(async_fn_in_trait, reason = "of this crate, and never spawned")]
    async fn start(options: Self::Options) -> Result<Running<Self>, LocalError>;
    /// Where it listens.
    fn address(running: &Running<Self>) -> String;
}

impl Service for Kafka {
    type Options = PrivateKafkaOptions;
    const VARIABLE: &str = "TALLYSTONE_TEST_KAFKA";

    fn shared() -> &'static Mutex<Weak<TestKafka>> {
        static SHARED: Mutex<Weak<TestKafka>> = Mutex::const_new(Weak::new());
        &SHARED
    }

    fn container(port: u16) -> ContainerOptions {
        let environment = vec![
            ("KAFKA_NODE_ID", "1".to_owned()),
            ("KAFKA_PROCESS_ROLES", "broker,controller".to_owned()),
            ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9093".to_owned()),
            ("KAFKA_LISTENERS", "PLAINTEXT://:9092,CONTROLLER://:9093".to_owned()),
            ("KAFKA_ADVERTISED_LISTENERS", format!("PLAINTEXT://127.0.0.1:{port}")),
            ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER".to_owned()),
            ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned()),
            ("KAFKA_LOG_DIRS", "/var/lib/kafka/data".to_owned()),
            ("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false".to_owned()),
            ("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "4".to_owned()),
            ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1".to_owned()),
            ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1".to_owned()),
            ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1".to_owned()),
            ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0".to_owned()),
            ("KAFKA_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS", "1000".to_owned()),
            ("KAFKA_HEAP_OPTS", "-Xmx256m".to_owned()),
        ];
        ContainerOptions { image: ("apache/kafka", "4.1.0"), inner_port: 9092, port, environment, command: Vec::new() }
    }

    fn address_on(port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    async fn answers(address: &str) -> bool {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", address).set_log_level(RDKafkaLogLevel::Emerg);
        let read = move || {
            let consumer: BaseConsumer = config.create().expect("a consumer");
            consumer.fetch_metadata(None, PROBE_WAIT).is_ok_and(|metadata| !metadata.brokers().is_empty())
        };
        tokio::task::spawn_blocking(read).await.expect("it does not panic")
    }

    fn options(dir: &TempDir, port: u16) -> PrivateKafkaOptions {
        PrivateKafkaOptions { port: Some(port), ..PrivateKafkaOptions::new(dir.path()) }
    }

    async fn start(options: PrivateKafkaOptions) -> Result<PrivateKafka, LocalError> {
        PrivateKafka::start(options).await
    }

    fn address(running: &PrivateKafka) -> String {
        running.address()
    }
}

impl Service for Elasticsearch {
    type Options = PrivateElasticsearchOptions;
    const VARIABLE: &str = "TALLYSTONE_TEST_ELASTICSEARCH";

    fn shared() -> &'static Mutex<Weak<TestElasticsearch>> {
        static SHARED: Mutex<Weak<TestElasticsearch>> = Mutex::const_new(Weak::new());
        &SHARED
    }

    fn container(port: u16) -> ContainerOptions {
        let environment = vec![
            ("discovery.type", "single-node".to_owned()),
            ("xpack.security.enabled", "false".to_owned()),
            ("cluster.routing.allocation.disk.threshold_enabled", "false".to_owned()),
            ("indices.breaker.total.use_real_memory", "false".to_owned()),
            ("ES_JAVA_OPTS", "-Xms512m -Xmx512m".to_owned()),
        ];
        let image = ("docker.elastic.co/elasticsearch/elasticsearch", "8.19.21");
        ContainerOptions { image, inner_port: 9200, port, environment, command: Vec::new() }
    }

    fn address_on(port: u16) -> String {
        format!("http://127.0.0.1:{port}")
    }

    async fn answers(address: &str) -> bool {
        let health = format!("{address}/_cluster/health?wait_for_status=yellow&timeout=1s");
        let client = http_builder().timeout(PROBE_WAIT).build().expect("a client");
        client.get(health).send().await.is_ok_and(|response| response.status().is_success())
    }

    fn options(dir: &TempDir, port: u16) -> PrivateElasticsearchOptions {
        PrivateElasticsearchOptions { port: Some(port), ..PrivateElasticsearchOptions::new(dir.path()) }
    }

    async fn start(options: PrivateElasticsearchOptions) -> Result<PrivateElasticsearch, LocalError> {
        PrivateElasticsearch::start(options).await
    }

    fn address(running: &PrivateElasticsearch) -> String {
        running.url()
    }
}

/// How long one probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(5);

/// One that tests use.
pub struct TestService<S: Service> {
    address: String,
    kept: Kept<S>,
}

/// Where it runs.
#[cfg_attr(feature = "containers", expect(clippy::large_enum_variant, reason = "a process has a few of them"))]
enum Kept<S: Service> {
    /// Where the environment says.
    Elsewhere,
    Container {
        _container: ServiceContainer,
    },
    Process(Own<S>),
}

struct Own<S: Service> {
    options: S::Options,
    // Before the folder, so that it stops before the folder goes.
    process: Mutex<Option<Running<S>>>,
    _dir: TempDir,
}

impl<S: Service> TestService<S> {
    /// A separate one, which the test may kill: a local process.
    pub async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options = S::options(&dir, lasting_port());
        let process = S::start(options.clone()).await.expect("a service");
        let address = S::address(&process);
        let own = Own { options, process: Mutex::new(Some(process)), _dir: dir };
        TestService { address, kept: Kept::Process(own) }
    }

    async fn contained() -> Self {
        let port = lasting_port();
        let address = S::address_on(port);
        let container = ServiceContainer::start(S::container(port), async || S::answers(&address).await).await;
        TestService { address, kept: Kept::Container { _container: container } }
    }

    /// The one that all tests of this process share: that of the environment (`TALLYSTONE_TEST_KAFKA`, HOST:PORT;
    /// `TALLYSTONE_TEST_ELASTICSEARCH`, a URL), else one in a container if `TALLYSTONE_TEST_PROVIDER` chooses those,
    /// else a local process.
    pub async fn shared() -> Arc<Self> {
        let mut shared = S::shared().lock().await;
        if let Some(service) = shared.upgrade() {
            return service;
        }
        let service = Arc::new(match std::env::var(S::VARIABLE) {
            Ok(address) => TestService { address, kept: Kept::Elsewhere },
            Err(_) if container::is_chosen() => TestService::contained().await,
            Err(_) => TestService::start().await,
        });
        *shared = Arc::downgrade(&service);
        service
    }

    /// Where it listens, or will again: HOST:PORT of a Kafka, the URL of an Elasticsearch.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub async fn kill(&self) {
        if let Some(process) = self.own().process.lock().await.take() {
            process.kill();
            process.ended().await;
        }
    }

    /// Sends its process a signal.
    pub async fn signal(&self, signal: Signal) {
        let process = self.own().process.lock().await;
        let pid = process.as_ref().expect("it runs").pid();
        kill(Pid::from_raw(pid.cast_signed()), signal).expect("a process");
    }

    /// Starts it where it was, with the data that it had, if it is not running.
    pub async fn start_again(&self) {
        let mut process = self.own().process.lock().await;
        if process.is_none() {
            *process = Some(S::start(self.own().options.clone()).await.expect("the service, again"));
        }
    }

    fn own(&self) -> &Own<S> {
        match &self.kept {
            Kept::Process(own) => own,
            _ => panic!("only a service that was started here as a process is killed"),
        }
    }
}
