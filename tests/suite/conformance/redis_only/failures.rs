//! A Redis that forgets its scripts, is full, volatile, not there, killed, or without its replicas (Q15, Q16); and the hash
//! tag that its keys have (Q17).

use super::{alone, raw};
use crate::conformance::bring;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, ConnectError, RedisOptions, RedisStore};
use tallystone_tests::queue::{to, went};
use tallystone_tests::*;
use tempfile::TempDir;

#[tokio::test]
async fn q15_scripts_that_redis_has_forgotten_are_loaded_again() {
    let (redis, stage) = alone("forgotten").await;
    let queue = stage.queue(exclusive()).await;
    for n in 0..3 {
        let name = format!("m{n}");
        queue.put([keyed(&name, 1, "k")]).await;
        raw::<()>(&redis, "SCRIPT FLUSH").await;
        let lease = queue.through(&stage.other).take_one().await;
        raw::<()>(&redis, "SCRIPT FLUSH").await;
        assert_eq!(queue.complete(to(&lease)).await, went(State::Completed, 3));
        raw::<()>(&redis, "SCRIPT FLUSH").await;
    }
    // Many at once meet the same loss.
    queue.put((0..20).map(|n| keyed(&format!("n{n}"), 1, &format!("k{n}")))).await;
    raw::<()>(&redis, "SCRIPT FLUSH").await;
    let takes = async || (queue.take(5).await.len(), queue.depth().await.live());
    let (a, b, c, d) = tokio::join!(takes(), takes(), takes(), takes());
    assert_eq!([a, b, c, d], [(5, 20); 4]);
    stage.assert_sound().await;
}

#[tokio::test]
async fn q16_a_full_redis_takes_nothing_new_and_lets_work_go_on() {
    let (redis, stage) = alone("full").await;
    let queue = stage.queue(exclusive()).await;
    queue.put((0..50).map(|n| keyed(&format!("m{n}"), n, &format!("k{}", n % 10)))).await;
    let lease = queue.take_one().await;
    raw::<()>(&redis, "CONFIG SET maxmemory 1mb").await;
    let before = queue.snapshot().await;
    for batch in [vec![keyed("new", 1, "k")], vec![keyed("m7", 7, "k7"), keyed("new", 1, "k")]] {
        assert_eq!(queue.store.enqueue(&queue.shard, batch).await, Err(Refusal::StoreFull { of: Resource::Memory }));
    }
    let name = stage.queue_name();
    assert_eq!(stage.store.create_queue(&name, simple()).await, Err(Refusal::StoreFull { of: Resource::Memory }));
    assert_eq!(queue.snapshot().await, before);
    // All that makes room, or ends work, continues, also through a server that starts now.
    drop(redis.store(store::Clock::default()).await);
    assert_eq!(queue.complete(to(&lease)).await, went(State::Completed, 3));
    let leases = queue.take(9).await;
    assert_eq!(leases.len(), 9);
    queue.extend(to(&leases[0]), None, "").await.expect("a live lease");
    queue.release(to(&leases[0]), Some(0), "").await.expect("a live lease");
    queue.cancel(to(&leases[1]), "").await.expect("a live lease");
    assert_eq!(queue.pass(600_000).await.collected, 2);
    // The new index is built when a filter needs it.
    let indexes = Some(vec![index(&["color"])]);
    queue.reconfigure(QueuePatch { enqueue_blocked: Some(true), indexes, ..QueuePatch::default() }).await;
    queue.purge(true).await;
    queue.reconfigure(QueuePatch { enqueue_blocked: Some(false), ..QueuePatch::default() }).await;
    raw::<()>(&redis, "CONFIG SET maxmemory 0").await;
    queue.put([keyed("new", 1, "k")]).await;
    assert_eq!(queue.take_ids(9).await, ["new"]);
    stage.assert_sound().await;
}

