//! Data that another version has written (O6).

use super::{alone, raw};
use crate::conformance::bring;
use std::sync::Arc;
use tallystone_model::limits::DELAY_MS_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, ConnectError, RedisOptions, RedisStore};
use tallystone_tests::*;

#[tokio::test]
async fn q15_queues_of_another_format_are_not_touched() {
    let redis = TestRedis::start().await;
    let connect = async || {
        let options = RedisOptions { url: redis.url(), allow_volatile: true, ..RedisOptions::default() };
        RedisStore::connect(options).await.map(drop)
    };
    assert!(connect().await.is_ok(), "an empty Redis takes the present format");
    let _: ::redis::Value = raw(&redis, "SET ts:format 3").await;
    assert!(matches!(connect().await, Err(ConnectError::Format { found: 3, .. })));
    let _: ::redis::Value = raw(&redis, "DEL ts:format").await;
    let _: ::redis::Value = raw(&redis, "ZADD ts:queues 0 old").await;
    assert!(matches!(connect().await, Err(ConnectError::Format { found: 1, .. })), "the first did not name itself");
}

#[tokio::test]
async fn q22_o6_errored_messages_of_version_0_1_are_found_where_it_put_them() {
    let (redis, stage) = alone("errored").await;
    let queue = stage.queue(QueueConfig { terminal_retention_ms: 5_000, ..simple() }).await;
    for name in ["old", "older"] {
        bring(&queue, message(name, 1), State::Errored).await;
    }
    // As 0.1 leaves them: in the list of terminal messages, in a queue whose configuration has none of the new fields.
    let tag = format!("ts:{{{}/0}}:", queue.name());
    for name in ["older", "old"] {
        let head: Vec<u8> = raw(&redis, &format!("HGET {tag}head {name}")).await;
        let entry = [&head[1..11], &head[51..58], name.as_bytes()].concat();
        let mut push = ::redis::cmd("RPUSH");
        push.arg(format!("{tag}done")).arg(entry);
        push.query_async::<()>(&mut redis.connection().await).await.expect("an entry");
    }
    let stored: String = raw(&redis, &format!("GET {tag}config")).await;
    let mut stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    stored.as_object_mut().expect("an object").remove("errored_in");
    for field in ["errored_retention_ms", "max_errored", "max_errored_bytes"] {
        stored["config"].as_object_mut().expect("an object").remove(field);
    }
    let mut set = ::redis::cmd("SET");
    set.arg(format!("{tag}config")).arg(stored.to_string());
    set.query_async::<()>(&mut redis.connection().await).await.expect("a configuration");
    raw::<()>(&redis, &format!("DEL {tag}errored {tag}errored_bytes")).await;

    let store = Arc::new(redis.store(store::Clock::Test(stage.clock.shared())).await);
    let queue = queue.through(&store);
    let errored = async || {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = queue.store.list_messages(&queue.shard, State::Errored, &cursor, 9).await.expect("a page");
            ids.extend(page.items.iter().map(|message| message.id.to_string()));
            cursor = page.next_cursor;
            if cursor.is_empty() {
                return ids;
            }
        }
    };
    bring(&queue, message("new", 1), State::Errored).await;
    assert_eq!(errored().await, ["new", "older", "old"]);
    assert_eq!(queue.redrive("older").await.map(|went| went.state), Ok(State::Pending));
    assert_eq!(errored().await, ["new", "old"]);
    // The configuration is written again, and the old retention passes: they stay as long as the new ones.
    queue.reconfigure(QueuePatch { lease_ms: Some(9_000), ..QueuePatch::default() }).await;
    assert_eq!(errored().await, ["new", "old"]);
    assert_eq!(queue.pass(5_000).await.collected, 0);
    assert_eq!(errored().await.len(), 2);
    queue.reconfigure(QueuePatch { errored_retention_ms: Some(5_000), ..QueuePatch::default() }).await;
    assert_eq!(queue.sweep().await.collected, 2);
    assert_eq!(queue.depth().await.errored, 0);
    stage.assert_sound().await;
}

#[tokio::test]
async fn q22_o6_a_queue_of_version_0_1_keeps_errored_messages_as_long_as_it_did() {
    let (redis, stage) = alone("kept").await;
    let queue = stage.queue(QueueConfig { terminal_retention_ms: DELAY_MS_MAX, ..simple() }).await;
    let key = format!("ts:{{{}/0}}:config", queue.name());
    let stored: String = raw(&redis, &format!("GET {key}")).await;
    let mut stored: serde_json::Value = serde_json::from_str(&stored).expect("JSON");
    stored.as_object_mut().expect("an object").remove("errored_in");
    stored["config"].as_object_mut().expect("an object").remove("errored_retention_ms");
    raw::<()>(&redis, &format!("SET {key} {stored}")).await;
    let store = Arc::new(redis.store(store::Clock::Test(stage.clock.shared())).await);
    let config = queue.through(&store).describe().await.expect("a queue").config;
    assert_eq!((config.errored_retention_ms, config.retry_backoff), (DELAY_MS_MAX, Backoff::default()));
}
