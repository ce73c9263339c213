//! A Redis for tests: a real one, started in a temporary folder or in a container and gone with its last user, or a
//! simulated one in the process.

use crate::connection::{TestConnection, patient_connection};
use crate::container::{self, ContainerOptions, ServiceContainer};
use crate::ports::lasting_port;
use crate::shift::ClockShift;
use std::ffi::OsString;
use std::sync::{Arc, Weak};
use tallystone_link::{Node, RedisConfig, Source};
use tallystone_local::{ClusterNode, Fsync, PrivateRedis, PrivateRedisOptions, make_cluster};
use tallystone_server::store::{Clock, OutboxBound, RedisOptions, RedisStore};
use tallystone_simulator::SimulatedRedis;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The section `[redis]` for a Redis without durability.
pub fn volatile(url: &str) -> RedisConfig {
    RedisConfig { url: url.to_owned(), allow_volatile: true, ..RedisConfig::default() }
}

static SHARED: Mutex<Weak<TestRedis>> = Mutex::const_new(Weak::new());
static SHARED_CLUSTER: Mutex<Weak<TestRedis>> = Mutex::const_new(Weak::new());
/// Primaries of a cluster.
const PRIMARIES: usize = 3;
const CLUSTER_NODE_TIMEOUT_MS: u32 = 5_000;

/// A redis-server without fsync, or a simulated one: its tests are about answers, not about crashes.
pub struct TestRedis {
    url: String,
    kept: Kept,
}

/// Where it runs.
#[cfg_attr(feature = "containers", expect(clippy::large_enum_variant, reason = "a process has a few of them"))]
enum Kept {
    Process {
        // Before the folder, so that it stops before the folder goes.
        process: PrivateRedis,
        _dir: TempDir,
    },
    Container {
        _container: ServiceContainer,
    },
    Simulated(Arc<SimulatedRedis>),
    Cluster {
        _nodes: Vec<PrivateRedis>,
        _dir: TempDir,
    },
}

impl TestRedis {
    /// A separate one for one test: in a container if `TALLYSTONE_TEST_PROVIDER` chooses those, else a local process.
    pub async fn start() -> Self {
        if container::is_chosen() { TestRedis::contained().await } else { TestRedis::process(Vec::new()).await }
    }

    /// A separate one in the process.
    pub fn simulated() -> Self {
        TestRedis { url: "simulated".to_owned(), kept: Kept::Simulated(Arc::new(SimulatedRedis::new(0))) }
    }

