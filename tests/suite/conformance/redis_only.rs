//! What only a Redis can do or be: forget its scripts, be full, be volatile, die: Q8, Q15, Q16, Q17.

use super::bring;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_model::limits::{DELAY_MS_MAX, INDEXES_MAX};
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, ConnectError, OutboxBound, OutboxFull, RedisOptions, RedisStore};
use tallystone_tests::queue::{lease_ref, to, went};
use tallystone_tests::*;

/// One raw command.
async fn raw<T: ::redis::FromRedisValue>(redis: &TestRedis, words: &str) -> T {
    let mut command = ::redis::Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command.query_async(&mut redis.connection().await).await.expect(words)
}

/// A stage on a dedicated Redis, to be broken.
async fn alone(test: &str) -> (TestRedis, Stage<RedisStore>) {
    let (redis, clock) = (TestRedis::start().await, Clock::new());
    let store = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
    let other = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
    (redis, Stage::on(store, other, clock, test))
}

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
        assert_eq!(queue.store.enqueue(&queue.shard, batch).await, Err(Refusal::StoreFull));
    }
    let name = stage.queue_name();
    assert_eq!(stage.store.create_queue(&name, simple()).await, Err(Refusal::StoreFull));
    assert_eq!(queue.snapshot().await, before);
    // All that makes room, or ends work, goes on.
    assert_eq!(queue.complete(to(&lease)).await, went(State::Completed, 3));
    let leases = queue.take(9).await;
    assert_eq!(leases.len(), 9);
    queue.extend(to(&leases[0]), None, "").await.expect("a live lease");
    queue.release(to(&leases[0]), Some(0), "").await.expect("a live lease");
    queue.cancel(to(&leases[1]), "").await.expect("a live lease");
    assert_eq!(queue.pass(600_000).await.collected, 2);
    queue.reconfigure(QueuePatch { enqueue_blocked: Some(true), ..QueuePatch::default() }).await;
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
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ];
    for only in [Some(0), Some(1), Some(2), None] {
        let chosen: Vec<_> = (0..3).filter(|at| only.is_none_or(|only| only == *at)).map(|at| wrong[at]).collect();
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
    let refused = careful.try_put(message("m", 1)).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{refused:?}");
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
async fn q15_the_outbox_is_kept_to_its_bound() {
    let stage = Stage::redis("bounded").await;
    let redis = stage.redis.clone().expect("a Redis");
    let queue = stage.queue(simple()).await;
    let bounded = async |full: OutboxFull| {
        let outbox = OutboxBound { events_max: 200, full, ..OutboxBound::default() };
        let options = RedisOptions { url: redis.url(), allow_volatile: true, outbox, ..RedisOptions::default() };
        queue.through(&Arc::new(RedisStore::connect(options).await.expect("a store")))
    };
    let refusing = bounded(OutboxFull::RefuseEnqueue).await;
    for n in 0..200 {
        refusing.put([message(&format!("m{n}"), n)]).await;
    }
    let full = Refusal::OutboxFull { queue: queue.name().to_string(), events_max: 200 };
    assert_eq!(refusing.try_put(message("m200", 1)).await, Err(full));
    assert!(refusing.try_put(message("m1", 1)).await.is_ok(), "it is there: nothing new is taken");
    assert_eq!(refusing.take_ids(1).await, ["m0"], "what is in the queue goes on");
    assert_eq!(queue.events().await.len(), 201);

    let giving_up = bounded(OutboxFull::GiveUpHistory).await;
    for n in 200..1_000 {
        giving_up.put([message(&format!("m{n}"), n)]).await;
    }
    let events = queue.events().await;
    assert_eq!(events.len(), 200);
    assert_eq!(events.last().map(|event| event.id.clone()), Some(id("m999")), "the oldest go");
    let purge = refusing.store.purge(&refusing.shard, true, "").await;
    assert!(matches!(purge, Err(Refusal::OutboxFull { .. })), "a purge waits for history: {purge:?}");
    for n in 0..1_000 {
        refusing.cancel_as(lease_ref(&format!("m{n}"), 0), true, "").await.expect("a live message");
    }
    assert_eq!(queue.events().await.len(), 400, "twice the bound for what is not an Enqueue");
    giving_up.purge(true).await;
    stage.store.delete_queue(queue.name()).await.expect("an empty queue");
}

#[tokio::test]
async fn q19_internal_queues_keep_no_history_unless_configured() {
    let (redis, clock) = (TestRedis::start().await, Clock::new());
    let store = async |internal_queues| {
        let outbox = OutboxBound { internal_queues, payload_bytes_kept: 10, ..OutboxBound::default() };
        let (url, clock) = (redis.url(), store::Clock::Test(clock.shared()));
        let options = RedisOptions { url, allow_volatile: true, outbox, clock, ..RedisOptions::default() };
        Arc::new(RedisStore::connect(options).await.expect("a store"))
    };
    let (without, with) = (store(false).await, store(true).await);
    for (name, kept, kept_if_configured) in [("rollup/ns/0of1", 0, 6), ("rollups", 6, 6), ("x/rollup/", 6, 6)] {
        for (store, kept) in [(&without, kept), (&with, kept_if_configured)] {
            let name = QueueName::parse("queue", name).expect("a name");
            store.create_queue(&name, exclusive()).await.expect("a new queue");
            let queue = TestQueue { store: store.clone(), clock: clock.clone(), shard: Shard::first(&name) };
            // A message of each kind of script: it comes, hides, is leased, released, leased, completed and collected.
            queue.put([NewMessage { invisibility_ms: Some(5), ..keyed("hides", 1, "k") }]).await;
            queue.pass(5).await;
            let lease = queue.take_one().await;
            queue.release(to(&lease), Some(0), "again").await.expect("a live lease");
            let lease = queue.take_one().await;
            queue.complete(to(&lease)).await.expect("a live lease");
            assert_eq!(queue.store.outbox_events(&queue.shard).await.expect("events").len(), kept, "{name}");
            assert_eq!(queue.depth().await.completed, 1);
            queue.pass(600_000).await;
            assert_eq!(queue.depth().await, Depth::default());
            store.delete_queue(&name).await.expect("an empty queue");
            raw::<()>(&redis, "FLUSHALL").await;
        }
    }
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
    assert_eq!(others, ["ts:format", "ts:queues", "ts:queues:new", "ts:store"]);
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
    // A deleted queue leaves its events, and for an hour a mark for the call that is repeated.
    queue.purge(true).await;
    stage.store.delete_queue(queue.name()).await.expect("an empty queue");
    let left = ["ts:format", "ts:outboxes:left", "ts:queues:new", "ts:store"].map(str::to_owned);
    assert_eq!(keys().await, [left.as_slice(), &[format!("{tag}deleted"), format!("{tag}outbox")]].concat());
    let mark_ms: u64 = raw(&redis, &format!("PTTL {tag}deleted")).await;
    assert!((3_500_000..=3_600_000).contains(&mark_ms), "{mark_ms}");
}

#[tokio::test]
async fn q8_a_small_queue_is_indexed_in_the_first_calls_however_many_come_at_once() {
    let stage = Stage::redis("small").await;
    let redis = stage.redis.clone().expect("a Redis");
    for round in 0..20 {
        let queue = stage.queue(exclusive()).await;
        queue.put((0..10).map(|n| tagged(&format!("m{n}"), n, &[(KEY, &format!("k{n}")), ("origin", "o")]))).await;
        let mine = filter(&[("origin", "o")]);
        let calls = (0..8).map(|n| {
            let store = if n % 2 == 0 { &stage.store } else { &stage.other };
            let filtered = DequeueRequest { filters: vec![mine.clone()], ..request(1) };
            let (mine, shard) = (&mine, &queue.shard);
            async move {
                let depth = store.depth(shard, Some(mine)).await.map(|depth| depth.live());
                let leased =
                    store.dequeue(shard, &[filtered], false, None).await.expect("an open queue").leases.remove(0);
                (depth, leased.map(|leases| leases.len()))
            }
        });
        for answer in futures::future::join_all(calls).await {
            assert_eq!(answer, (Ok(10), Ok(1)), "round {round}");
        }
        let keys: Vec<String> = raw(&redis, &format!("KEYS *{}*index*", queue.name())).await;
        assert_eq!(keys.len(), 2, "what only the build needed is gone: {keys:?}");
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn q8_a_large_queue_is_indexed_in_the_background_while_it_works() {
    const MESSAGES: usize = 6_000;
    let stage = Stage::redis("background").await;
    let queue = stage.queue(exclusive()).await;
    let there = queue.through(&stage.other);
    let flight = |n: usize| {
        let (key, origin) = (format!("k{}", n % 500), format!("o{}", n % 7));
        tagged(&format!("m{n:04}"), n as i64, &[(KEY, &key), ("origin", &origin)])
    };
    for part in 0..MESSAGES / 1_000 {
        queue.put((part * 1_000..(part + 1) * 1_000).map(flight)).await;
    }
    let mine = filter(&[("origin", "o3")]);
    let filtered = DequeueRequest { filters: vec![mine.clone()], ..request(1) };
    let answer = stage.store.dequeue(&queue.shard, &[filtered, request(1)], false, None).await.expect("an open queue");
    assert_eq!(answer.leases[0], Err(Refusal::IndexBuilding { keys: "origin".to_owned() }));
    assert_eq!(answer.leases[1].as_ref().map(Vec::len), Ok(1), "a request without filters is answered");
    // Both servers go on while it is built: what it covers and what it does not.
    let mut moves = 0;
    while let Err(refusal) = there.store.depth(&queue.shard, Some(&mine)).await {
        assert_eq!(refusal, Refusal::IndexBuilding { keys: "origin".to_owned() });
        for lease in queue.take(9).await {
            moves += 1;
            match moves % 3 {
                0 => drop(there.complete(to(&lease)).await.expect("a live lease")),
                1 => drop(there.release(to(&lease), Some(0), "").await.expect("a live lease")),
                _ => drop(there.cancel(to(&lease), "").await.expect("a live lease")),
            }
        }
        there.put([flight(MESSAGES + moves)]).await;
    }
    let mut expected = Depth::default();
    for state in State::ALL {
        let listed = queue.list_by(state, 1_000).await;
        let passes = listed.iter().filter(|message| mine.matches(&message.metadata)).count();
        *expected.of_mut(state) = passes as u64;
    }
    assert_eq!(there.depth_of(&mine).await, expected);
    assert!(moves > 0 && expected.pending > 800, "{moves} moves, {expected:?}");
    stage.assert_sound().await;
}

#[tokio::test]
async fn q19_the_lengths_of_a_thousand_outboxes_are_read_in_few_commands() {
    const QUEUES: u64 = 1_000;
    let (redis, stage) = alone("lengths").await;
    let mut shards = Vec::new();
    for n in 0..QUEUES {
        let queue = stage.queue(simple()).await;
        for m in 0..n % 3 {
            queue.put([tagged(&format!("m{m}"), 0, &[])]).await;
        }
        shards.push(queue.shard);
    }
    shards.push(Shard { queue: stage.queue_name(), number: 0 });
    let commands = async || {
        let stats: String = raw(&redis, "INFO stats").await;
        let calls = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        calls.expect("a count").trim().parse::<u64>().expect("a number")
    };
    let before = commands().await;
    let lengths = stage.store.outbox_lengths(&shards.iter().collect::<Vec<_>>()).await.expect("lengths");
    assert!(commands().await - before < 10);
    let expected: Vec<Option<u64>> = (0..QUEUES).map(|n| Some(n % 3)).chain([None]).collect();
    assert_eq!(lengths, expected);
}

#[tokio::test]
async fn q8_an_unused_index_is_dropped() {
    let stage = Stage::redis("unused").await;
    let redis = stage.redis.clone().expect("a Redis");
    let options = RedisOptions {
        url: redis.url(),
        allow_volatile: true,
        index_unused_ms: 0,
        clock: store::Clock::Test(stage.clock.shared()),
        ..RedisOptions::default()
    };
    let forgetful = Arc::new(RedisStore::connect(options).await.expect("a store"));
    let queue = stage.queue(QueueConfig { indexes: vec![index(&["declared"])], ..exclusive() }).await;
    queue.put([tagged("m", 0, &[(KEY, "k"), ("on demand", "v"), ("declared", "v")])]).await;
    let index_keys = async || {
        let keys: Vec<String> = raw(&redis, &format!("KEYS *{}*index*", queue.name())).await;
        keys.len()
    };
    for n in 1..INDEXES_MAX {
        let mine = [("on demand", "v"), (&format!("k{n}"), "v")];
        queue.put([tagged(&format!("m{n}"), 1, &[mine[0], mine[1], (KEY, "k")])]).await;
        assert_eq!(queue.depth_of(&filter(&mine)).await.pending, 1);
    }
    assert_eq!(index_keys().await, 2 * INDEXES_MAX);
    let on_demand = filter(&[("on demand", "v")]);
    assert_eq!(queue.try_depth_of(&on_demand).await, Err(Refusal::TooManyIndexes { queue: queue.name().to_string() }));
    while index_keys().await > 2 {
        queue.through(&forgetful).sweep().await;
    }
    assert_eq!(queue.depth_of(&filter(&[("declared", "v")])).await.pending, 1, "the declared one stays");
    // The other server still caches them, and there is room again.
    assert_eq!(queue.through(&stage.other).depth_of(&on_demand).await.pending, INDEXES_MAX as u64);
    assert_eq!(queue.take_where(1, &[on_demand]).await, ["m"]);
    stage.assert_sound().await;
}
