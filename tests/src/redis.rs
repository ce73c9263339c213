//! A real Redis for tests: started in a temporary folder, gone with its last user.

use crate::shift::ClockShift;
use std::sync::{Arc, Weak};
use tallystone_link::RedisConfig;
use tallystone_local::{Fsync, PrivateRedis, PrivateRedisOptions};
use tallystone_server::store::{Clock, OutboxBound, RedisOptions, RedisStore};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// The section `[redis]` for a Redis without durability.
pub fn volatile(url: &str) -> RedisConfig {
    RedisConfig { url: url.to_owned(), allow_volatile: true, ..RedisConfig::default() }
}

static SHARED: Mutex<Weak<TestRedis>> = Mutex::const_new(Weak::new());

/// A redis-server without fsync: its tests are about answers, not about crashes.
pub struct TestRedis {
    // Before the folder, so that it stops before the folder goes.
    redis: PrivateRedis,
    _dir: TempDir,
}

impl TestRedis {
    /// A separate one for one test.
    pub async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options = PrivateRedisOptions { fsync: Fsync::No, ..PrivateRedisOptions::new(dir.path()) };
        let redis = PrivateRedis::start(options).await.expect("a redis-server");
        TestRedis { redis, _dir: dir }
    }

    /// A separate one whose clock the test sets.
    pub async fn shifted(shift: &ClockShift) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let environment = shift.environment();
        let options = PrivateRedisOptions { fsync: Fsync::No, environment, ..PrivateRedisOptions::new(dir.path()) };
        let redis = PrivateRedis::start(options).await.expect("a redis-server");
        TestRedis { redis, _dir: dir }
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

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.redis.pid()
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.redis.url()
    }

    /// A server's store on it. Its outbox keeps everything.
    pub async fn store(&self, clock: Clock) -> RedisStore {
        let options = RedisOptions {
            url: self.url(),
            allow_volatile: true,
            outbox: OutboxBound { events_max: u32::MAX, ..OutboxBound::default() },
            clock,
            ..RedisOptions::default()
        };
        RedisStore::connect(options).await.expect("a store on the redis-server of the test")
    }

    /// A connection that bypasses the store, to read keys.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("a valid address");
        client.get_multiplexed_async_connection().await.expect("a connection to the redis-server of the test")
    }
}
