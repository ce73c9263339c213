//! Slots of a Redis Cluster that move, and clusters that a server refuses (Q17).

use super::cluster::Cluster;
use super::load::KEY;
use super::machines::{Server, config_file};
use crate::system::program;
use std::sync::Arc;
use tallystone_link::RedisConfig;
use tallystone_lua::keys::Keyspace;
use tallystone_model::{Applied, QueueName, Refusal, Shard, Store};
use tallystone_server::store::{ConnectError, OutboxBound, RedisOptions, RedisStore};
use tallystone_tests::queue::lease_ref;
use tallystone_tests::{Clock, TestQueue, TestRedis, exclusive, keyed, request, simple, volatile};

const PARTITIONS: u16 = 4;

fn options(url: &str, partitions: Option<u16>) -> RedisOptions {
    let redis = RedisConfig { partitions, ..volatile(url) };
    RedisOptions::new(&redis, OutboxBound::default()).expect("no data folder")
}

/// Queues of the first partition.
fn queues_of_the_first_partition() -> impl Iterator<Item = QueueName> {
    let names = (0..).map(|number| QueueName::parse("queue", &format!("q{number}")).expect("a valid name"));
    names.filter(|name| Keyspace::number_of_queue(name, PARTITIONS) == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_a_slot_that_is_moved_refuses_calls_and_goes_on_at_its_new_primary() {
    let cluster = Cluster::start().await;
    let store = Arc::new(RedisStore::connect(options(&cluster.url(), Some(PARTITIONS))).await.expect("a cluster"));
    let [name, empty] = [0, 1].map(|at| queues_of_the_first_partition().nth(at).expect("one in four"));
    for name in [&name, &empty] {
        store.create_queue(name, exclusive()).await.expect("a queue");
    }
    let queue = TestQueue { store: store.clone(), clock: Clock::new(), shard: Shard::first(&name) };
    queue.put((0..4).map(|n| keyed(&format!("m{n}"), n, &format!("k{}", n % 2)))).await;
    let first = queue.take_one().await;

    // As `redis-cli --cluster reshard` begins, and before it has moved the first key.
    let slot = Keyspace::partition(0, PARTITIONS).slot().to_string();
    let (from, to) = (cluster.primary(0).await, cluster.primary(1).await);
    let id = async |node: usize| redis::from_redis_value::<String>(cluster.command(node, &["CLUSTER", "MYID"]).await);
    let (from_id, to_id) = (id(from).await.expect("an id"), id(to).await.expect("an id"));
    cluster.command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    cluster.command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    let refused = store.dequeue(&queue.shard, &[request(1)], false, None).await;
    assert!(
        matches!(&refused, Err(Refusal::Unavailable { applied: Applied::No, why }) if why.contains("MIGRATING")),
        "what is certain not to have happened: {refused:?}"
    );
    // The search for an id in several shards: one command of a pipeline is refused, and not the pipeline.
    let searched = store.holds(&Shard::first(&empty), &[tallystone_tests::id("m0")]).await;
    assert!(
        matches!(&searched, Err(Refusal::Unavailable { applied: Applied::No, why }) if why.contains("MIGRATING")),
        "{searched:?}"
    );
    // `tallystone check` cannot read the queue, and says why.
    let (_dir, file) = config_file(&format!("[redis]\npartitions = {PARTITIONS}\n"));
    let mut server = Server::start(cluster.url(), &file).await;
    let args = ["check", name.as_str(), "--server", &server.url()];
    let checked = program::run(program::command(&args), "").await;
    assert!(checked.code == Some(3) && checked.stderr.contains("MIGRATING"), "{:?}: {}", checked.code, checked.stderr);
    let log = server.killed().await;
    assert!(log.contains("a slot with our keys is MIGRATING"), "{log}");
    // The operator gives up.
    for node in [from, to] {
        cluster.command(node, &["CLUSTER", "SETSLOT", &slot, "STABLE"]).await;
    }
    let second = queue.take_one().await;
    assert_ne!(first.metadata.get(KEY), second.metadata.get(KEY), "the value of the first is still locked");

    cluster.move_slot(Keyspace::partition(0, PARTITIONS).slot(), 0, 1).await;
    // No call is refused: it is led to the new primary, where the leases are, and the numbers continue.
    queue.complete(lease_ref(first.id.as_str(), first.fencing_token)).await.expect("its lease");
    let third = queue.take_one().await;
    assert!(third.metadata.get(KEY) == first.metadata.get(KEY) && third.fencing_token > first.fencing_token);
    queue.assert_sound().await;
}

#[tokio::test]
async fn q17_data_has_one_number_of_partitions() {
    let redis = TestRedis::shared_cluster().await;
    let connect = async |partitions| RedisStore::connect(options(&redis.url(), partitions)).await.map(drop);
    connect(None).await.expect("the default");
    match connect(Some(7)).await {
        Err(ConnectError::Partitions { found, wanted: 7, .. }) => assert_eq!(found, u64::from(RedisConfig::PARTITIONS)),
        other => panic!("it would not find its queues: {other:?}"),
    }
    connect(Some(RedisConfig::PARTITIONS)).await.expect("the same, named");
}

#[tokio::test]
async fn q17_an_address_says_that_it_is_a_cluster() {
    let redis = TestRedis::shared_cluster().await;
    let one = redis.url().replace("redis-cluster://", "redis://");
    let one = one.split(',').next().expect("a node");
    let refused = RedisStore::connect(options(one, None)).await.map(drop).expect_err("a node");
    assert!(matches!(&refused, ConnectError::Cluster { .. }), "{refused}");
    assert!(refused.to_string().contains("redis-cluster://"), "{refused}");
    // One that is none.
    let single = TestRedis::shared().await;
    let address = single.url().replace("redis://", "redis-cluster://");
    let refused = RedisStore::connect(options(&address, None)).await.map(drop).expect_err("no cluster").to_string();
    assert!(refused.contains("cluster support disabled"), "{refused}");
}

#[tokio::test]
async fn q17_queues_are_spread_and_listed_in_order() {
    let redis = TestRedis::shared_cluster().await;
    let store = RedisStore::connect(options(&redis.url(), None)).await.expect("a cluster");
    let mut names: Vec<QueueName> =
        (0..40).map(|n| QueueName::parse("queue", &format!("spread/{n}")).expect("a valid name")).collect();
    for name in &names {
        store.create_queue(name, simple()).await.expect("a queue");
    }
    let used: std::collections::BTreeSet<u16> =
        names.iter().map(|name| Keyspace::number_of_queue(name, RedisConfig::PARTITIONS)).collect();
    assert_eq!(used.len(), usize::from(RedisConfig::PARTITIONS), "40 queues reach every partition");
    names.sort_unstable();
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = store.list_queues("spread/", &cursor, 7).await.expect("a page");
        assert!(page.items.len() <= 7);
        listed.extend(page.items.into_iter().map(|queue| queue.name));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(listed, names);
    let kept = store.kept("spread/", true).await;
    assert_eq!(kept.into_iter().map(|kept| kept.expect("an answer").queues).sum::<u64>(), 40);
    let mut walked = 0;
    for partition in 0..store.partition_count() {
        let mut cursor = String::new();
        loop {
            let page = store.queue_depths(partition, &cursor).await.expect("a page");
            walked += page.items.iter().filter(|(name, _)| name.as_str().starts_with("spread/")).count();
            cursor = page.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
    }
    assert_eq!(walked, 40);
    for name in &names {
        store.delete_queue(name).await.expect("an empty queue");
    }
    assert_eq!(store.list_queues("spread/", "", 7).await.expect("a page").items.len(), 0);
}
