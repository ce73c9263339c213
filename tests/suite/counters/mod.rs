//! The counters: their event log, their checkpoints and their rollups on a real Redis, compared with the oracle.
//!
//! What lives here: random programs (`exactness`, drawn by `draw`, and `cached`), whose every call goes to the oracle, too
//! (`compared`); tests of one rule each (`accurate`, `archived`, `late`, `duckdb`, `bounds`, `sealing`, `slots`, `event_pages`,
//! `hot`, `labels`, `circulation`, `clocks`, `windows`, `sums`, `recounts`, `regions`, `region_records`, `crossings`, `reset`, `deleted`, `expired`, `servers`,
//! `idle`); stores that stop in the middle (`interrupted`). What may not: the queue, and the wire.

mod accurate;
mod archived;
mod bounded;
mod bounds;
mod cached;
mod circulation;
mod clocks;
mod compared;
mod crossings;
mod deleted;
mod draw;
mod duckdb;
mod event_pages;
mod exactness;
mod expired;
mod hot;
mod idle;
mod interrupted;
mod labels;
mod late;
mod recounts;
mod region_records;
mod regions;
mod reset;
mod sealing;
mod servers;
mod slots;
mod sums;
mod windows;

use compared::Compared;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tallystone_archive::Archive;
use tallystone_counters::namespace::SHARDS;
use tallystone_counters::oracle::Oracle;
use tallystone_counters::redis::{Namespace, RedisNamespace, RedisNamespaces};
use tallystone_counters::{
    Appended, ArchiveConfig, Bounds, Change, Checkpoint, Checkpoints, CounterName, Event, EventArchive, Events, Job,
    Labels, LeaseOrder, NamespaceConfig, NamespaceName, NewEvent, Pending, RolledUp, RollupLog, RollupSchedule,
    roll_up,
};
use tallystone_counters::{Refusal, Token};
use tallystone_link::{Clock, ReplicaWait};
use tallystone_tests::{TestRedis, volatile};
use tokio::sync::Mutex;

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;

/// A namespace of one test's own, on a clock that the test moves.
struct TestNamespace {
    redis: Arc<TestRedis>,
    clock_ms: Arc<AtomicU64>,
    name: NamespaceName,
    config: NamespaceConfig,
    revision: u64,
    store: Compared,
    oracle: Oracle,
    /// Of the calls on Redis and the oracle.
    order: Arc<Mutex<()>>,
    leases: u64,
    /// The latest time before the clock was set back.
    peak_ms: u64,
    archive: Arc<ArchiveFolder>,
}

/// The archive of one test.
struct ArchiveFolder {
    folder: tempfile::TempDir,
    archive: EventArchive,
}

impl ArchiveFolder {
    fn new() -> ArchiveFolder {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("file://{}", folder.path().display());
        let config = ArchiveConfig { interval_ms: 1_000, ..ArchiveConfig::default() };
        let archive = EventArchive::new(Archive::open(&url).expect("an archive"), &config);
        ArchiveFolder { folder, archive }
    }
}

impl TestNamespace {
    async fn new(test: &str, config: NamespaceConfig) -> TestNamespace {
        TestNamespace::on(TestRedis::shared().await, test, config).await
    }

    async fn on(redis: Arc<TestRedis>, test: &str, config: NamespaceConfig) -> TestNamespace {
        let name = NamespaceName::parse(format!("{test}-{:08x}", rand::random::<u32>())).expect("a namespace");
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
        let (oracle, order) = (Oracle::default(), Arc::default());
        let archive = Arc::new(ArchiveFolder::new());
        let store = open(&redis, &name, &config, &clock_ms, 1, &archive).await.expect("a namespace");
        let of_oracle = oracle.open(config.clone(), 1, clock_ms.clone()).expect("a namespace");
        let store = Compared::new(store, of_oracle, Arc::clone(&order));
        TestNamespace {
            redis,
            clock_ms,
            name,
            config,
            revision: 1,
            store,
            oracle,
            order,
            leases: 0,
            peak_ms: 0,
            archive,
        }
    }

    /// One more server, which has this revision of the configuration.
    async fn server(&self, config: &NamespaceConfig, revision: u64) -> Result<Compared, Refusal> {
        self.server_on(config, revision, &self.clock_ms).await
    }

    async fn server_on(
        &self,
        config: &NamespaceConfig,
        revision: u64,
        clock_ms: &Arc<AtomicU64>,
    ) -> Result<Compared, Refusal> {
        let redis = open(&self.redis, &self.name, config, clock_ms, revision, &self.archive).await;
        let oracle = self.oracle.open(config.clone(), revision, clock_ms.clone());
        assert_eq!(redis.as_ref().err(), oracle.as_ref().err(), "of revision {revision}");
        Ok(Compared::new(redis?, oracle?, self.order.clone()))
    }

    /// One more server, whose calls reach the store when its clock says this.
    async fn server_at(&self, now_ms: u64) -> Compared {
        let clock_ms = Arc::new(AtomicU64::new(now_ms));
        self.server_on(&self.config, self.revision, &clock_ms).await.expect("its stores")
    }

