//! Quiet queues (Q18): what the sweeper and the checks of waiting servers learn from many states at once. On Redis only.

use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, RedisStore};
use tallystone_tests::queue::to;
use tallystone_tests::*;
use tokio::sync::mpsc;

/// Queues of one test: more than a page.
const QUEUES: usize = 600;

async fn alone(test: &str) -> (TestRedis, Stage<RedisStore>) {
    let (redis, clock) = (TestRedis::start().await, Clock::new());
    let store = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
    let other = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
    (redis, Stage::on(store, other, clock, test))
}

/// All pages.
async fn sweep_times(store: &RedisStore) -> BTreeMap<String, u64> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = store.sweep_times(0, &cursor).await.expect("an answer");
        all.extend(page.items.into_iter().map(|(shard, due_in)| (shard.queue.to_string(), due_in.as_millis() as u64)));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return all;
        }
    }
}

async fn commands(redis: &TestRedis) -> u64 {
    let mut connection = redis.connection().await;
    let info: String = ::redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("statistics");
    let calls = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
    info.lines().filter(|line| !line.starts_with("cmdstat_info")).filter_map(calls).sum()
}

#[tokio::test]
async fn q18_the_sweeper_learns_from_few_commands_which_queues_fall_due_and_when() {
    let (redis, stage) = alone("due").await;
    let mut queues = Vec::with_capacity(QUEUES);
    for _ in 0..QUEUES {
        queues.push(stage.queue(simple()).await);
    }
    let before = commands(&redis).await;
    assert_eq!(sweep_times(&stage.store).await, BTreeMap::new(), "nothing falls due in an empty queue");
    let spent = commands(&redis).await - before;
    assert!(spent <= 10, "{spent} commands");

    let [invisible, leased, ended, changed] = [3, 77, 500, 599].map(|number| queues[number].clone());
    invisible.put([NewMessage { invisibility_ms: Some(5_000), ..message("m", 1) }]).await;
    leased.put([message("m", 1)]).await;
    leased.take_one().await;
    ended.put([message("m", 1)]).await;
    let lease = ended.take_one().await;
    ended.complete(to(&lease)).await.expect("a live lease");
    changed.reconfigure(QueuePatch { terminal_retention_ms: Some(1_000), ..QueuePatch::default() }).await;
    let expected = |passed_ms: u64| {
        let due = [(&invisible, 5_000), (&leased, 30_000), (&ended, 30_000), (&changed, 0)];
        let due = due.map(|(queue, due_ms): (_, u64)| (queue.name().to_string(), due_ms.saturating_sub(passed_ms)));
        BTreeMap::from(due)
    };
    assert_eq!(sweep_times(&stage.other).await, expected(0));
    stage.clock.advance(6_000);
    assert_eq!(sweep_times(&stage.other).await, expected(6_000));
    // A sweep sets the next time, or none.
    assert_eq!(invisible.sweep().await.promoted, 1);
    changed.sweep().await;
    let left = sweep_times(&stage.store).await;
    let names = [leased.name().to_string(), ended.name().to_string()];
    assert_eq!(left.into_keys().collect::<Vec<_>>(), names);
    stage.assert_sound().await;
}

#[tokio::test]
async fn q18_a_notification_that_was_lost_is_made_up_for_by_the_next_check() {
    let (redis, stage) = alone("lost").await;
    let (sender, mut notified) = mpsc::unbounded_channel();
    stage.other.on_ready(Box::new(move |shard| drop(sender.send(shard.clone()))));
    let (queue, quiet) = (stage.queue(simple()).await, stage.queue(simple()).await);
    for queue in [&queue, &quiet] {
        let dequeued = stage.other.dequeue(&queue.shard, &[request(1)], true, None).await.expect("an open queue");
        assert_eq!(dequeued.leases, [Ok(vec![])]);
    }
    stage.other.check_waiting().await.expect("an answer");
    assert!(notified.try_recv().is_err(), "both still have the mark of this server");
    // The mark lasts for hours: a server need not call Dequeue again to keep it.
    stage.clock.advance(12 * 3_600_000);
    stage.other.check_waiting().await.expect("an answer");
    assert!(notified.try_recv().is_err());
    // The state is that after an Enqueue whose publication reached no server.
    let key = format!("ts:{{{}/0}}:state", queue.name());
    let mut connection = redis.connection().await;
    let mut state: Vec<u8> = ::redis::cmd("GET").arg(&key).query_async(&mut connection).await.expect("a state");
    state.truncate(89);
    state[47..53].fill(0);
    ::redis::cmd("SET").arg(&key).arg(state).exec_async(&mut connection).await.expect("a write");
    stage.other.check_waiting().await.expect("an answer");
    assert_eq!(notified.try_recv(), Ok(queue.shard.clone()));
    assert!(notified.try_recv().is_err(), "the other queue has its mark");
    stage.other.check_waiting().await.expect("an answer");
    assert!(notified.try_recv().is_err(), "its callers have not called Dequeue again, so none waits");
    // A deleted queue is noticed, too.
    stage.store.delete_queue(quiet.name()).await.expect("an empty queue");
    stage.other.check_waiting().await.expect("an answer");
    assert_eq!(notified.try_recv(), Ok(quiet.shard.clone()));
}

#[tokio::test]
async fn q10_what_a_dequeue_remembers_is_forgotten_though_its_queue_is_quiet() {
    let (redis, stage) = alone("forgets").await;
    let queue = stage.queue(simple()).await;
    queue.put([message("m", 1)]).await;
    let wanted = DequeueRequest { request_id: "once".to_owned(), ..request(1) };
    let lease = queue.try_take(wanted).await.expect("an open queue").remove(0);
    queue.complete(to(&lease)).await.expect("a live lease");
    // A sweeper that follows the recorded times, and nothing else.
    let mut sweeps = 0;
    while let Some(due_ms) = sweep_times(&stage.store).await.get(queue.name().as_str()) {
        stage.clock.advance(*due_ms);
        queue.sweep().await;
        sweeps += 1;
        assert!(sweeps < 10, "a quiet queue is swept again and again");
    }
    let mut connection = redis.connection().await;
    let key = format!("ts:{{{}/0}}:requests", queue.name());
    let left: u64 = ::redis::cmd("HLEN").arg(key).query_async(&mut connection).await.expect("a count");
    assert_eq!((left, queue.depth().await), (0, Depth::default()));
}
