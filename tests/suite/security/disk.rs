//! S1: a disk that becomes full, a real one: a small file system that the test mounts.

use super::bounds::GROWTH_KIB_MAX;
use super::secured::Secured;
use super::victim::memory_kib;
use crate::system::dev::Dev;
use crate::system::program::{SOON, metrics_page, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{
    Applied, Cancellation, Client, Code, Completion, Dequeue, Error, NewMessage, QueueConfig, State,
};
use tallystone_local::{Fsync, PrivateRedis, PrivateRedisOptions};
use tallystone_tests::{SmallDisk, lasting_port};

const MIB: u64 = 1 << 20;

fn refusal<T>(answer: Result<T, Error>) -> (Code, String, String) {
    match answer {
        Err(Error::Refused(refused)) => (refused.code, refused.reason, refused.message),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no refusal"),
    }
}

#[tokio::test]
async fn s1_dev_takes_no_new_messages_while_its_disk_is_nearly_full() {
    let disk = SmallDisk::mount(96 * MIB);
    let config = disk.path().join("t.toml");
    std::fs::write(&config, format!("[redis]\ndisk_free_min_bytes = {}\n", 16 * MIB)).expect("a file");
    let dev = Dev::start_in(&disk.path().join("data"), &["--config", config.to_str().expect("text")]).await;
    let client = Client::builder(dev.url()).retry_for(Duration::ZERO).connect().await.expect("the server");
    let enqueue = async |id: &str| client.enqueue("q", vec![NewMessage::new(id, "payload")]).await;
    enqueue("a").await.expect("room")[0].as_ref().expect("room");
    enqueue("b").await.expect("room")[0].as_ref().expect("room");
    let lease = client.dequeue(Dequeue::new("q")).await.expect("a lease").remove(0);

    disk.fill_to(15 * MIB);
    until("it refuses messages on a disk that is nearly full", async || enqueue("during").await.is_err()).await;
    let before = client.depth("q", None).await.expect("a Depth");
    for (code, reason, message) in [
        refusal(enqueue("c").await),
        refusal(client.enqueue("new", vec![NewMessage::new("c", "payload")]).await),
        refusal(client.create_queue("other", QueueConfig::simple()).await),
    ] {
        assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "STORE_FULL"), "{message}");
        assert!(message.contains("disk space") && message.contains("disk_free_min_bytes"), "{message}");
    }
    // It changed nothing.
    assert_eq!(client.depth("q", None).await.expect("a Depth"), before);
    assert!(client.get_queue("new").await.is_err() && client.get_queue("other").await.is_err());
    dev.refused(&["msg", "enqueue", "q"], "STORE_FULL").await;
    // Adds are data, too; counts are read.
    let counters = dev.ready["counters"].as_str().expect("a URL");
    let add = dev.call(&["counter", "--counters", counters, "add", "c"]).await;
    assert!(add.code != Some(0) && add.stderr.contains("disk space"), "{add:?}");
    // Calls that end messages continue to succeed.
    client.complete("q", vec![Completion::of(lease.lease_ref())]).await.expect("a Complete")[0].as_ref().expect("done");
    let lease = client.dequeue(Dequeue::new("q")).await.expect("a Dequeue").remove(0);
    client.cancel("q", vec![Cancellation::by_holder(&lease)]).await.expect("a Cancel")[0].as_ref().expect("canceled");

    // Just above the bound it does not accept and refuse in turns; with a tenth more room it accepts.
    disk.make_room();
    until("it takes messages again", async || enqueue("d").await.is_ok()).await;
    let found: Value = dev.counter(&["add", "c"]).await;
    assert!(found.is_object(), "{found}");
    dev.stop().await;
}

/// A message that needs a part of the disk.
fn large(number: usize) -> NewMessage {
    NewMessage::new(format!("m{number}"), vec![b'x'; 32 * 1024])
}

/// Enqueues until the store does not take more. Returns the ids that were acknowledged, and the error.
async fn enqueue_until_refused(client: &Client, from: usize) -> (BTreeSet<String>, Error) {
    let mut acknowledged = BTreeSet::new();
    for number in from..10_000 {
        match client.enqueue("q", vec![large(number)]).await {
            Ok(results) => acknowledged.extend(results.into_iter().map(|result| result.expect("a message").id)),
            Err(error) => return (acknowledged, error),
        }
    }
    panic!("the disk is not full");
}

async fn ids(client: &Client) -> BTreeSet<String> {
    let page = client.list_messages("q", State::Pending, 1_000, "").await.expect("messages");
    page.items.into_iter().map(|message| message.id).collect()
}

async fn redis_on(disk: &SmallDisk, port: u16, fsync: Fsync) -> PrivateRedis {
    let dir = disk.path().join("redis");
    let options = PrivateRedisOptions { port: Some(port), fsync, ..PrivateRedisOptions::new(dir) };
    PrivateRedis::start(options).await.expect("a redis-server")
}

