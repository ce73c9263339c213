//! Redis starts again, or another one takes over, in the middle of a walk over a hash or over all keys by many calls. Each process
//! places fields by another secret, so a cursor of the earlier one would skip some of them.

use super::machines::Redis;
use crate::system::program::SOON;
use std::collections::BTreeSet;
use tallystone_counters::redis::{Namespace, RedisNamespace, RedisNamespaces};
use tallystone_counters::{
    Bounds, Change, Checkpoint, CheckpointUpdate, Checkpoints, Commit, CounterName, Events, Labels, LeaseOrder,
    NamespaceConfig, NamespaceName, NewEvent, Token,
};
use tallystone_link::{Clock, wall_ms};
use tallystone_model::{QueueName, Shard, Store};
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::{Polling, volatile};
use tokio::time::Instant;

/// Enough that each hash takes many calls, and that a walk with an earlier cursor would certainly skip some.
const MANY: usize = 8_000;
/// About how many counters one call lists.
const PAGE: usize = 50;

/// The answer of the first call that reaches the Redis that runs now.
async fn until_answered<T, E: std::fmt::Debug>(call: impl AsyncFn() -> Result<T, E>) -> T {
    let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(refusal) => assert!(Instant::now() < give_up_at, "{refusal:?}"),
        }
        polling.pause().await;
    }
}

async fn start_again(redis: &mut Redis) {
    redis.kill().await;
    redis.restart().await;
}

fn names(prefix: &str) -> Vec<CounterName> {
    (0..MANY).map(|number| CounterName::parse(format!("{prefix}{number}")).expect("a counter")).collect()
}

/// A namespace of many counters that were rolled up and many that were not.
async fn filled(redis: &Redis) -> RedisNamespace {
    let connected = RedisNamespaces::connect(&volatile(&redis.url()), Clock::redis("counters", 0)).await;
    let namespace = Namespace {
        name: NamespaceName::parse("likes").expect("a namespace"),
        config: NamespaceConfig::default(),
        revision: 1,
        incarnation: 0,
        kept_from_ms: 0,
    };
    let store = connected.expect("a Redis").open(&namespace).await.expect("a namespace");
    let now_ms = wall_ms();
    let lease = LeaseOrder { leased_at_ms: now_ms, fencing_token: 1 };
    let after = Checkpoint { count: 1, exact_to_ms: now_ms, last_write_ms: now_ms, lease, ..Checkpoint::default() };
    let update = |counter| CheckpointUpdate { counter, before: Checkpoint::default(), after };
    let updates: Vec<CheckpointUpdate> = names("rolled-up-").into_iter().map(update).collect();
    for updates in updates.chunks(500) {
        let commits = store.commit(updates).await.expect("an answer");
        assert!(commits.iter().all(|commit| *commit == Commit::Done));
    }
    let event = |counter| NewEvent {
        counter,
        token: Token::parse("first").expect("a token"),
        time_ms: None,
        change: Change::Add(1),
        bounds: Bounds::default(),
        labels: Labels::default(),
    };
    let events: Vec<NewEvent> = names("new-").into_iter().map(event).collect();
    for events in events.chunks(500) {
        for appended in store.append(events).await {
            appended.expect("an add");
        }
    }
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_a_list_of_counters_is_whole_although_redis_starts_again() {
    let mut redis = Redis::start().await;
    let store = filled(&redis).await;
    let (mut listed, mut token, mut restarts) = (BTreeSet::new(), String::new(), 0);
    loop {
        let page = until_answered(async || store.list(&token, PAGE).await).await;
        listed.extend(page.counters.into_iter().map(|listed| listed.counter));
        let Some(next) = page.next else { break };
        // Once among those that were rolled up, and once among the others.
        let begins_with = ["r.3.", "p.3."].get(restarts).copied().unwrap_or("none");
        if next.starts_with(begins_with) && token.starts_with(begins_with) {
            start_again(&mut redis).await;
            restarts += 1;
        }
        token = next;
    }
    assert_eq!(restarts, 2);
    let all: BTreeSet<CounterName> = names("rolled-up-").into_iter().chain(names("new-")).collect();
    assert_eq!(all.difference(&listed).collect::<Vec<_>>(), Vec::<&CounterName>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q7_a_purge_is_whole_although_redis_starts_again() {
    let mut redis = Redis::start().await;
    let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
    let store = RedisStore::connect(options).await.expect("a durable Redis");
    let name = QueueName::parse("queue", "orders").expect("a name");
    let shard = Shard::first(&name);
    store.create_queue(&name, tallystone_tests::simple()).await.expect("a queue");
    for from in (0..MANY).step_by(500) {
        let messages = (from..from + 500).map(|number| tallystone_tests::message(&format!("m{number}"), 0)).collect();
        store.enqueue(&shard, messages).await.expect("an answer").into_iter().for_each(|item| drop(item.expect("one")));
    }
    let (mut cursor, mut steps) = (String::new(), 0);
    loop {
        let purged = until_answered(async || store.purge(&shard, true, &cursor).await).await;
        steps += 1;
        if purged.next_cursor.is_empty() {
            break;
        }
        cursor = purged.next_cursor;
        if steps == 10 {
            start_again(&mut redis).await;
        }
    }
    assert!(steps > 20, "{steps}");
    let left = until_answered(async || store.depth(&shard, None).await).await;
    assert_eq!(left.pending, 0);
}
