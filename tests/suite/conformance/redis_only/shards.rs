//! Queues with several shards whose creation, change or deletion has ended early, because its server died (X4).

use super::{alone, raw};
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_lua::keys::ShardKeys;
use tallystone_model::store::Depth;
use tallystone_model::{QueueConfig, QueuePatch, Refusal, Shard, Store};
use tallystone_server::Sharded;
use tallystone_server::store::{self, RedisStore};
use tallystone_tests::{Clock, Stage, TestQueue, TestRedis, id, message, request, simple};

pub(super) const SHARDS: u16 = 4;

/// A queue with several shards through a server that has not used it.
pub(super) async fn late_server(redis: &TestRedis, clock: &Clock, shard: &Shard) -> TestQueue<Sharded<RedisStore>> {
    let store = redis.store(store::Clock::Test(clock.shared())).await;
    TestQueue { store: Arc::new(Sharded::new(Arc::new(store))), clock: clock.clone(), shard: shard.clone() }
}

/// A queue whose keys the test changes.
async fn queue(test: &str) -> (TestRedis, Stage<RedisStore>, TestQueue<Sharded<RedisStore>>) {
    let (redis, stage) = alone(test).await;
    let first = Shard::first(&stage.queue_name());
    let queue = late_server(&redis, &stage.clock, &first).await;
    queue.store.create_queue(&first.queue, QueueConfig { shards: SHARDS, ..simple() }).await.expect("a new queue");
    (redis, stage, queue)
}

/// The name of a message of this shard.
pub(super) fn name_in(number: u16) -> String {
    let names = (0..).map(|n| format!("m{n}"));
    names.into_iter().find(|name| Shard::number_of(SHARDS, None, &id(name)) == number).expect("one in some")
}

pub(super) async fn remove(redis: &TestRedis, shard: &Shard) {
    let keys = ShardKeys::new(shard);
    raw::<u64>(redis, &format!("DEL {} {}", keys.key("state"), keys.key("config"))).await;
}

/// What Redis has of shards, except their messages.
pub(super) struct Kept(pub(super) BTreeMap<String, Option<Vec<u8>>>);

impl Kept {
    pub(super) async fn of(redis: &TestRedis, first: &Shard, numbers: impl IntoIterator<Item = u16>) -> Kept {
        let mut kept = BTreeMap::new();
        for number in numbers {
            let keys = ShardKeys::new(&first.sibling(number));
            for key in ["state", "config"].map(|name| keys.key(name)) {
                kept.insert(key.clone(), raw(redis, &format!("GET {key}")).await);
            }
        }
        Kept(kept)
    }

    /// As if the later writes had been lost.
    pub(super) async fn put_back(&self, redis: &TestRedis) {
        let mut connection = redis.connection().await;
        for (key, value) in &self.0 {
            let command = match value {
                Some(value) => redis::cmd("SET").arg(key).arg(value).take(),
                None => redis::cmd("DEL").arg(key).take(),
            };
            command.query_async::<()>(&mut connection).await.expect("written");
        }
    }
}

/// The configuration that Redis has of a shard; `None`: there is no such shard.
pub(super) async fn find(redis: &TestRedis, shard: &Shard) -> Option<serde_json::Value> {
    let json: Option<String> = raw(redis, &format!("GET {}", ShardKeys::new(shard).key("config"))).await;
    json.map(|json| serde_json::from_str(&json).expect("a configuration"))
}

async fn stored(redis: &TestRedis, shard: &Shard) -> serde_json::Value {
    find(redis, shard).await.expect("it is there")
}

#[tokio::test]
async fn q17_shards_that_a_creation_has_not_reached_are_created_when_they_are_missed() {
    let (redis, stage, queue) = queue("q17-created").await;
    for number in [1, 3] {
        remove(&redis, &queue.shard.sibling(number)).await;
    }
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    assert_eq!(late.depth().await, Depth::default());
    late.put((0..SHARDS).map(|number| message(&name_in(number), 1))).await;
    assert_eq!(queue.take(9).await.len(), usize::from(SHARDS));
    // A repeated creation does the same.
    let name = queue.name().clone();
    queue.purge(true).await;
    remove(&redis, &queue.shard.sibling(2)).await;
    let again =
        late.store.create_queue(&name, QueueConfig { shards: SHARDS, ..simple() }).await.expect("the same queue");
    assert_eq!(again, late.describe().await.expect("the queue"));
    assert_eq!(stored(&redis, &queue.shard.sibling(2)).await["sharded_config"]["shards"], SHARDS);
    queue.assert_sound().await;
}

