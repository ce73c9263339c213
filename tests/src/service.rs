//! A real Kafka and a real Elasticsearch for tests: those of the environment, or started in temporary folders and gone
//! with their last users. Tests stay separate by their names of topics and indices.

use crate::ports::lasting_port;
use std::sync::{Arc, Weak};
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
    /// The variable that says where one is to be found.
    const VARIABLE: &str;

    /// The one that all tests of this process share.
    fn shared() -> &'static Mutex<Weak<TestService<Self>>>;
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

/// One that tests use.
pub struct TestService<S: Service> {
    address: String,
    own: Option<Own<S>>,
}

struct Own<S: Service> {
    options: S::Options,
    // Before the folder, so that it stops before the folder goes.
    process: Mutex<Option<Running<S>>>,
    _dir: TempDir,
}

impl<S: Service> TestService<S> {
    /// A separate one, which the test may kill.
    pub async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options = S::options(&dir, lasting_port());
        let process = S::start(options.clone()).await.expect("a service");
        let address = S::address(&process);
        TestService { address, own: Some(Own { options, process: Mutex::new(Some(process)), _dir: dir }) }
    }

    /// The one that all tests of this process share: that of the environment (`TALLYSTONE_TEST_KAFKA`, HOST:PORT;
    /// `TALLYSTONE_TEST_ELASTICSEARCH`, a URL), or one started for them.
    pub async fn shared() -> Arc<Self> {
        let mut shared = S::shared().lock().await;
        if let Some(service) = shared.upgrade() {
            return service;
        }
        let service = Arc::new(match std::env::var(S::VARIABLE) {
            Ok(address) => TestService { address, own: None },
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

    /// Starts it where it was, with the data that it had, if it is not running.
    pub async fn start_again(&self) {
        let mut process = self.own().process.lock().await;
        if process.is_none() {
            *process = Some(S::start(self.own().options.clone()).await.expect("the service, again"));
        }
    }

    fn own(&self) -> &Own<S> {
        self.own.as_ref().expect("a service that was started here")
    }
}