    /// A Redis Cluster of three primaries.
    pub async fn cluster() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let (mut nodes, mut processes) = (Vec::new(), Vec::new());
        for number in 0..PRIMARIES {
            let node = ClusterNode { port: lasting_port(), bus_port: lasting_port(), password: None };
            let options = PrivateRedisOptions {
                fsync: Fsync::No,
                port: Some(node.port),
                extra_args: node.arguments(CLUSTER_NODE_TIMEOUT_MS),
                ..PrivateRedisOptions::new(dir.path().join(number.to_string()))
            };
            processes.push(PrivateRedis::start(options).await.expect("a redis-server"));
            nodes.push(node);
        }
        make_cluster(&nodes, PRIMARIES).await.expect("a Redis Cluster");
        let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let url = format!("redis-cluster://{}", hosts.join(","));
        TestRedis { url, kept: Kept::Cluster { _nodes: processes, _dir: dir } }
    }

    /// The Redis Cluster that all tests of this process share.
    pub async fn shared_cluster() -> Arc<Self> {
        let mut shared = SHARED_CLUSTER.lock().await;
        if let Some(redis) = shared.upgrade() {
            return redis;
        }
        let redis = Arc::new(TestRedis::cluster().await);
        *shared = Arc::downgrade(&redis);
        redis
    }

    /// A separate one whose clock the test sets: a local process.
    pub async fn shifted(shift: &ClockShift) -> Self {
        TestRedis::process(shift.environment()).await
    }

    async fn process(environment: Vec<(&'static str, OsString)>) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options = PrivateRedisOptions { fsync: Fsync::No, environment, ..PrivateRedisOptions::new(dir.path()) };
        let process = PrivateRedis::start(options).await.expect("a redis-server");
        TestRedis { url: process.url(), kept: Kept::Process { process, _dir: dir } }
    }

    async fn contained() -> Self {
        let port = lasting_port();
        let url = format!("redis://127.0.0.1:{port}");
        let durable = ["redis-server", "--appendonly", "yes", "--appendfsync", "no", "--save", ""];
        let policy = ["--maxmemory-policy", "noeviction", "--protected-mode", "no", "--bind", "0.0.0.0"];
        let command = [&durable[..], &policy].concat();
        let options =
            ContainerOptions { image: ("redis", "7"), inner_port: 6379, port, environment: Vec::new(), command };
        let client = redis::Client::open(url.as_str()).expect("a valid address");
        let answers = async || match client.get_multiplexed_async_connection().await {
            Ok(mut connection) => redis::cmd("PING").exec_async(&mut connection).await.is_ok(),
            Err(_) => false,
        };
        let container = ServiceContainer::start(options, answers).await;
        TestRedis { url, kept: Kept::Container { _container: container } }
    }

    /// The one that all tests of this process share; queue names keep the tests separate.
    pub async fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().await;
        if let Some(redis) = shared.upgrade() {
            return redis;
        }
        let redis = Arc::new(TestRedis::start().await);
        *shared = Arc::downgrade(&redis);
        redis
    }

    /// Its process, which is a local one: [`TestRedis::shifted`].
    pub fn pid(&self) -> u32 {
        match &self.kept {
            Kept::Process { process, .. } => process.pid(),
            Kept::Container { .. } | Kept::Simulated(_) | Kept::Cluster { .. } => {
                panic!("it has no process of this test")
            }
        }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// A server's store on it. Its outbox keeps everything, and it checks shards when the test calls it.
    pub async fn store(&self, clock: Clock) -> RedisStore {
        let options = RedisOptions {
            url: self.url(),
            partitions: volatile(&self.url).partition_count(),
            allow_volatile: true,
            outbox: OutboxBound { events_max: u32::MAX, ..OutboxBound::default() },
            shard_check_ms: u64::from(u32::MAX),
            clock,
            ..RedisOptions::default()
        };
        let Kept::Simulated(node) = &self.kept else {
            return RedisStore::connect(options).await.expect("a store on the redis-server of the test");
        };
        let store = RedisStore::within_process(node.clone(), options, rand::random::<u64>().to_string());
        node.subscribe(Box::new(store.wake_ups()));
        store
    }

    /// Where a link to it leads.
    pub fn source(&self) -> Source {
        match &self.kept {
            Kept::Simulated(node) => Source::Node(node.clone() as Arc<dyn Node>),
            _ => Source::from(redis::Client::open(self.url()).expect("a valid address")),
        }
    }

    /// Makes every node forget its scripts.
    pub async fn forget_scripts(&self) {
        let hosts = self.url.split_once("://").map_or("", |(_, hosts)| hosts);
        for host in hosts.split(',') {
            let client = redis::Client::open(format!("redis://{host}")).expect("a valid address");
            let mut connection = patient_connection(&client).await.expect("a connection to the node");
            redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.expect("forgotten");
        }
    }

    /// Whether it is a Redis Cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.kept, Kept::Cluster { .. })
    }

    /// A connection that bypasses the store, to read keys.
    pub async fn connection(&self) -> TestConnection {
        match &self.kept {
            Kept::Simulated(node) => TestConnection::Simulated(node.clone()),
            _ => {
                let client = redis::Client::open(self.url()).expect("a valid address");
                let connection = patient_connection(&client).await;
                TestConnection::Network(connection.expect("a connection to the redis-server of the test"))
            }
        }
    }
}
