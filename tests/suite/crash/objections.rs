//! A process that starts on an emptied store takes it for a new one. Those that know its earlier mark object, and an operator
//! decides (X7, docs/decisions/0252).

use super::data_loss::{BUSY, NOTICED, lost, reason, until};
use super::machines::{Redis, Server};
use crate::system::program;
use nix::sys::signal::Signal;
use std::collections::HashMap;
use std::time::Duration;
use tallystone_client::{Client, NewMessage, QueueConfig};
use tempfile::TempDir;

const QUEUE: &str = "q";
const MARK: &str = "ts:store";
/// How long nothing begins in a new store.
const OBJECTIONS_MS: u64 = 1_000;

async fn mark(redis: &Redis) -> HashMap<String, String> {
    redis::cmd("HGETALL").arg(MARK).query_async(&mut redis.connection().await).await.expect("a mark")
}

async fn start(redis: &Redis) -> (Server, Client) {
    let server = Server::start_as(&["server", "--redis-url", &redis.url(), "--log", "error"]).await;
    let client = Client::builder(server.url()).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    (server, client)
}

/// Until a server refuses calls. It makes no queue until then.
async fn until_refused(client: &Client) {
    let refused = async || client.get_queue(QUEUE).await.map(drop).map_err(reason) == lost();
    until(NOTICED + BUSY, refused).await;
}

/// Until a server has the queue as it was wanted, and takes messages.
async fn until_served(client: &Client, id: &str) {
    until(NOTICED + BUSY, async || client.create_queue(QUEUE, QueueConfig::exclusive("key")).await.is_ok()).await;
    let mut items = client.enqueue(QUEUE, vec![NewMessage::new(id, "").metadata("key", "k")]).await.expect("a call");
    items.remove(0).expect("a message");
}

/// The new mark of the queues.
async fn accept(redis: &Redis) -> Option<String> {
    redis.accept().await["queues"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_an_emptied_store_that_another_process_has_begun_again_is_stopped() {
    let mut redis = Redis::start().await;
    let (mut first, knows) = start(&redis).await;
    until_served(&knows, "before").await;
    let known = mark(&redis).await["id"].clone();
    // It notices nothing before another server has started on the empty store.
    first.signal(Signal::SIGSTOP);
    redis.kill().await;
    redis.put_back(&TempDir::new().expect("an empty folder"));
    redis.restart().await;
    let (_second, new) = start(&redis).await;
    let begun = mark(&redis).await;
    assert!(begun["id"] != known && !begun.contains_key("lost"), "{begun:?}");

    first.signal(Signal::SIGCONT);
    until_refused(&knows).await;
    until_refused(&new).await;
    assert_eq!(mark(&redis).await.get("lost"), Some(&known));
    // A failover may lose the objection: it is repeated.
    let mut connection = redis.connection().await;
    redis::cmd("HDEL").arg(MARK).arg("lost").exec_async(&mut connection).await.expect("a mark");
    until(NOTICED + BUSY, async || mark(&redis).await.get("lost") == Some(&known)).await;

    // It stands without the process that knows what was there.
    first.kill().await;
    until_refused(&new).await;
    let args = ["server", "--redis-url", &redis.url(), "--listen", "127.0.0.1:0"];
    let started = program::run(program::command(&args), "").await;
    assert_eq!(started.code, Some(2), "{started:?}");
    assert!(started.stderr.contains("tallystone store accept"), "{started:?}");

    assert!(accept(&redis).await.is_some());
    until_served(&new, "new").await;
    first.restart().await;
    until_served(&knows, "knows").await;
    assert_eq!(accept(&redis).await, None, "nothing is left to accept");
}

/// Its address leads to the Redis of another installation, or an older one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_process_at_a_store_that_was_there_before_stops_no_other() {
    let redis = Redis::start().await;
    let (_wrong, knows) = start(&redis).await;
    until_served(&knows, "before").await;
    let known = mark(&redis).await["id"].clone();
    let mut connection = redis.connection().await;
    let other = ["id", "another", "born", "1"];
    redis::cmd("HSET").arg(MARK).arg(&other).exec_async(&mut connection).await.expect("a mark");
    let (_right, owns) = start(&redis).await;
    until_refused(&knows).await;
    until(NOTICED + BUSY, async || mark(&redis).await.get("objections") == Some(&known)).await;
    assert!(!mark(&redis).await.contains_key("lost"));
    // This verifies the mark.
    owns.create_queue("another", QueueConfig::simple()).await.expect("it is not stopped");
    until_refused(&knows).await;

    // An operator may decide that both go on with this store.
    assert!(accept(&redis).await.is_some());
    until_served(&knows, "knows").await;
    until_served(&owns, "owns").await;
    assert_eq!(accept(&redis).await, None, "nothing is left to accept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_two_that_start_on_an_empty_store_begin_together_once_none_has_objected() {
    let redis = Redis::start().await;
    let ((_one, one), (_other, other)) = tokio::join!(start(&redis), start(&redis));
    let (by_one, by_other) = tokio::join!(
        one.create_queue("one", QueueConfig::simple()),
        other.create_queue("other", QueueConfig::simple())
    );
    by_one.expect("a new queue");
    by_other.expect("a new queue");
    let mut connection = redis.connection().await;
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut connection).await.expect("a time");
    let mark = mark(&redis).await;
    let born_ms: u64 = mark["born"].parse().expect("a time");
    assert!(seconds * 1_000 + micros / 1_000 >= born_ms + OBJECTIONS_MS, "both have waited: {mark:?}");
    assert!(!mark.contains_key("lost") && !mark.contains_key("objections"), "{mark:?}");
}