#[tokio::test]
async fn q17_a_change_that_has_not_reached_all_shards_reaches_them_with_the_next() {
    let (redis, stage, queue) = queue("q17-changed").await;
    let kept = Kept::of(&redis, &queue.shard, [2]).await;
    let patch = |lease_ms| QueuePatch { lease_ms: Some(lease_ms), ..QueuePatch::default() };
    queue.reconfigure(patch(50_000)).await;
    // As if the server had died before it changed this shard.
    kept.put_back(&redis).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    assert_eq!(late.reconfigure(patch(50_000)).await.revision, 2, "the same patch again changes nothing");
    assert_eq!(stored(&redis, &queue.shard.sibling(2)).await["sharded_config"]["lease_ms"], 50_000);
    late.put((0..SHARDS).map(|number| message(&name_in(number), 1))).await;
    let leases = late.take(9).await;
    assert!(leases.len() == 4 && leases.iter().all(|lease| lease.expires_at_ms - lease.leased_at_ms == 50_000));
    queue.assert_sound().await;
}

#[tokio::test]
async fn x4_a_deletion_that_ends_early_is_completed_or_undone() {
    let (redis, stage, queue) = queue("q17-deleted").await;
    let (first, third) = (queue.shard.clone(), queue.shard.sibling(3));
    let member = stored(&redis, &first).await["member"].clone();
    let (queue_id, epoch) =
        (member["queue_id"].as_str().expect("an id").to_owned(), member["epoch"].as_u64().expect("a number"));
    assert_eq!(epoch, 1);
    // The server that deletes has marked the first shard, has deleted the last one, and dies.
    let mut marked = stored(&redis, &first).await;
    marked["member"]["deleting_since_ms"] = stage.clock.now_ms().into();
    let mut connection = redis.connection().await;
    let config = ShardKeys::new(&first).key("config");
    redis::cmd("SET").arg(config).arg(marked.to_string()).query_async::<()>(&mut connection).await.expect("set");
    remove(&redis, &third).await;
    let mark = format!("simple of {queue_id}:{epoch}");
    let deleted = ShardKeys::new(&third).key("deleted");
    redis::cmd("SET").arg(deleted).arg(mark).query_async::<()>(&mut connection).await.expect("set");

    let late = late_server(&redis, &stage.clock, &first).await;
    let refused = late.try_put(message(&name_in(3), 1)).await;
    assert!(matches!(refused, Err(Refusal::QueueNotFound { .. })), "it is being deleted: {refused:?}");
    late.put([message(&name_in(1), 1)]).await;
    // No server goes on with it, so the queue stays.
    stage.clock.advance(10_000);
    late.put([message(&name_in(3), 1)]).await;
    assert_eq!(stored(&redis, &third).await["member"]["epoch"], 2);
    assert_eq!(queue.take(9).await.len(), 2);
    // A late call of the deletion, which knows the first epoch only, does not delete what is there since.
    queue.purge(true).await;
    late.store.delete_queue(late.name()).await.expect("an empty queue");
    for number in 0..SHARDS {
        let keys = ShardKeys::new(&first.sibling(number));
        assert_eq!(raw::<u64>(&redis, &format!("EXISTS {} {}", keys.key("state"), keys.key("config"))).await, 0);
    }
    assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, 0);
    assert!(matches!(queue.dequeue(vec![request(1)]).await, Err(Refusal::QueueNotFound { .. })));
}

#[tokio::test]
async fn x1_copies_do_not_keep_a_change_that_the_first_shard_has_lost() {
    let (redis, stage, queue) = queue("q17-lost-change").await;
    let patch = |lease_ms| QueuePatch { lease_ms: Some(lease_ms), ..QueuePatch::default() };
    let kept = Kept::of(&redis, &queue.shard, [0]).await;
    queue.reconfigure(patch(50_000)).await;
    kept.put_back(&redis).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    let lease_ms = late.describe().await.expect("a queue").config.lease_ms;
    assert_eq!(stored(&redis, &queue.shard.sibling(2)).await["sharded_config"]["lease_ms"], 50_000);
    // A creation that finds the queue as it is, as the minutely check of a server does.
    late.store.create_queue(late.name(), QueueConfig { shards: SHARDS, ..simple() }).await.expect("the same queue");
    for number in 0..SHARDS {
        assert_eq!(
            stored(&redis, &queue.shard.sibling(number)).await["sharded_config"]["lease_ms"],
            lease_ms,
            "shard {number}"
        );
    }
    queue.assert_sound().await;
}

