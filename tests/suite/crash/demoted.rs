//! A primary that becomes a replica while connections to it stay open, as after a failover by hand (Q16).

use super::first_success::MARGIN;
use super::machines::Redis;
use super::proxy::Proxy;
use super::replication::{command, follows, has_replicas};
use crate::histories::pair::Server;
use crate::system::program::SOON;
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::{Applied, Client, Error, NewMessage, QueueConfig};
use tallystone_model::{QueueName, Refusal, Shard, Store as _};
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::{message, simple};
use tokio::time::{Instant, sleep};

const QUEUE: &str = "orders";
/// From the moment when the address leads to the new primary.
const PROMISED: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

async fn enqueue(client: &Client, id: &str) -> Result<(), Error> {
    let results = client.enqueue(QUEUE, vec![NewMessage::new(id, "")]).await?;
    Ok(results.into_iter().next().expect("a result").map(drop)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_a_primary_that_becomes_a_replica_is_left_for_the_new_one() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let proxy = Proxy::start(old.port()).await;
    let server = Server::start(&proxy.url()).await;
    let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
    client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a queue");
    enqueue(&client, "before").await.expect("an Enqueue");
    follows(&new, &old).await;
    command(&old, &["WAIT", "1", "0"]).await;

    command(&new, &["REPLICAOF", "NO", "ONE"]).await;
    follows(&old, &new).await;
    // The address still leads to the old one.
    let refused = enqueue(&client, "early").await.expect_err("a replica takes no writes");
    assert!(matches!(refused, Error::Unavailable { applied: Applied::No, .. }), "{refused:?}");
    let stale = client.depth(QUEUE, None).await.expect_err("a replica may be behind");
    assert!(matches!(stale, Error::Unavailable { .. }), "{stale:?}");

    proxy.lead_to(new.port());
    let leads = Instant::now();
    while let Err(error) = enqueue(&client, "after").await {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(leads.elapsed() < SOON, "the server stays with the old primary: {error:?}");
        sleep(POLL).await;
    }
    assert!(leads.elapsed() <= MARGIN * PROMISED, "{:?}", leads.elapsed());
    assert_eq!(client.depth(QUEUE, None).await.expect("a depth").pending, 2, "before and after");
    server.stop().await;
}

/// Reads and writes have separate connections then, and only writes are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_a_refused_write_ends_the_reads_of_a_replica_too() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    follows(&new, &old).await;
    for node in [&old, &new] {
        command(node, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    }
    has_replicas(&old, 1).await;
    // The last beat of the mark may be lost.
    let options = RedisOptions { url: old.url(), replicas_min: 1, allow_volatile: true, ..RedisOptions::default() };
    let store = RedisStore::connect(options).await.expect("a Redis");
    let name = QueueName::parse("queue", QUEUE).expect("a name");
    let shard = Shard::first(&name);
    store.create_queue(&name, simple()).await.expect("a queue");
    let put = async |id: &str| store.enqueue(&shard, vec![message(id, 1)]).await.map(drop);
    put("before").await.expect("an Enqueue");
    store.depth(&shard, None).await.expect("a depth");

    command(&new, &["REPLICAOF", "NO", "ONE"]).await;
    follows(&old, &new).await;
    let refused = put("early").await.expect_err("a replica takes no writes");
    assert!(matches!(refused, Refusal::Unavailable { applied: tallystone_model::Applied::No, .. }), "{refused:?}");
    let stale = store.depth(&shard, None).await.expect_err("a replica may be behind");
    assert!(matches!(stale, Refusal::Unavailable { .. }), "{stale:?}");

    command(&old, &["REPLICAOF", "NO", "ONE"]).await;
    follows(&new, &old).await;
    has_replicas(&old, 1).await;
    put("after").await.expect("it is the primary again");
    store.depth(&shard, None).await.expect("a depth");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_a_new_primary_that_may_lose_writes_is_not_used() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    let proxy = Proxy::start(old.port()).await;
    let server = Server::start(&proxy.url()).await;
    let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
    client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a queue");
    follows(&new, &old).await;
    command(&old, &["WAIT", "1", "0"]).await;
    command(&new, &["CONFIG", "SET", "appendfsync", "everysec"]).await;
    command(&new, &["REPLICAOF", "NO", "ONE"]).await;
    follows(&old, &new).await;
    proxy.lead_to(new.port());

    let give_up_at = Instant::now() + SOON;
    loop {
        let refused = enqueue(&client, "early").await.expect_err("its writes are not durable");
        assert!(matches!(&refused, Error::Unavailable { applied: Applied::No, .. }), "{refused:?}");
        if refused.to_string().contains("appendfsync is 'everysec'") {
            break;
        }
        assert!(Instant::now() < give_up_at, "it does not say why: {refused:?}");
        sleep(POLL).await;
    }
    command(&new, &["CONFIG", "SET", "appendfsync", "always"]).await;
    enqueue(&client, "after").await.expect("it is durable now");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_a_write_that_waits_for_replicas_while_its_primary_becomes_one_is_unknown() {
    let (old, new) = (Redis::start().await, Redis::start().await);
    follows(&new, &old).await;
    command(&old, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    has_replicas(&old, 1).await;
    let replicas = RedisOptions { replicas_min: 1, replica_wait_ms: 60_000, ..RedisOptions::default() };
    let store = RedisStore::connect(RedisOptions { url: old.url(), ..replicas }).await.expect("a durable Redis");
    let server = Server::start_on(store).await;
    let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
    client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a queue");

    new.signal(Signal::SIGSTOP);
    let waits = tokio::spawn(async move { enqueue(&client, "order").await });
    let give_up_at = Instant::now() + SOON;
    while !is_waiting(&old).await {
        assert!(Instant::now() < give_up_at, "no call waits for the replica");
        sleep(POLL).await;
    }
    command(&old, &["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await;
    let unknown = waits.await.expect("no panic").expect_err("no replica has it");
    assert!(matches!(unknown, Error::Unavailable { applied: Applied::Unknown, .. }), "{unknown:?}");
    new.signal(Signal::SIGCONT);
    server.stop().await;
}

/// Whether a client waits for replicas.
async fn is_waiting(redis: &Redis) -> bool {
    let info: redis::InfoDict = redis::from_redis_value(command(redis, &["INFO", "clients"]).await).expect("INFO");
    info.get("blocked_clients") == Some(1)
}