    /// A server that reaches only some of the shards of a counter, its home first.
    async fn narrow(&self, shards: u16) -> Compared {
        let config = NamespaceConfig { buckets_per_id: shards, ..self.config.clone() };
        self.server(&config, self.revision).await.expect("its stores")
    }

    /// The namespace has this configuration from now on.
    async fn reconfigure(&mut self, config: NamespaceConfig) {
        (self.config, self.revision) = (config, self.revision + 1);
        self.store = self.server(&self.config, self.revision).await.expect("its stores");
    }

    /// The namespace has another accept limit from now on.
    async fn accept(&mut self, accept_limit_ms: u64) {
        self.reconfigure(NamespaceConfig { accept_limit_ms, ..self.config.clone() }).await;
    }

    /// The time by the store's clock.
    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::SeqCst)
    }

    /// The latest time that the store's clock has shown.
    fn latest_ms(&self) -> u64 {
        self.now_ms().max(self.peak_ms)
    }

    fn at(&self, now_ms: u64) {
        self.clock_ms.store(now_ms, Ordering::SeqCst);
    }

    fn pass(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// The clock is set back, to this time before the latest time that it has shown.
    fn set_back(&mut self, ms: u64) {
        self.peak_ms = self.latest_ms();
        self.at(self.peak_ms - ms);
    }

    /// A later lease than all before.
    fn lease(&mut self) -> LeaseOrder {
        self.leases += 1;
        LeaseOrder { leased_at_ms: self.latest_ms(), fencing_token: self.leases }
    }

    fn job(&mut self, counter: &CounterName) -> Job {
        Job { counter: counter.clone(), lease: self.lease() }
    }

    async fn roll_up(&mut self, name: &str) -> RolledUp {
        let job = self.job(&counter(name));
        roll_up(&self.store, &self.store, &[job]).await.remove(0).expect("a rollup")
    }

    async fn checkpoint(&self, name: &str) -> Checkpoint {
        self.store.read(&[counter(name)]).await.expect("checkpoints").remove(0)
    }

    async fn count(&self, name: &str) -> i64 {
        self.checkpoint(name).await.count
    }

    async fn pending(&self, name: &str) -> Vec<(u16, Pending)> {
        self.store.pending(&[counter(name)]).await.expect("pending").remove(0)
    }

    /// What is due in any shard, with the time since when.
    async fn due(&self, hold_ms: u64) -> Vec<(CounterName, u64)> {
        let mut due = Vec::new();
        for shard in 0..SHARDS {
            due.extend(self.store.due(shard, 1_000, hold_ms).await.expect("an answer").counters);
        }
        due
    }

    /// The events of one window.
    async fn events(&self, name: &str, window: u64) -> Vec<Event> {
        self.store.scan(&counter(name), window..window + 1, usize::MAX).await.expect("events").events
    }

    async fn append_one(&self, event: NewEvent) -> Result<Appended, Refusal> {
        self.store.append(&[event]).await.remove(0)
    }

    /// The count of everything up to now, a while later.
    async fn settled(&mut self, name: &str) -> i64 {
        self.pass(60_000);
        self.roll_up(name).await;
        self.count(name).await
    }
}

/// Drops a future after this number of steps, between two replies of a store, as a process that dies. `None`: it had not ended.
async fn die_after<T>(steps: u64, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), steps);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

async fn open(
    redis: &TestRedis,
    name: &NamespaceName,
    config: &NamespaceConfig,
    clock_ms: &Arc<AtomicU64>,
    revision: u64,
    archive: &ArchiveFolder,
) -> Result<RedisNamespace, Refusal> {
    let clock = Clock::Test(clock_ms.clone());
    let namespaces = match redis.is_cluster() {
        true => RedisNamespaces::connect(&volatile(&redis.url()), clock).await.expect("a Redis Cluster"),
        false => RedisNamespaces::new(redis.source(), ReplicaWait::default(), clock),
    };
    let namespaces = namespaces.with_archive(Some(archive.archive.clone()));
    let (name, config) = (name.clone(), config.clone());
    namespaces.open(&Namespace { name, config, revision, incarnation: 0, kept_from_ms: 0 }).await
}

fn counter(name: &str) -> CounterName {
    CounterName::parse(name).expect("a counter")
}

fn token(text: &str) -> Token {
    Token::parse(text).expect("a token")
}

fn event(name: &str, text: &str, time_ms: u64, change: Change) -> NewEvent {
    let (bounds, labels) = (Bounds::default(), Labels::default());
    NewEvent { counter: counter(name), token: token(text), time_ms: Some(time_ms), change, bounds, labels }
}

fn add(name: &str, token: &str, time_ms: u64, delta: i64) -> NewEvent {
    event(name, token, time_ms, Change::Add(delta))
}

/// An add that happens when it is counted.
fn add_now(name: &str, token: &str, delta: i64) -> NewEvent {
    NewEvent { time_ms: None, ..add(name, token, 0, delta) }
}

/// It has counted, by this call.
fn counted(time_ms: u64) -> Result<Appended, Refusal> {
    Ok(Appended { time_ms, duplicate: false })
}

/// It had counted before.
fn duplicate(time_ms: u64) -> Result<Appended, Refusal> {
    Ok(Appended { time_ms, duplicate: true })
}
