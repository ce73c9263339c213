//! What a Redis keeps for answered Dequeues and for deleted queues, and for how long (Q10, Q19).

use super::{alone, raw};
use std::sync::Arc;
use tallystone_model::limits::LEASE_MS_MAX;
use tallystone_model::store::*;
use tallystone_model::{NewMessage, QueueConfig, QueuePatch};
use tallystone_server::store::{self, OutboxBound, OutboxFull, RedisOptions, RedisStore};
use tallystone_tests::queue::{no_lease, to};
use tallystone_tests::*;

const ROUND_MS: u64 = 10;
/// The memory of requests whose leases have ended lasts for seconds, not for the hours that the leases could have lasted.
const REMEMBERED_MAX: u64 = 400;

fn long(request_id: String) -> DequeueRequest {
    DequeueRequest { request_id, lease_ms: Some(LEASE_MS_MAX), ..request(1) }
}

async fn remembered(redis: &TestRedis, queue: &TestQueue<RedisStore>) -> u64 {
    raw(redis, &format!("HLEN ts:{{{}/0}}:requests", queue.name())).await
}

#[tokio::test]
async fn q10_a_request_is_forgotten_soon_after_its_last_lease_has_ended() {
    const ROUNDS: u64 = 3_000;
    const SLOW: u64 = 20;
    let (redis, stage) = alone("forgotten-soon").await;
    let queue = stage.queue(simple()).await;
    for batch in (0..ROUNDS + SLOW).collect::<Vec<_>>().chunks(1_000) {
        queue.put(batch.iter().map(|n| message(&format!("m{n:05}"), *n as i64))).await;
    }
    let mut slow = Vec::new();
    for n in 0..SLOW {
        slow.push(queue.try_take(long(format!("slow{n}"))).await.expect("an open queue"));
    }
    let mut most = 0;
    for round in 0..ROUNDS {
        let leases = queue.try_take(long(format!("r{round}"))).await.expect("an open queue");
        queue.complete(to(&leases[0])).await.expect("a live lease");
        stage.clock.advance(ROUND_MS);
        if round % 500 == 499 {
            most = most.max(remembered(&redis, &queue).await);
        }
    }
    assert!(most <= REMEMBERED_MAX, "{most} requests are remembered, whose leases have ended");
    for (n, leases) in slow.into_iter().enumerate() {
        assert_eq!(queue.try_take(long(format!("slow{n}"))).await, Ok(leases), "a lease that lives is remembered");
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn q10_requests_whose_leases_end_together_are_forgotten_though_no_further_one_comes() {
    const REQUESTS: usize = 2_000;
    let (redis, stage) = alone("forgotten-quietly").await;
    let queue = stage.queue(simple()).await;
    for batch in (0..REQUESTS).collect::<Vec<_>>().chunks(1_000) {
        queue.put(batch.iter().map(|n| message(&format!("m{n:05}"), *n as i64))).await;
    }
    let mut leases = Vec::new();
    for requests in (0..REQUESTS).collect::<Vec<_>>().chunks(250) {
        let requests = requests.iter().map(|n| long(format!("r{n}"))).collect();
        leases.extend(queue.dequeue(requests).await.expect("an open queue").leases.into_iter().flatten().flatten());
    }
    stage.clock.advance(60_000);
    // The sweeper follows the recorded times. While the leases live, it looks for ended ones less and less often.
    let started_ms = stage.clock.now_ms();
    let mut sweeps = 0;
    let follow = async || {
        let due = stage.store.sweep_times(0, "").await.expect("an answer").items;
        let (_, due_in) = due.first().expect("the memory is to be checked");
        stage.clock.advance(due_in.as_millis() as u64);
        queue.sweep().await
    };
    while stage.clock.now_ms() < started_ms + LEASE_MS_MAX / 4 {
        follow().await;
        sweeps += 1;
    }
    assert!(sweeps < 400, "{sweeps} sweeps of a queue in which nothing ends");
    assert_eq!(remembered(&redis, &queue).await, REQUESTS as u64);
    for leases in leases.chunks(1_000) {
        let completions =
            leases.iter().map(|lease| Completion { lease: to(lease), result: Vec::new().into() }).collect();
        queue.store.complete(&queue.shard, completions).await.expect("an open queue");
    }
    let ended_ms = stage.clock.now_ms();
    while remembered(&redis, &queue).await > 0 {
        follow().await;
        assert!(
            stage.clock.now_ms() < ended_ms + LEASE_MS_MAX / 2,
            "they are kept until their leases would have ended"
        );
    }
}

#[tokio::test]
async fn q26_nothing_is_left_of_remembered_ids_when_the_last_one_is_taken_again() {
    let (redis, stage) = alone("last-id").await;
    let retained_ms = 1_000;
    let config = QueueConfig { terminal_retention_ms: retained_ms, id_window_ms: 10_000, ..simple() };
    let queue = stage.queue(config).await;
    let set_window = async |ms| queue.reconfigure(QueuePatch { id_window_ms: Some(ms), ..QueuePatch::default() }).await;
    let collected = async |id| {
        queue.put([message(id, 1)]).await;
        queue.cancel(no_lease(id), "").await.expect("a pending message");
        assert_eq!(queue.pass(retained_ms).await.collected, 1);
    };
    collected("early").await;
    // A window of 0 begins a new epoch of ids. Before a sweep can forget the old ones, there is a window again.
    set_window(0).await;
    set_window(60_000).await;
    collected("late").await;
    queue.pass(10_000).await;
    assert_eq!(remembered(&redis, &queue).await, 2, "an id, and the epoch");
    queue.put([NewMessage { coalesce: true, ..message("late", 7) }]).await;
    assert_eq!(queue.get("late").await.priority, 7, "a new message has the id");
    assert_eq!(remembered(&redis, &queue).await, 0);
}

#[tokio::test]
async fn q19_a_deleted_queue_leaves_the_list_of_outboxes_when_its_outbox_is_gone() {
    let (redis, clock) = (TestRedis::start().await, Clock::new());
    // As a server has it where no relay is configured.
    let outbox = OutboxBound { full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let (url, test_clock) = (redis.url(), store::Clock::Test(clock.shared()));
    let options = RedisOptions { url, allow_volatile: true, outbox, clock: test_clock, ..RedisOptions::default() };
    let store = Arc::new(RedisStore::connect(options).await.expect("a store"));
    let stage = Stage::on(store.clone(), store.clone(), clock, "left");
    let mut deleted = Vec::new();
    for n in 0..3 {
        let queue = stage.queue(simple()).await;
        queue.put([message("m", 1)]).await;
        let lease = queue.take_one().await;
        queue.complete(to(&lease)).await.expect("a live lease");
        // The deletion of the first one is refused.
        queue.put((0..usize::from(n == 0)).map(|_| message("live", 1))).await;
        assert_eq!(store.delete_queue(queue.name()).await.is_ok(), n > 0);
        deleted.push(format!("{}/0", queue.name()));
    }
    // A day after the deletion of the second one, and a week after that of the third one.
    raw::<()>(&redis, &format!("DEL ts:{{{}}}:outbox", deleted[2])).await;
    assert_eq!(raw::<u64>(&redis, "SCARD ts:outboxes:left").await, 3);
    assert_eq!(store.forget_left_outboxes().await, Ok(1));
    let mut left: Vec<String> = raw(&redis, "SMEMBERS ts:outboxes:left").await;
    left.sort();
    assert_eq!(left, deleted[..2], "the first queue is there, and the outbox of the second one");
}
