//! What only a Redis can do or be.

mod bounded;
mod due;
mod failures;
mod forgetting;
mod formats;
mod indexes;
mod outboxes;
mod overtaken;
mod resharding;
mod shards;
mod timelines;

use std::sync::Arc;
use tallystone_server::store::{self, RedisStore};
use tallystone_tests::{Clock, Stage, TestRedis};

/// One raw command.
async fn raw<T: ::redis::FromRedisValue>(redis: &TestRedis, words: &str) -> T {
    let mut command = ::redis::Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command.query_async(&mut redis.connection().await).await.expect(words)
}

/// A stage on a dedicated Redis, to be broken.
async fn alone(test: &str) -> (TestRedis, Stage<RedisStore>) {
    let (redis, clock) = (TestRedis::start().await, Clock::new());
    let store = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
    let other = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
    (redis, Stage::on(store, other, clock, test))
}
