//! Primaries and replicas.

use super::machines::Redis;
use crate::system::program::SOON;
use redis::InfoDict;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(20);

/// The answer to one command.
pub(super) async fn command(redis: &Redis, words: &[&str]) -> redis::Value {
    let mut connection = redis.connection().await;
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.expect("an answer")
}

/// Makes one the replica of the other, and waits until it has its data.
pub(super) async fn follows(redis: &Redis, primary: &Redis) {
    command(redis, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
    let give_up_at = Instant::now() + SOON;
    while replication(redis).await.get::<String>("master_link_status").as_deref() != Some("up") {
        assert!(Instant::now() < give_up_at, "the replica does not connect");
        sleep(POLL).await;
    }
}

/// Waits until a primary counts this number of good replicas; it has `min-replicas-to-write`.
pub(super) async fn has_replicas(primary: &Redis, count: u32) {
    let give_up_at = Instant::now() + SOON;
    while replication(primary).await.get("min_slaves_good_slaves") != Some(count) {
        assert!(Instant::now() < give_up_at, "the replicas do not catch up");
        sleep(POLL).await;
    }
}

/// The replicas of a primary that may take its place: those that it counts as good, if it demands some, or those that get its
/// writes.
pub(super) fn good_replicas(primary: &InfoDict) -> usize {
    let gets_writes = |number: &usize| {
        let replica: Option<String> = primary.get(&format!("slave{number}"));
        replica.is_some_and(|replica| replica.contains("state=online"))
    };
    primary.get("min_slaves_good_slaves").unwrap_or_else(|| (0..primary.len()).filter(gets_writes).count())
}

/// Its `INFO replication`.
pub(super) async fn replication(redis: &Redis) -> InfoDict {
    redis::from_redis_value(command(redis, &["INFO", "replication"]).await).expect("INFO")
}
