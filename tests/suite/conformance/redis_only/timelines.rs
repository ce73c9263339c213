//! A Redis that has started again, or was a replica (Q17, X1): its timeline is another one.

use ::redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, OutboxBound, OutboxFull, RedisOptions, RedisStore};
use tallystone_simulator::SimulatedRedis;
use tallystone_tests::queue::to;
use tallystone_tests::*;

/// The queue "q" on a Redis that has started once more, a second later: its timeline is another one.
fn started_again(redis: &Arc<SimulatedRedis>, outbox: &OutboxBound) -> TestQueue<RedisStore> {
    redis.begin_timeline();
    let now_us = redis.keyspace().now_us().max(1_780_000_000_000_000);
    redis.keyspace().set_time(now_us + 1_000_000);
    through_new_server(redis, outbox)
}

/// The queue "q" through a server that has cached nothing.
fn through_new_server(redis: &Arc<SimulatedRedis>, outbox: &OutboxBound) -> TestQueue<RedisStore> {
    let clock = store::Clock::redis("queues", 0);
    let options = RedisOptions { outbox: outbox.clone(), clock, ..RedisOptions::default() };
    let store = Arc::new(RedisStore::within_process(redis.clone(), options, redis.keyspace().now_us().to_string()));
    TestQueue { store, clock: Clock::new(), shard: Shard::first(&QueueName::parse("queue", "q").expect("a name")) }
}

#[tokio::test]
async fn x1_the_outbox_is_kept_to_its_bound_over_several_timelines() {
    const EACH: usize = 20;
    let redis = Arc::new(SimulatedRedis::new(0));
    let outbox = OutboxBound { events_max: 50, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let mut ids = Vec::new();
    for start in 0..5 {
        let queue = started_again(&redis, &outbox);
        if start == 0 {
            queue.store.create_queue(queue.name(), simple()).await.expect("a new queue");
        }
        for n in 0..EACH {
            ids.push(id(&format!("m{start}-{n}")));
            queue.put([message(ids[ids.len() - 1].as_str(), 1)]).await;
            let kept: Vec<_> = queue.events().await.into_iter().map(|event| event.id).collect();
            assert_eq!(kept, ids[ids.len().saturating_sub(50)..], "only the oldest go");
        }
    }
}

#[tokio::test]
async fn x1_the_outbox_of_a_deleted_queue_ends_though_its_last_entry_begins_a_timeline() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let queue = started_again(&redis, &OutboxBound::default());
    queue
        .store
        .create_queue(queue.name(), QueueConfig { terminal_retention_ms: 0, ..simple() })
        .await
        .expect("a queue");
    queue.put([message("m", 1)]).await;
    let lease = queue.take_one().await;
    queue.complete(to(&lease)).await.expect("a live lease");
    queue.sweep().await;
    let queue = started_again(&redis, &OutboxBound::default());
    queue.store.delete_queue(queue.name()).await.expect("an empty queue");
    let mut reader = queue.store.outbox_reader();
    reader.discover();
    let read = reader.read(Duration::ZERO).await.expect("a read");
    assert_eq!((read.events.len(), read.losses.len()), (4, 0));
    reader.ack(&read.shards).await.expect("acknowledged");
    assert_eq!(reader.shards().count(), 0);
    for key in ["ts:{q/0}:outbox", "ts:outboxes:left"] {
        let (exists, _) = redis.execute(::redis::cmd("EXISTS").arg(key));
        assert_eq!(exists.expect("an answer"), Value::Int(0), "{key}");
    }
}

#[tokio::test]
async fn x1_a_stale_configuration_is_refused_though_the_clock_was_set_back_before_a_restart() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let outbox = OutboxBound::default();
    let first = started_again(&redis, &outbox);
    let second = through_new_server(&redis, &outbox);
    first.store.create_queue(first.name(), simple()).await.expect("a new queue");
    let attempts = |max_attempts| QueuePatch { max_attempts: Some(max_attempts), ..QueuePatch::default() };
    second.store.update_queue(second.name(), attempts(7)).await.expect("an update");
    let kept = first.store.update_queue(first.name(), attempts(8)).await.expect("an update");
    // The new timeline begins before the earlier one, with the number after the sequence: the revision that the second
    // server has.
    let now_us = redis.keyspace().now_us();
    redis.keyspace().set_time(now_us - 1_000_000);
    redis.begin_timeline();
    let later = second.store.update_queue(second.name(), attempts(9)).await.expect("an update");
    assert_eq!((later.config.max_attempts, later.revision), (9, kept.revision + 1));
}