#[tokio::test]
async fn x1_a_queue_whose_deletion_was_lost_gets_its_shards_again() {
    let (redis, stage, queue) = queue("q17-lost-deletion").await;
    let kept = Kept::of(&redis, &queue.shard, [0]).await;
    queue.store.delete_queue(queue.name()).await.expect("an empty queue");
    kept.put_back(&redis).await;
    raw::<u64>(&redis, &format!("DEL {}", ShardKeys::new(&queue.shard).key("deleted"))).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    late.put((0..SHARDS).map(|number| message(&name_in(number), 1))).await;
    assert_eq!(late.take(9).await.len(), usize::from(SHARDS));
    // In the first epoch no call creates what was deleted in it.
    for number in 0..SHARDS {
        assert_eq!(stored(&redis, &queue.shard.sibling(number)).await["member"]["epoch"], 2, "shard {number}");
    }
    late.purge(true).await;
    late.store.delete_queue(late.name()).await.expect("an empty queue");
    assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, 0);
}

#[tokio::test]
async fn x1_a_queue_whose_first_shard_was_lost_keeps_the_messages_of_the_others() {
    let (redis, stage, queue) = queue("q17-lost-first").await;
    queue.put((1..SHARDS).map(|number| message(&name_in(number), 1))).await;
    remove(&redis, &queue.shard).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    assert!(matches!(late.dequeue(vec![request(1)]).await, Err(Refusal::QueueNotFound { .. })));
    late.store.create_queue(late.name(), QueueConfig { shards: SHARDS, ..simple() }).await.expect("a queue");
    assert_eq!(late.take(9).await.len(), usize::from(SHARDS) - 1);
    assert_eq!(late.purge(true).await, u64::from(SHARDS) - 1);
    // After a deletion it is another queue.
    let copy = queue.shard.sibling(1);
    let before = stored(&redis, &copy).await["member"]["queue_id"].clone();
    late.store.delete_queue(late.name()).await.expect("an empty queue");
    stage.clock.advance(1);
    late.store.create_queue(late.name(), QueueConfig { shards: SHARDS, ..simple() }).await.expect("a queue");
    assert_ne!(stored(&redis, &copy).await["member"]["queue_id"], before);
}

#[tokio::test]
async fn x4_what_an_earlier_queue_has_left_is_removed_and_nothing_else() {
    let (redis, stage, queue) = queue("q17-left").await;
    let third = queue.shard.sibling(3);
    let left = Kept::of(&redis, &queue.shard, [3]).await;
    queue.store.delete_queue(queue.name()).await.expect("an empty queue");
    stage.clock.advance(1);
    let config = || QueueConfig { shards: SHARDS, ..simple() };
    queue.store.create_queue(queue.name(), config()).await.expect("a new queue");
    let member = stored(&redis, &third).await["member"].clone();
    left.put_back(&redis).await;
    assert_ne!(stored(&redis, &third).await["member"]["queue_id"], member["queue_id"]);
    queue.put((0..SHARDS - 1).map(|number| message(&name_in(number), 1))).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    late.store.create_queue(late.name(), config()).await.expect("the same queue");
    assert_eq!(stored(&redis, &third).await["member"], member);
    assert_eq!(late.take(9).await.len(), usize::from(SHARDS) - 1);
}

#[tokio::test]
async fn x4_a_shard_that_was_not_created_yet_is_not_created_after_the_deletion() {
    let (redis, stage, queue) = queue("q17-late").await;
    let third = queue.shard.sibling(3);
    let member = stored(&redis, &third).await["member"].clone();
    remove(&redis, &third).await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    late.store.delete_queue(late.name()).await.expect("an empty queue");
    let mark: String = raw(&redis, &format!("GET {}", ShardKeys::new(&third).key("deleted"))).await;
    let (id, epoch) = (member["queue_id"].as_str().expect("an id"), &member["epoch"]);
    assert_eq!(mark, format!("simple of {id}:{epoch}"), "create_queue.lua refuses this member");
    // A later queue of the name gets the shard.
    late.store.create_queue(late.name(), QueueConfig { shards: SHARDS, ..simple() }).await.expect("a new queue");
    late.put([message(&name_in(3), 1)]).await;
    assert_eq!(late.take(9).await.len(), 1);
}