#[tokio::test]
async fn q16_a_volatile_redis_is_refused_by_each_setting_that_makes_it_so() {
    let redis = TestRedis::start().await;
    let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
    raw::<()>(&redis, "CONFIG SET appendfsync always").await;
    RedisStore::connect(options.clone()).await.map(drop).expect("as durable as can be");
    let wrong = [
        ("appendonly", "no", "yes"),
        ("appendfsync", "everysec", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ];
    for only in [Some(0), Some(1), Some(2), Some(3), None] {
        let chosen: Vec<_> =
            (0..wrong.len()).filter(|at| only.is_none_or(|only| only == *at)).map(|at| wrong[at]).collect();
        for (name, value, _) in &chosen {
            raw::<()>(&redis, &format!("CONFIG SET {name} {value}")).await;
        }
        match RedisStore::connect(options.clone()).await.map(drop) {
            Err(ConnectError::Volatile { settings }) => {
                for (name, value, _) in wrong {
                    let named = settings.contains(&format!("{name} is '{value}'"));
                    assert_eq!(named, chosen.iter().any(|chosen| chosen.0 == name), "{name} in {settings:?}");
                }
            }
            other => panic!("{chosen:?}: {other:?}"),
        }
        let allowed = RedisOptions { allow_volatile: true, ..options.clone() };
        RedisStore::connect(allowed).await.map(drop).expect("its operator allows it");
        for (name, _, value) in &chosen {
            raw::<()>(&redis, &format!("CONFIG SET {name} {value}")).await;
        }
    }
    RedisStore::connect(options).await.map(drop).expect("durable again");
    // Redis does not stop while it writes the first append-only file.
    while !raw::<String>(&redis, "INFO persistence").await.contains("aof_rewrite_in_progress:0") {}
}

#[tokio::test]
async fn q16_a_replica_and_a_node_of_a_cluster_are_refused() {
    let primary = TestRedis::start().await;
    let replica = TestRedis::start().await;
    let port = primary.url().rsplit_once(':').expect("a port").1.to_owned();
    raw::<()>(&replica, &format!("REPLICAOF 127.0.0.1 {port}")).await;
    let connect = async |url: String| {
        let options = RedisOptions { url, allow_volatile: true, ..RedisOptions::default() };
        RedisStore::connect(options).await.map(drop)
    };
    let refused = connect(replica.url()).await;
    assert!(matches!(refused, Err(ConnectError::Replica { .. })), "{refused:?}");

    let dir = TempDir::new().expect("a temporary folder");
    let extra_args = ["--cluster-enabled", "yes"].map(str::to_owned).to_vec();
    let options = PrivateRedisOptions { extra_args, ..PrivateRedisOptions::new(dir.path()) };
    let node = PrivateRedis::start(options).await.expect("a redis-server");
    let refused = connect(node.url()).await;
    assert!(matches!(refused, Err(ConnectError::Cluster { .. })), "{refused:?}");
    node.stop().await;
}

#[tokio::test]
async fn q16_no_redis_is_a_clear_error() {
    let nowhere = RedisOptions { url: "redis://127.0.0.1:1".to_owned(), ..RedisOptions::default() };
    let refused = RedisStore::connect(nowhere).await.map(drop);
    assert!(matches!(&refused, Err(ConnectError::Unreachable { url, .. }) if url.ends_with(":1")), "{refused:?}");
    let rubbish = RedisOptions { url: "no address".to_owned(), ..RedisOptions::default() };
    let refused = RedisStore::connect(rubbish).await.map(drop);
    assert!(matches!(refused, Err(ConnectError::Address(_))), "{refused:?}");
}

#[tokio::test]
async fn q16_an_acknowledged_write_outlives_a_killed_redis_and_the_store_heals() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let lasting = PrivateRedisOptions { port: Some(lasting_port()), ..PrivateRedisOptions::new(dir.path()) };
    let redis = PrivateRedis::start(lasting.clone()).await.expect("a redis-server");
    let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
    let store = Arc::new(RedisStore::connect(options).await.expect("a durable Redis"));
    let stage = Stage::on(store.clone(), store, Clock::new(), "killed");
    let queue = stage.queue(simple()).await;
    queue.put((0..100).map(|n| message(&format!("m{n}"), n))).await;
    let lease = queue.take_one().await;
    let before = queue.snapshot().await;
    redis.kill();
    redis.stop().await;
    for _ in 0..2 {
        let refused = queue.try_put(message("new", 1)).await;
        assert!(matches!(refused, Err(Refusal::Unavailable { .. })), "{refused:?}");
    }
    // With no connection at all, nothing can have happened.
    let refused = queue.complete(to(&lease)).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{refused:?}");
    let redis = PrivateRedis::start(lasting).await.expect("a redis-server on the same port");
    assert_eq!(queue.snapshot().await, before);
    assert_eq!(queue.complete(to(&lease)).await, went(State::Completed, 3));
    stage.assert_sound().await;
    redis.stop().await;
}

#[tokio::test]
async fn q16_a_write_that_too_few_replicas_have_is_not_acknowledged() {
    let (redis, stage) = alone("replicas").await;
    let queue = stage.queue(simple()).await;
    let options = RedisOptions {
        url: redis.url(),
        allow_volatile: true,
        replicas_min: 1,
        replica_wait_ms: 50,
        ..RedisOptions::default()
    };
    let careful = queue.through(&Arc::new(RedisStore::connect(options).await.expect("a store")));
    // The queue was made by a test's clock, which has no timeline: the first call only moves it to that of this Redis.
    for pending in [0, 1] {
        let refused = careful.try_put(message("m", 1)).await;
        assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{refused:?}");
        assert_eq!(careful.depth().await.of(State::Pending), pending, "reading does not wait");
    }
    assert_eq!(careful.get("m").await.state, State::Pending, "reading does not wait");
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let url = redis.url();
    let (host, port) = url.trim_start_matches("redis://").trim_end_matches('/').split_once(':').expect("host:port");
    let extra_args = ["--replicaof", host, port].map(str::to_owned).to_vec();
    raw::<()>(&redis, "CONFIG SET repl-diskless-sync-delay 0").await;
    let replica = PrivateRedis::start(PrivateRedisOptions { extra_args, ..PrivateRedisOptions::new(dir.path()) });
    let replica = replica.await.expect("a replica");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(refusal) = careful.try_put(message("m", 1)).await {
        assert!(Instant::now() < deadline, "the replica is there, but {refusal}");
    }
    replica.kill();
}

