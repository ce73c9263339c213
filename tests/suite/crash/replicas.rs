//! Writes that wait for replicas (Q16): what counts as a replica that has a write, and what happens to messages while none has.

use super::machines::{Redis, Server, config_file};
use super::replication::{command, follows, good_replicas, has_replicas, replication};
use crate::counting::house::until;
use crate::system::program::SOON;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{Backoff, Client, Dequeue, Error, NewMessage, QueueConfig};
use tallystone_model::store::Completion;
use tallystone_model::{Applied, QueueName, Refusal, Shard, Store as _};
use tallystone_server::store::{ConnectError, RedisOptions, RedisStore};
use tallystone_tests::queue::to;
use tallystone_tests::{message, request, simple};
use tokio::time::{Instant, sleep};

const QUEUE: &str = "orders";
const POLL: Duration = Duration::from_millis(20);
/// Messages that wait while the replica does not answer, and how often each may be leased.
const MESSAGES: usize = 300;
const MAX_ATTEMPTS: u32 = 3;
/// Messages that were leased for a caller who has gone wait for the end of their leases.
const LEASE_MS: u64 = 20_000;
/// A primary counts a replica as good for this time after its last answer.
const LAG_S: u32 = 2;

/// A primary that has its replica.
async fn with_replica(primary: &Redis, replica: &Redis) {
    follows(replica, primary).await;
    command(primary, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    has_replicas(primary, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_with_waitaof_a_replica_has_what_it_has_fsynced() {
    let (primary, replica) = (Redis::valkey().await, Redis::valkey().await);
    with_replica(&primary, &replica).await;
    command(&replica, &["CONFIG", "SET", "appendonly", "no"]).await;
    let options = |replicas_fsync| RedisOptions {
        url: primary.url(),
        replicas_min: 1,
        replica_wait_ms: 500,
        replicas_fsync,
        ..RedisOptions::default()
    };
    let connect = async |replicas_fsync| RedisStore::connect(options(replicas_fsync)).await.expect("a durable Valkey");
    let (waits, waits_for_fsync) = (connect(false).await, connect(true).await);
    let name = QueueName::parse("queue", QUEUE).expect("a name");
    let shard = Shard::first(&name);
    waits.create_queue(&name, simple()).await.expect("a queue");
    let put = async |store: &RedisStore, id: &str| store.enqueue(&shard, vec![message(id, 1)]).await;

    // The replica receives everything, and writes nothing to its disk.
    put(&waits, "received").await.expect("the replica has received it");
    let refused = put(&waits_for_fsync, "fsynced").await;
    assert!(
        matches!(&refused, Err(Refusal::Unavailable { applied: Applied::Unknown, why }) if why.contains("fsynced")),
        "{refused:?}"
    );
    command(&replica, &["CONFIG", "SET", "appendonly", "yes"]).await;
    let written = until(async || put(&waits_for_fsync, "fsynced").await, Result::is_ok).await;
    written.expect("the replica writes its file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_a_repeated_call_is_not_acknowledged_before_a_replica_has_what_it_repeats() {
    acknowledges_no_repeat_without_replica(Redis::valkey().await, Redis::valkey().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_nor_is_it_on_redis() {
    acknowledges_no_repeat_without_replica(Redis::start().await, Redis::start().await).await;
}

/// The repeat writes nothing, and it comes over a connection that has written nothing: by itself, WAIT has nothing to wait for.
async fn acknowledges_no_repeat_without_replica(primary: Redis, replica: Redis) {
    with_replica(&primary, &replica).await;
    // However slow this machine is: a primary that no longer counts its replica refuses writes before it executes them.
    command(&primary, &["CONFIG", "SET", "min-replicas-max-lag", "3600"]).await;
    let options = RedisOptions { url: primary.url(), replicas_min: 1, replica_wait_ms: 300, ..RedisOptions::default() };
    let connect = async || RedisStore::connect(options.clone()).await.expect("a durable primary");
    let (first, second, third) = (connect().await, connect().await, connect().await);
    let name = QueueName::parse("queue", QUEUE).expect("a name");
    let shard = Shard::first(&name);
    first.create_queue(&name, simple()).await.expect("a queue");
    let put = async |store: &RedisStore, id: &str| {
        let mut results = store.enqueue(&shard, vec![message(id, 1)]).await?;
        results.remove(0).map(drop)
    };
    put(&first, "before").await.expect("the replica has it");
    let mut dequeued = first.dequeue(&shard, &[request(1)], false, None).await.expect("the replica has it");
    let taken = dequeued.leases.remove(0).expect("an open queue").remove(0);
    let done = async |store: &RedisStore| {
        let mut results = store.complete(&shard, vec![Completion::from(to(&taken))]).await?;
        results.remove(0).map(drop)
    };

    replica.signal(Signal::SIGSTOP);
    let is_unknown = |answer: Result<(), Refusal>| {
        assert!(matches!(answer, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{answer:?}");
    };
    is_unknown(put(&first, "order").await);
    is_unknown(put(&second, "order").await);
    is_unknown(put(&second, "order").await);
    is_unknown(done(&first).await);
    is_unknown(done(&third).await);
    // The replica has this one, but nothing shows that it still does.
    is_unknown(put(&third, "before").await);
    replica.signal(Signal::SIGCONT);
    until(async || put(&second, "order").await, Result::is_ok).await.expect("the replica is there");
    done(&third).await.expect("the replica has it");

    // What the calls waited for is in their keyspace, and expires.
    let ttl = redis::from_redis_value::<i64>(command(&primary, &["PTTL", "ts:wait"]).await).expect("a number");
    assert!((1..=60_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn q16_a_redis_without_waitaof_is_refused_where_it_is_wanted() {
    let redis = Redis::start().await;
    let info = redis::from_redis_value::<redis::InfoDict>(command(&redis, &["INFO", "server"]).await).expect("INFO");
    let version: String = info.get("redis_version").expect("a version");
    command(&redis, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let options = RedisOptions { url: redis.url(), replicas_min: 1, replicas_fsync: true, ..RedisOptions::default() };
    let connected = RedisStore::connect(options).await.map(drop);
    match version.starts_with("7.0.") {
        true => assert!(matches!(&connected, Err(ConnectError::WaitAof { .. })), "{connected:?}"),
        false => assert!(!matches!(&connected, Err(ConnectError::WaitAof { .. })), "{version}: {connected:?}"),
    }
}

/// Few Dequeues are executed whose messages no replica gets, so no message loses all of its attempts to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q16_while_the_replica_is_gone_no_message_becomes_errored() {
    let (primary, replica) = (Redis::start().await, Redis::start().await);
    with_replica(&primary, &replica).await;
    command(&primary, &["CONFIG", "SET", "min-replicas-max-lag", &LAG_S.to_string()]).await;
    let (_dir, file) = config_file("[redis]\nreplicas_min = 1\nreplica_wait_ms = 100\n");
    let server = Server::start(primary.url(), &file).await;
    let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
    let config =
        QueueConfig { max_attempts: Some(MAX_ATTEMPTS), retry_backoff: Some(Backoff::NONE), ..QueueConfig::simple() };
    client.create_queue(QUEUE, config).await.expect("a queue");
    let ids = (0..MESSAGES).map(|number| format!("m{number}"));
    let messages = ids.map(|id| NewMessage::new(id, "")).collect();
    client.enqueue(QUEUE, messages).await.expect("an Enqueue");

    replica.signal(Signal::SIGSTOP);
    // Until the primary no longer counts it as a good one, it executes what no replica gets.
    let dequeue = async || client.dequeue(Dequeue::new(QUEUE).worker("w").limit(10).lease_ms(LEASE_MS)).await;
    let (mut calls, give_up_at) = (0, Instant::now() + SOON);
    while calls == 0 || good_replicas(&replication(&primary).await) > 0 {
        let refused = dequeue().await;
        assert!(matches!(refused, Err(Error::Unavailable { .. })), "no replica has it: {refused:?}");
        assert!(Instant::now() < give_up_at, "the primary goes on to count its replica, after {calls} calls");
        calls += 1;
    }
    replica.signal(Signal::SIGCONT);

    let patient = client.clone().with_retry_for(SOON);
    let (mut completed, give_up_at) = (BTreeSet::new(), Instant::now() + SOON);
    while completed.len() < MESSAGES {
        assert!(
            Instant::now() < give_up_at,
            "{} of {MESSAGES} run: {:?}",
            completed.len(),
            client.depth(QUEUE, None).await
        );
        let Ok(leases) = dequeue().await else { continue };
        let completions = leases.iter().map(tallystone_client::Completion::of).collect::<Vec<_>>();
        if completions.is_empty() {
            sleep(POLL).await;
            continue;
        }
        let answers = patient.complete(QUEUE, completions).await.expect("an answer");
        for (lease, done) in leases.iter().zip(answers) {
            done.expect("a live lease");
            assert!(completed.insert(lease.id.clone()), "{} runs twice", lease.id);
        }
    }
    let depth = client.depth(QUEUE, None).await.expect("a depth");
    assert_eq!((depth.errored, depth.completed), (0, MESSAGES as u64), "after {calls} calls without a replica");
}
