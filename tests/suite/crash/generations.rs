//! A primary that becomes a replica and then the primary again, while a process has sent it nothing (X1, X2, Q17): its connection has
//! the address of the primary, and the timeline of an earlier generation.

use super::machines::Redis;
use super::replication::{command, follows};
use super::sentinels::{NAME, Sentinel};
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::{Link, RedisConfig, ReplicaWait, ScanPosition};
use tallystone_model::{QueueName, Shard, Store as _};
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::{Clock, TestQueue, message, simple};
use tokio::time::sleep;

const KEYS: usize = 100;
/// A process takes calls that follow each other within a second as calls to one primary.
const IDLE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_primary_that_is_named_again_is_another_one() {
    let (first, second) = (Redis::start().await, Redis::start().await);
    let sentinel = Sentinel::start(first.port(), "").await;
    let url = format!("redis-sentinel://127.0.0.1:{}#{NAME}", sentinel.port);
    let primary = RedisConfig { url: url.clone(), ..RedisConfig::default() }.access().first_primary(&url);
    let primary = primary.expect("a good address");
    let link = Link::new(primary.clone(), ReplicaWait::default(), []);
    let mut write = redis::pipe();
    for number in 0..KEYS {
        write.set(format!("key{number}"), number);
    }
    link.calls(&write, true).await.expect("a primary");
    // A walk has the timeline of the connection.
    let timeline = async || {
        let (_, next) = link.scan(ScanPosition::default(), &["SCAN"], &["COUNT", "1"]).await.expect("a primary");
        let position = next.expect("further keys").to_string();
        position.split_once('-').expect("a timeline").1.to_owned()
    };
    let before = timeline().await;
    assert_eq!(timeline().await, before);

    let becomes_primary = async |node: &Redis| {
        command(node, &["REPLICAOF", "NO", "ONE"]).await;
        sentinel.names(node.port()).await;
        primary.client().await.expect("an answer");
    };
    follows(&second, &first).await;
    becomes_primary(&second).await;
    follows(&first, &second).await;
    becomes_primary(&first).await;
    let after = timeline().await;
    assert_ne!(after, before, "the connection is that of the earlier generation");
    assert_eq!(timeline().await, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_a_server_that_was_idle_meanwhile_gives_higher_tokens_than_the_lost_ones() {
    let (first, second) = (Redis::start().await, Redis::start().await);
    let queue_at = async |redis: &Redis| {
        // The last beat of the mark may be lost.
        let options = RedisOptions { url: redis.url(), allow_volatile: true, ..RedisOptions::default() };
        let store = Arc::new(RedisStore::connect(options).await.expect("a Redis"));
        let shard = Shard::first(&QueueName::parse("queue", "orders").expect("a name"));
        TestQueue { store, clock: Clock::new(), shard }
    };
    let idle = queue_at(&first).await;
    idle.store.create_queue(idle.name(), simple()).await.expect("a queue");
    idle.put((0..3).map(|number| message(&format!("m{number}"), number))).await;
    let earlier = idle.take_one().await.fencing_token;

    // The first one has all writes of the second but its last ones.
    follows(&second, &first).await;
    command(&second, &["REPLICAOF", "NO", "ONE"]).await;
    follows(&first, &second).await;
    command(&first, &["REPLICAOF", "NO", "ONE"]).await;
    let lost = queue_at(&second).await.take_one().await.fencing_token;
    assert!(lost > earlier, "{lost} after {earlier}");

    sleep(IDLE).await;
    let next = idle.take_one().await.fencing_token;
    assert!(next > lost, "{next} after {lost}, which is lost");
}