/// The clock of the new primary may be behind that of the last one, and all clocks may have been set back since the last timeline began.
#[tokio::test]
async fn x1_lost_fencing_tokens_are_not_given_again_though_the_clock_was_set_back() {
    for set_back in [Duration::from_secs(3), Duration::from_secs(3_600)] {
        let redis = Arc::new(SimulatedRedis::new(100_000));
        let outbox = OutboxBound::default();
        let queue = started_again(&redis, &outbox);
        queue.store.create_queue(queue.name(), simple()).await.expect("a new queue");
        let now_us = redis.keyspace().now_us();
        redis.keyspace().set_time(now_us - set_back.as_micros() as u64);
        redis.keyspace().forget_writes();
        for batch in 0..3 {
            queue.put((0..1_000).map(|number| message(&format!("{batch}-{number}"), number))).await;
        }
        let lost = queue.take_one().await.fencing_token;
        assert!(redis.keyspace().lose_writes(usize::MAX) > 0);
        redis.begin_timeline();
        let queue = through_new_server(&redis, &outbox);
        queue.put([message("next", 1)]).await;
        let next = queue.take_one().await.fencing_token;
        assert!(next > lost, "{next} after {lost}, which is lost; set back by {set_back:?}");
    }
}

/// Raises the next offset of the outbox in the state of "q", and what is acknowledged: the last two of its numbers (`STATE_LAYOUT`).
fn raise_added(redis: &SimulatedRedis, added: u64) {
    const STATE: &str = "ts:{q/0}:state";
    let (reply, _) = redis.execute(::redis::cmd("GET").arg(STATE));
    let Ok(Value::BulkString(mut state)) = reply else { panic!("a state: {reply:?}") };
    for at in [75, 82] {
        state[at..at + 7].copy_from_slice(&added.to_be_bytes()[1..]);
    }
    redis.execute(::redis::cmd("SET").arg(STATE).arg(state)).0.expect("an answer");
}

/// Events without a message's number, such as coalescings, bring the outbox ahead of the sequence.
#[tokio::test]
async fn x1_a_queue_that_is_created_again_begins_behind_the_events_of_the_deleted_one() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let outbox = OutboxBound::default();
    let queue = started_again(&redis, &outbox);
    queue
        .store
        .create_queue(queue.name(), QueueConfig { terminal_retention_ms: 0, ..simple() })
        .await
        .expect("a queue");
    // As after many of them, which would take long.
    let added = redis.keyspace().now_us() + 60_000_000;
    raise_added(&redis, added);
    queue.put([message("m", 1)]).await;
    let lease = queue.take_one().await;
    queue.complete(to(&lease)).await.expect("a live lease");
    queue.sweep().await;
    let mut reader = queue.store.outbox_reader();
    reader.discover();
    let read = reader.read(Duration::ZERO).await.expect("a read");
    reader.ack(&read.shards).await.expect("acknowledged");
    queue.store.delete_queue(queue.name()).await.expect("an empty queue");
    queue.store.create_queue(queue.name(), simple()).await.expect("a queue");
    queue.put([message("n", 1)]).await;
    let read = reader.read(Duration::ZERO).await.expect("a read");
    let ids: Vec<&str> = read.events.iter().map(|recorded| recorded.event.id.as_str()).collect();
    assert_eq!(ids, ["n"]);
}

#[tokio::test]
async fn x1_first_events_that_are_lost_are_reported_though_the_new_primary_has_no_outbox() {
    let redis = Arc::new(SimulatedRedis::new(1_000));
    let outbox = OutboxBound::default();
    let queue = started_again(&redis, &outbox);
    queue.store.create_queue(queue.name(), simple()).await.expect("a new queue");
    let mut reader = queue.store.outbox_reader();
    reader.discover();
    redis.keyspace().forget_writes();
    queue.put([message("a", 1), message("b", 1)]).await;
    assert_eq!(reader.read(Duration::ZERO).await.expect("a read").events.len(), 2);
    assert!(redis.keyspace().lose_writes(usize::MAX) > 0);
    started_again(&redis, &outbox).put([message("c", 1)]).await;
    let read = reader.read(Duration::ZERO).await.expect("a read");
    let ids: Vec<&str> = read.events.iter().map(|recorded| recorded.event.id.as_str()).collect();
    assert_eq!((ids, read.losses.len()), (vec!["c"], 1));
    assert_eq!((reader.take_undone(), reader.take_lost()), (2, 0));
}

#[tokio::test]
async fn x1_a_queue_without_history_gets_no_outbox_with_a_new_timeline() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let outbox = OutboxBound { events_max: 0, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let queue = started_again(&redis, &outbox);
    queue.store.create_queue(queue.name(), simple()).await.expect("a new queue");
    started_again(&redis, &outbox).put([message("m", 1)]).await;
    let (exists, _) = redis.execute(::redis::cmd("EXISTS").arg("ts:{q/0}:outbox"));
    assert_eq!(exists.expect("an answer"), Value::Int(0));
}