#[tokio::test]
async fn q16_waits_for_replicas_of_many_queues_do_not_follow_each_other() {
    const QUEUES: u32 = 24;
    const WAIT: Duration = Duration::from_millis(200);
    let (redis, stage) = alone("waits").await;
    let options = RedisOptions {
        url: redis.url(),
        allow_volatile: true,
        replicas_min: 1,
        replica_wait_ms: WAIT.as_millis() as u64,
        ..RedisOptions::default()
    };
    let careful = Arc::new(RedisStore::connect(options).await.expect("a store"));
    let mut queues = Vec::new();
    for _ in 0..QUEUES {
        queues.push(stage.queue(simple()).await.through(&careful));
    }
    let began = Instant::now();
    let waits = queues.iter().map(async |queue| queue.try_put(message("m", 1)).await);
    for refused in futures::future::join_all(waits).await {
        assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{refused:?}");
    }
    assert!(began.elapsed() < WAIT * QUEUES / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn q16_a_redis_must_refuse_writes_that_too_few_replicas_can_get() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let plain = RedisOptions { url: redis.url(), ..RedisOptions::default() };
    let options = RedisOptions { replicas_min: 1, ..plain.clone() };
    // It leaves its marks: a Redis without replicas will not take them.
    drop(RedisStore::connect(plain).await.expect("a store"));
    let refused = RedisStore::connect(options.clone()).await.map(drop);
    assert!(matches!(refused, Err(ConnectError::Replicas { replicas_min: 1, .. })), "{refused:?}");
    let client = ::redis::Client::open(redis.url()).expect("an address");
    let mut connection = patient_connection(&client).await.expect("a connection");
    let set = ::redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(1).take();
    set.exec_async(&mut connection).await.expect("the setting");
    let store = RedisStore::connect(options).await.expect("a store");
    let queue = QueueName::parse("queue", "q").expect("a name");
    let refused = store.create_queue(&queue, simple()).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{refused:?}");
}

#[tokio::test]
async fn q17_every_key_of_a_queue_is_behind_its_hash_tag() {
    let (redis, stage) = alone("tagged:a.b-c_d").await;
    let queue = stage.queue(exclusive()).await;
    for (at, state) in State::ALL.into_iter().enumerate() {
        let at = 2 * at as i64;
        bring(&queue, keyed(state.name(), -at, state.name()), state).await;
        bring(&queue, keyed(&format!("{state} too"), -at - 1, &format!("{state} too")), state).await;
    }
    queue.put([keyed("behind", 1, "running"), keyed("behind too", 2, "running")]).await;
    assert_eq!(queue.take_where(1, &[filter(&[(KEY, "running")])]).await, [""; 0]);
    let wanted = DequeueRequest { request_id: "r".to_owned(), ..request(1) };
    assert_eq!(queue.try_take(wanted).await.map(|leases| leases.len()), Ok(1));
    let keys = async || {
        let mut keys: Vec<String> = raw(&redis, "KEYS *").await;
        keys.sort();
        keys
    };
    let tag = format!("ts:{{{}/0}}:", queue.name());
    let (mine, others): (Vec<String>, Vec<String>) = keys().await.into_iter().partition(|key| key.starts_with(&tag));
    assert_eq!(others, ["ts:format", "ts:indexes:undeclared", "ts:queues", "ts:queues:new", "ts:store"]);
    let mut names: Vec<&str> = mine.iter().map(|key| &key[tag.len()..]).collect();
    names.sort();
    let expected = [
        "attempts",
        "backlog",
        "body",
        "config",
        "done",
        "errored",
        "errored_bytes",
        "head",
        "index:0:counts",
        "index:0:order",
        "invisible",
        "keys",
        "outbox",
        "parked",
        "ready",
        "request_due",
        "requests",
        "running",
        "state",
    ];
    assert_eq!(names, expected);
    stage.assert_sound().await;
    // A deleted queue leaves its events, and a mark for the call that is repeated and for an Enqueue to an exclusive name.
    queue.purge(true).await;
    stage.store.delete_queue(queue.name()).await.expect("an empty queue");
    // The entries of its undeclared index are corrected within a minute.
    let left = ["ts:format", "ts:indexes:undeclared", "ts:outboxes:left", "ts:queues:new", "ts:store"];
    let left = left.map(str::to_owned);
    assert_eq!(keys().await, [left.as_slice(), &[format!("{tag}deleted"), format!("{tag}outbox")]].concat());
    let mark_ms: u64 = raw(&redis, &format!("PTTL {tag}deleted")).await;
    let month_ms = 30 * 86_400_000;
    assert!((month_ms - 100_000..=month_ms).contains(&mark_ms), "{mark_ms}");
}