/// A failover loses the deletion of a shard, and the queue was created again with fewer.
#[tokio::test]
async fn x4_a_shard_that_a_failover_brings_back_takes_no_messages() {
    let (redis, stage, queue) = queue("q17-stray").await;
    let third = queue.shard.sibling(3);
    for sends_before in [false, true] {
        let late = late_server(&redis, &stage.clock, &queue.shard).await;
        late.put((0..SHARDS).map(|number| message(&name_in(number), 1))).await;
        late.purge(true).await;
        let left = Kept::of(&redis, &queue.shard, [3]).await;
        queue.store.delete_queue(queue.name()).await.expect("an empty queue");
        stage.clock.advance(1);
        let config = QueueConfig { shards: 2, ..simple() };
        queue.store.create_queue(queue.name(), config).await.expect("a new queue");
        left.put_back(&redis).await;
        raw::<u64>(&redis, &format!("ZADD ts:shards 0 {}", third.tag())).await;
        if sends_before {
            late.put([message(&name_in(3), 7)]).await;
        }
        let of_stray = usize::from(sends_before);
        assert_eq!(late.store.inner().check_shards().await, Ok(of_stray));
        assert_eq!(raw::<usize>(&redis, &format!("EXISTS {}", ShardKeys::new(&third).key("state"))).await, of_stray);
        assert_eq!(raw::<usize>(&redis, "ZCARD ts:shards").await, 1 + of_stray);
        // By the current layout it is found.
        let late = late_server(&redis, &stage.clock, &queue.shard).await;
        late.put((0..SHARDS).map(|number| message(&name_in(number), 1))).await;
        assert_eq!(queue.take(9).await.len(), usize::from(SHARDS));
        queue.purge(true).await;
        queue.store.delete_queue(queue.name()).await.expect("an empty queue");
        stage.clock.advance(1);
        queue.store.create_queue(queue.name(), QueueConfig { shards: SHARDS, ..simple() }).await.expect("a new queue");
    }
}

#[tokio::test]
async fn x4_a_deletion_that_fails_in_one_shard_leaves_the_queue() {
    let (redis, stage, queue) = queue("q17-fails").await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    // Its script fails there.
    let body = ShardKeys::new(&queue.shard.sibling(3)).key("body");
    raw::<String>(&redis, &format!("SET {body} x")).await;
    let failed = queue.store.delete_queue(queue.name()).await;
    assert!(failed.is_err(), "{failed:?}");
    raw::<u64>(&redis, &format!("DEL {body}")).await;
    late.describe().await.expect("the queue is deleted last");
    let refused = late.try_put(message(&name_in(1), 1)).await;
    assert!(matches!(refused, Err(Refusal::QueueNotFound { .. })), "it is being deleted: {refused:?}");
    // No server goes on with it.
    stage.clock.advance(10_000);
    late.put((0..SHARDS).map(|number| message(&name_in(number), 1))).await;
    assert_eq!(late.take(9).await.len(), usize::from(SHARDS));
    late.purge(true).await;
    late.store.delete_queue(late.name()).await.expect("an empty queue");
    assert_eq!(raw::<u64>(&redis, "ZCARD ts:shards").await, 0);
}

#[tokio::test]
async fn q17_what_a_server_knows_of_a_queue_ends_with_its_deletion_through_another_server() {
    let (redis, stage, queue) = queue("q17-forgotten").await;
    let late = late_server(&redis, &stage.clock, &queue.shard).await;
    assert_eq!(late.depth().await, Depth::default());
    assert!(late.store.is_spread(&late.shard));
    queue.store.delete_queue(queue.name()).await.expect("an empty queue");
    let gone = late.store.depth(&late.shard, None).await;
    assert!(matches!(gone, Err(Refusal::QueueNotFound { .. })), "{gone:?}");
    assert!(!late.store.is_spread(&late.shard));
}
