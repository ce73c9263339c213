//! A queue with shards on two primaries of a Redis Cluster, of which one hangs (X4).

use super::cluster::Cluster;
use super::machines::{Server, config_file};
use crate::system::program::SOON;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::{Backoff, Client, Failure, Lease, NewMessage, QueueConfig, Worker};
use tallystone_lua::keys::Keyspace;
use tallystone_model::{MessageId, QueueName, Shard};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

const PARTITIONS: u16 = 6;
const SHARDS: u16 = 4;
const CONFIG: &str = "[redis]\npartitions = 6\n";
/// Between two messages of the schedule, which waits for nothing.
const EVERY: Duration = Duration::from_millis(100);
const MESSAGES: usize = 120;
/// A server that waits for an answer of the primary needs longer.
const IN_TIME: Duration = Duration::from_secs(10);
/// A worker gives up soon what it cannot complete.
const LEASE_MS: u64 = 2_000;

/// A queue whose first shards are in the partitions of the first primary, and the others in those of the second.
fn queue_name(second: &BTreeSet<u16>) -> String {
    let is_there = |queue: &QueueName, number| {
        let shard = Shard { queue: queue.clone(), number };
        second.contains(&Keyspace::number_of(&shard, PARTITIONS))
    };
    let is_on_both = |name: &String| {
        let queue = QueueName::parse("queue", name).expect("a name");
        (0..SHARDS).map(|number| is_there(&queue, number)).eq([false, false, true, true])
    };
    (0..).map(|n| format!("q{n}")).find(is_on_both).expect("one in some")
}

/// Ids of messages whose shards are in this half.
fn ids(of_second: bool) -> impl Iterator<Item = String> {
    let number = |id: &String| Shard::number_of(SHARDS, None, &MessageId::parse("id", id.clone()).expect("an id"));
    (0..).map(|n| format!("m{n}")).filter(move |id| (number(id) >= SHARDS / 2) == of_second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x4_shards_of_a_primary_that_hangs_do_not_hold_up_those_of_another() {
    let cluster = Cluster::start().await;
    let (_dir, config) = config_file(CONFIG);
    let server = Server::start(cluster.url(), &config).await;
    let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
    let queue = queue_name(&cluster.partitions(1, PARTITIONS).await);
    let config =
        QueueConfig { shards: Some(u32::from(SHARDS)), retry_backoff: Some(Backoff::NONE), ..QueueConfig::simple() };
    client.create_queue(&queue, config).await.expect("a queue");
    // Both halves have messages, so every Dequeue calls both.
    let (mut served, mut hung) = (ids(false), ids(true));
    let before: Vec<String> = served.by_ref().take(40).chain(hung.by_ref().take(400)).collect();
    let messages = before.iter().map(|id| NewMessage::new(id.as_str(), "")).collect();
    client.enqueue(&queue, messages).await.expect("a queue").into_iter().for_each(|sent| drop(sent.expect("new")));

    let (done, mut of_done) = mpsc::unbounded_channel::<(String, Instant)>();
    let (begin, began) = oneshot::channel::<()>();
    let begin = Arc::new(Mutex::new(Some(begin)));
    let worker = Worker::new(client.clone(), &queue).concurrency(16).lease_ms(LEASE_MS);
    let work = worker.run(move |lease: Lease| {
        let (done, begin) = (done.clone(), begin.clone());
        async move {
            if let Some(begin) = begin.lock().expect("no panic").take() {
                begin.send(()).expect("the test waits");
            }
            drop(done.send((lease.id, Instant::now())));
            Ok::<(), Failure>(())
        }
    });
    let test = async {
        timeout(SOON, began).await.expect("in time").expect("a worker");
        cluster.freeze_all(1);
        let began = Instant::now();
        let scheduled: BTreeMap<String, Instant> =
            served.take(MESSAGES).zip(1..).map(|(id, number)| (id, began + EVERY * number)).collect();
        let mut in_order: Vec<(&String, &Instant)> = scheduled.iter().collect();
        in_order.sort_by_key(|(_, at)| **at);
        let mut calls = Vec::new();
        for ((id, at), of_hung) in in_order.into_iter().zip(hung) {
            sleep_until(*at).await;
            for (id, is_served) in [(id.clone(), true), (of_hung, false)] {
                let (client, queue) = (client.clone(), queue.clone());
                calls.push(tokio::spawn(async move {
                    let sent = client.enqueue(&queue, vec![NewMessage::new(id, "")]).await;
                    assert!(!is_served || sent.is_ok_and(|sent| sent[0].is_ok()), "a shard that is served");
                }));
            }
        }
        let (mut missing, mut longest) = (scheduled.clone(), Duration::ZERO);
        let last = scheduled.values().max().expect("some");
        while !missing.is_empty() {
            let next = timeout_at(*last + IN_TIME, of_done.recv()).await;
            let (id, ran_at) = next.unwrap_or_else(|_| panic!("not in time: {missing:?}")).expect("a worker");
            if let Some(at) = missing.remove(&id) {
                longest = longest.max(ran_at.saturating_duration_since(at));
            }
        }
        println!("the longest time until a message ran: {longest:?}");
        assert!(longest < IN_TIME, "{longest:?}");
        for call in calls {
            call.await.expect("no panic");
        }
        cluster.thaw_all(1);
        // What the hung shards had given, and what they had.
        let give_up_at = Instant::now() + 2 * SOON;
        while client.depth(&queue, None).await.map_or(u64::MAX, |depth| depth.pending + depth.running) > 0 {
            assert!(Instant::now() < give_up_at, "leases without a worker: {:?}", client.depth(&queue, None).await);
            sleep(EVERY).await;
        }
    };
    tokio::select! {
        ended = work => panic!("ended early: {ended:?}"),
        () = test => {}
    }
}
