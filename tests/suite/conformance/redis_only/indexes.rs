//! How an index is built, and when it goes (Q8).

use super::raw;
use std::sync::Arc;
use tallystone_model::limits::INDEXES_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, RedisOptions, RedisStore};
use tallystone_tests::queue::to;
use tallystone_tests::*;

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
    let stage = Stage::redis("background").await;
    indexed_while_it_works(&stage, exclusive(), 6_000).await;
    // In larger steps.
    indexed_while_it_works(&stage, simple(), 30_000).await;
    stage.assert_sound().await;
}

async fn indexed_while_it_works(stage: &Stage<RedisStore>, config: QueueConfig, messages: usize) {
    let queue = stage.queue(config).await;
    let there = queue.through(&stage.other);
    let flight = |n: usize| {
        let (key, origin) = (format!("k{}", n % 500), format!("o{}", n % 7));
        tagged(&format!("m{n:05}"), n as i64, &[(KEY, &key), ("origin", &origin)])
    };
    for part in 0..messages / 1_000 {
        queue.put((part * 1_000..(part + 1) * 1_000).map(flight)).await;
    }
    let mine = filter(&[("origin", "o3")]);
    let filtered = DequeueRequest { filters: vec![mine.clone()], ..request(1) };
    let answer = stage.store.dequeue(&queue.shard, &[filtered, request(1)], false, None).await.expect("an open queue");
    assert_eq!(answer.leases[0], Err(Refusal::IndexBuilding { keys: "origin".to_owned() }));
    assert_eq!(answer.leases[1].as_ref().map(Vec::len), Ok(1), "a request without filters is answered");
    // Both servers continue while it is built: what it covers and what it does not.
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
        there.put([flight(messages + moves)]).await;
    }
    let mut expected = Depth::default();
    for state in State::ALL {
        let listed = queue.list_by(state, 1_000).await;
        let passes = listed.iter().filter(|message| mine.matches(&message.metadata)).count();
        *expected.of_mut(state) = passes as u64;
    }
    assert_eq!(there.depth_of(&mine).await, expected);
    assert!(moves > 0 && expected.pending > 800, "{moves} moves, {expected:?}");
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

/// By two servers, and also after the messages of a queue have gone.
#[tokio::test]
async fn s1_undeclared_indexes_of_all_queues_together_are_bounded() {
    const MESSAGES: usize = 100;
    // A Redis without the queues of other tests.
    let stage = Stage::on_redis("together", Arc::new(TestRedis::start().await)).await;
    let options = RedisOptions {
        url: stage.redis.clone().expect("a Redis").url(),
        allow_volatile: true,
        undeclared_entries_max: 3 * MESSAGES as u64 + 1,
        clock: store::Clock::Test(stage.clock.shared()),
        ..RedisOptions::default()
    };
    let server = Arc::new(RedisStore::connect(options.clone()).await.expect("a store"));
    let other = Arc::new(RedisStore::connect(options).await.expect("a store"));
    let mut queues = Vec::new();
    for _ in 0..3 {
        let queue = stage.queue(QueueConfig { indexes: vec![index(&["declared"])], ..simple() }).await;
        let metadata = [("declared", "v"), ("a", "v"), ("b", "v")];
        queue.put((0..MESSAGES).map(|n| tagged(&format!("m{n}"), 0, &metadata))).await;
        queues.push(queue);
    }
    let depth = async |queue: usize, key: &str, server: &Arc<RedisStore>| {
        let depth = queues[queue].through(server).try_depth_of(&filter(&[(key, "v")])).await;
        depth.map(|depth| depth.pending)
    };
    let found = Ok(MESSAGES as u64);
    let refused = |queue: usize| Err(Refusal::TooManyIndexes { queue: queues[queue].name().to_string() });
    assert_eq!(depth(0, "a", &server).await, found);
    assert_eq!(depth(0, "b", &server).await, found);
    assert_eq!(depth(1, "a", &other).await, found);
    for (queue, key) in [(1, "b"), (2, "a"), (2, "b"), (0, "c")] {
        for server in [&server, &other] {
            assert_eq!(depth(queue, key, server).await, refused(queue), "{queue} by {key}");
        }
    }
    // What exists, and what is declared, is not affected.
    for queue in 0..3 {
        assert_eq!(depth(queue, "declared", &server).await, found);
    }
    assert_eq!(depth(0, "b", &other).await, found);
    assert_eq!(
        (server.correct_entries().await, other.correct_entries().await),
        (Ok(0), Ok(0)),
        "refusals leave nothing"
    );
    queues[0].purge(true).await;
    assert_eq!(other.correct_entries().await, Ok(1));
    assert_eq!(server.correct_entries().await, Ok(0));
    assert_eq!(depth(2, "a", &server).await, found);
    assert_eq!(depth(1, "b", &other).await, found);
    assert_eq!(depth(2, "b", &other).await, refused(2), "1 has two, 2 has one");
    stage.assert_sound().await;
}
