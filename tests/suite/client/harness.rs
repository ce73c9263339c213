//! A server with the in-memory store, and a connection to it that tests can break.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tallystone_client::{Client, Worker};
use tallystone_model::oracle::Oracle;
use tallystone_server::{QueueTemplates, ServerConfig, TenantConfigs, attach_queue};
use tallystone_serving::Host;
use tallystone_tests::Network;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long anything may take; far longer than it does.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server, client and network of one test, which end with it.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) wire: Network,
    pub(crate) shared_streams: bool,
    clock: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let clock = Arc::new(AtomicU64::new(now.as_millis() as u64));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let store = Arc::new(Oracle::new(clock.clone()));
        let mut tasks = JoinSet::new();
        let host = attach_queue(
            Host::new(),
            store,
            &ServerConfig::default(),
            QueueTemplates::default(),
            &TenantConfigs::default(),
        )
        .unwrap();
        tasks.spawn(async move { host.serve(listener, std::future::pending()).await.unwrap() });
        let wire = Network::to(&format!("http://{server}")).await;
        let client = Client::connect(wire.url()).await.unwrap();
        World { client, wire, shared_streams: false, clock, _tasks: tasks }
    }

    /// Its workers share Work streams.
    pub(crate) fn with_shared_streams(self) -> Self {
        World { shared_streams: true, ..self }
    }

    /// A worker of this queue.
    pub(crate) fn worker(&self, queue: &str) -> Worker {
        Worker::new(self.client.clone(), queue).shared_stream(self.shared_streams)
    }

    /// Advances the store's clock, which does not advance by itself.
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }
}

/// Waits for a future that must become ready.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("still not: {what}"))
}

/// Polls until a condition holds, for statistics that give no signal.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
