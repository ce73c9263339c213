//! The counters: their event log, their checkpoints and their rollups on a real Redis, beside a model of what a counter is.
//!
//! What lives here: `exactness` (random programs against the model), `bounds` (one rule each), and the stores that they
//! interrupt. What may not: the queue, and the wire.

mod bounds;
mod exactness;
mod interrupted;
mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_counters::redis::{RedisNamespace, RedisNamespaces, scripts};
use tallystone_counters::{
    Appended, Change, CounterName, EventLog, LeaseOrder, NamespaceConfig, NamespaceName, NewEvent,
};
use tallystone_counters::{Refusal, Token};
use tallystone_link::{Clock, Link, ReplicaWait};
use tallystone_tests::TestRedis;

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;

/// A namespace of one test's own, on a clock that the test moves.
struct Place {
    redis: Arc<TestRedis>,
    clock_ms: Arc<AtomicU64>,
    name: NamespaceName,
    config: NamespaceConfig,
    store: RedisNamespace,
    leases: u64,
}

impl Place {
    async fn new(test: &str, config: NamespaceConfig) -> Place {
        let redis = TestRedis::shared().await;
        let name = NamespaceName::parse(format!("{test}-{:08x}", rand::random::<u32>())).expect("a namespace");
        let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
        let store = open(&redis, &name, &config, &clock_ms, 1).await.expect("a namespace");
        Place { redis, clock_ms, name, config, store, leases: 0 }
    }

    /// One more server, which has this revision of the configuration.
    async fn server(&self, config: &NamespaceConfig, revision: u64) -> Result<RedisNamespace, Refusal> {
        open(&self.redis, &self.name, config, &self.clock_ms, revision).await
    }

    /// The namespace has another accept limit from now on.
    async fn accept(&mut self, accept_limit_ms: u64) {
        self.config.accept_limit_ms = accept_limit_ms;
        self.store = self.server(&self.config, 2).await.expect("its stores");
    }

    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::SeqCst)
    }

    fn pass(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// A later lease than all before.
    fn lease(&mut self) -> LeaseOrder {
        self.leases += 1;
        LeaseOrder { leased_at_ms: self.now_ms(), fencing_token: self.leases }
    }

    async fn append_one(&self, event: NewEvent) -> Result<Appended, Refusal> {
        self.store.append(&[event]).await.remove(0)
    }
}

async fn open(
    redis: &TestRedis,
    name: &NamespaceName,
    config: &NamespaceConfig,
    clock_ms: &Arc<AtomicU64>,
    revision: u64,
) -> Result<RedisNamespace, Refusal> {
    let client = redis::Client::open(redis.url()).expect("an address");
    let link = Arc::new(Link::new(client, ReplicaWait::default(), scripts()));
    RedisNamespace::open(link, name.clone(), config.clone(), revision, Clock::Test(clock_ms.clone())).await
}

fn counter(name: &str) -> CounterName {
    CounterName::parse(name).expect("a counter")
}

fn event(name: &str, token: &str, time_ms: u64, change: Change) -> NewEvent {
    NewEvent { counter: counter(name), token: Token::parse(token).expect("a token"), time_ms, change }
}

fn add(name: &str, token: &str, time_ms: u64, delta: i64) -> NewEvent {
    event(name, token, time_ms, Change::Add(delta))
}