#[tokio::test]
async fn s1_a_redis_that_cannot_write_is_named_and_continues_when_it_can() {
    let (place, disk, port) = (Secured::new().await, SmallDisk::mount(32 * MIB), lasting_port());
    let redis = redis_on(&disk, port, Fsync::EverySecond).await;
    let server = place.start_with("server", &["--allow-volatile", "--redis-url", &redis.url()]).await;
    let client = server.client("unused");
    client.create_queue("q", QueueConfig::simple()).await.expect("a queue");
    disk.fill_to(MIB);
    let (mut acknowledged, error) = enqueue_until_refused(&client, 0).await;
    let Error::Unavailable { applied: Applied::No, message } = &error else { panic!("{error:?}") };
    assert!(message.contains("cannot write to its disk") && message.contains("No space left"), "{message}");
    let page = metrics_page(&server.metrics.to_string()).await;
    let counted = page.lines().find_map(|line| line.strip_prefix("tallystone_store_disk_errors_total "));
    assert!(counted.is_some_and(|count| count.parse::<u64>().expect("a number") > 0), "{page}");
    assert!(page.contains("tallystone_store_available 0"), "{page}");
    // Reads continue.
    assert_eq!(ids(&client).await, acknowledged);

    disk.make_room();
    until("Redis continues", async || client.enqueue("q", vec![large(20_000)]).await.is_ok()).await;
    acknowledged.insert("m20000".to_owned());
    assert_eq!(ids(&client).await, acknowledged);
    // What it could not write at first is in its file, too.
    redis.stop().await;
    let _redis = redis_on(&disk, port, Fsync::EverySecond).await;
    until("the server reconnects", async || client.depth("q", None).await.is_ok()).await;
    assert_eq!(ids(&client).await, acknowledged);
}

/// The next test has the same Redis and no server that sees its disk: there Redis ends.
#[tokio::test]
async fn s1_a_server_that_sees_the_disk_refuses_before_redis_ends() {
    let (place, disk, port) = (Secured::new().await, SmallDisk::mount(128 * MIB), lasting_port());
    let redis = redis_on(&disk, port, Fsync::Always).await;
    let (config, folder) = (place.path("t.toml"), disk.path().join("redis"));
    // Much more than a Redis writes between two measurements of a server on a busy machine.
    let section = format!("[redis]\ndata_dir = '{}'\ndisk_free_min_bytes = {}\n", folder.display(), 64 * MIB);
    std::fs::write(&config, section).expect("a file");
    let server = place.start_with("server", &["--config", &config, "--redis-url", &redis.url()]).await;
    let client = server.client("unused");
    client.create_queue("q", QueueConfig::simple()).await.expect("a queue");
    let before = memory_kib(server.process.pid());
    disk.fill_to(72 * MIB);
    let (acknowledged, error) = enqueue_until_refused(&client, 0).await;
    let (code, reason, message) = refusal::<()>(Err(error));
    assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "STORE_FULL"), "{message}");
    assert!(acknowledged.len() > 1 && message.contains("disk space"), "{}: {message}", acknowledged.len());
    let grown = memory_kib(server.process.pid()).saturating_sub(before);
    println!("{} messages until it refuses: {grown} KiB", acknowledged.len());
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    // Redis still writes: what was acknowledged is there, and workers make room.
    assert_eq!(client.depth("q", None).await.expect("a Depth").pending, acknowledged.len() as u64);
    let lease = client.dequeue(Dequeue::new("q")).await.expect("a Dequeue").remove(0);
    client.complete("q", vec![Completion::of(lease.lease_ref())]).await.expect("a Complete")[0].as_ref().expect("done");
    disk.make_room();
    until("it takes messages again", async || client.enqueue("q", vec![large(20_000)]).await.is_ok()).await;
}

#[tokio::test]
async fn s1_a_redis_that_a_full_disk_has_ended_has_all_that_was_acknowledged() {
    let (place, disk, port) = (Secured::new().await, SmallDisk::mount(32 * MIB), lasting_port());
    let redis = redis_on(&disk, port, Fsync::Always).await;
    let server = place.start_with("server", &["--redis-url", &redis.url()]).await;
    let client = server.client("unused");
    client.create_queue("q", QueueConfig::simple()).await.expect("a queue");
    disk.fill_to(MIB);
    let (acknowledged, error) = enqueue_until_refused(&client, 0).await;
    assert!(matches!(error, Error::Unavailable { .. }) && acknowledged.len() > 1, "{error:?}");
    // With fsync before each reply it cannot continue.
    tokio::time::timeout(SOON, redis.ended()).await.expect("Redis has ended");

    disk.make_room();
    let _redis = redis_on(&disk, port, Fsync::Always).await;
    until("the server reconnects", async || client.depth("q", None).await.is_ok()).await;
    let found = ids(&client).await;
    assert!(acknowledged.is_subset(&found) && found.len() <= acknowledged.len() + 1, "{}", found.len());
    client.enqueue("q", vec![large(20_000)]).await.expect("room")[0].as_ref().expect("room");
}
