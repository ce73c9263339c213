//! Calls of several commands, and the dequeue that a server sends directly behind them (Q18): it may be executed between two of their
//! scripts. What these make runnable after it, the server is notified of.

use super::shards::{SHARDS, name_in};
use ::redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tallystone_link::{Node, NodeReply};
use tallystone_lua::Script;
use tallystone_lua::keys::ShardKeys;
use tallystone_model::limits::INDEXES_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::Sharded;
use tallystone_server::store::{self, RedisOptions, RedisStore};
use tallystone_simulator::SimulatedRedis;
use tallystone_tests::queue::to;
use tallystone_tests::*;
use tokio::sync::watch;

/// More than one script call has, of each verb; and the message that is waited for, which is not of the first.
const MESSAGES: usize = 300;
const WANTED: usize = 280;

/// A Redis whose replies take a moment.
struct Distant(Arc<SimulatedRedis>);

impl Node for Distant {
    fn open(self: Arc<Self>) -> Arc<dyn Node> {
        self
    }

    fn call<'a>(&'a self, command: &'a Cmd) -> NodeReply<'a> {
        let reply = self.0.call(command);
        Box::pin(async move {
            tokio::task::yield_now().await;
            reply.await
        })
    }
}

/// A Redis that gets the calls of one script only once the gate is open.
struct Gated {
    redis: Arc<SimulatedRedis>,
    script: Script,
    gate: watch::Sender<bool>,
    /// The next call of the script gets this at once.
    refusal: Mutex<Option<RedisResult<Value>>>,
}

impl Node for Gated {
    fn open(self: Arc<Self>) -> Arc<dyn Node> {
        self
    }

    fn call<'a>(&'a self, command: &'a Cmd) -> NodeReply<'a> {
        Box::pin(async move {
            if matches!(command.args_iter().nth(1), Some(Arg::Simple(sha1)) if sha1 == self.script.sha1().as_bytes()) {
                let refusal = self.refusal.lock().expect("no panic").take();
                if let Some(refusal) = refusal {
                    return refusal;
                }
                let _ = self.gate.subscribe().wait_for(|open| *open).await;
            }
            self.redis.call(command).await
        })
    }
}

/// The queue "q", which may have several shards, through a server that has cached nothing; what keeps its calls of this script back;
/// and how often the server is notified.
fn through_gate(
    redis: &Arc<SimulatedRedis>,
    script: Script,
    clock: store::Clock,
) -> (TestQueue<Sharded<RedisStore>>, Arc<Gated>, Arc<AtomicU64>) {
    let (gate, refusal) = (watch::Sender::new(false), Mutex::default());
    let gated = Arc::new(Gated { redis: redis.clone(), script, gate, refusal });
    let options = RedisOptions { clock, ..RedisOptions::default() };
    let inner = Arc::new(RedisStore::within_process(gated.clone(), options, "gated".to_owned()));
    redis.subscribe(Box::new(inner.wake_ups()));
    let store = Arc::new(Sharded::new(inner));
    let notified = Arc::new(AtomicU64::new(0));
    let count = notified.clone();
    store.on_ready(Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let shard = Shard::first(&QueueName::parse("queue", "q").expect("a name"));
    (TestQueue { store, clock: Clock::new(), shard }, gated, notified)
}

/// A Dequeue of a caller that waits, which finds nothing. Then the gate opens, and the notifications count from 0.
async fn waits_before(queue: &TestQueue<Sharded<RedisStore>>, gated: &Gated, notified: &AtomicU64) {
    let dequeued = queue.store.dequeue(&queue.shard, &[request(1)], true, None).await;
    assert!(!has_leases(dequeued), "it comes first");
    notified.store(0, Ordering::SeqCst);
    gated.gate.send_replace(true);
}

/// A call that makes a message runnable, and reaches Redis behind the Dequeue of a caller of its server that waits, wakes that caller.
async fn wakes_who_waits<T>(
    queue: &TestQueue<Sharded<RedisStore>>,
    gated: &Gated,
    notified: &AtomicU64,
    call: impl Future<Output = Result<Vec<Result<T, Refusal>>, Refusal>>,
) {
    let (answer, ()) = futures::join!(call, waits_before(queue, gated, notified));
    assert!(answer.expect("an open queue").iter().all(Result::is_ok));
    assert!(notified.load(Ordering::SeqCst) > 0, "the caller of this server waits on");
    assert!(has_leases(queue.store.dequeue(&queue.shard, &[request(1)], false, None).await));
}

/// The queue "q" through a server that has cached nothing, and how often that is notified.
fn through_new_server(redis: &Arc<SimulatedRedis>, name: &str) -> (TestQueue<RedisStore>, Arc<AtomicU64>) {
    let clock = Clock::new();
    let options = RedisOptions { clock: store::Clock::Test(clock.shared()), ..RedisOptions::default() };
    let store = Arc::new(RedisStore::within_process(Arc::new(Distant(redis.clone())), options, name.to_owned()));
    redis.subscribe(Box::new(store.wake_ups()));
    let notified = Arc::new(AtomicU64::new(0));
    let count = notified.clone();
    store.on_ready(Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let shard = Shard::first(&QueueName::parse("queue", "q").expect("a name"));
    (TestQueue { store, clock, shard }, notified)
}

/// One for a message with this color.
fn colored(color: &str) -> [DequeueRequest; 1] {
    [DequeueRequest { filters: vec![filter(&[("color", color)])], ..request(1) }]
}

fn has_leases(dequeued: Result<Dequeued, Refusal>) -> bool {
    dequeued.expect("an open queue").leases.into_iter().any(|leases| !leases.expect("an index").is_empty())
}

#[tokio::test]
async fn q18_the_first_dequeue_of_a_server_does_not_overtake_the_enqueue_before_it() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let (made, _) = through_new_server(&redis, "first");
    made.store.create_queue(made.name(), simple()).await.expect("a new queue");
    let (queue, notified) = through_new_server(&redis, "second");
    // Its connection is open.
    drop(queue.store.layout(&Shard::first(&QueueName::parse("queue", "other").expect("a name"))).await);
    let requests = [request(1)];
    let enqueue = queue.store.enqueue(&queue.shard, vec![message("m", 1)]);
    let dequeue = queue.store.dequeue(&queue.shard, &requests, true, None);
    let (enqueued, dequeued) = futures::join!(enqueue, dequeue);
    assert!(enqueued.expect("an open queue").iter().all(Result::is_ok));
    assert!(has_leases(dequeued) || notified.load(Ordering::SeqCst) > 0, "the caller of this server waits on");
}

#[tokio::test]
async fn q18_a_server_is_notified_of_what_its_own_call_makes_runnable_after_its_first_script() {
    for verb in ["enqueue", "complete", "release"] {
        let redis = Arc::new(SimulatedRedis::new(0));
        let (queue, notified) = through_new_server(&redis, "server");
        let others = (1..INDEXES_MAX).map(|n| index(&[&format!("other{n:02}")]));
        // With so many indexes a script call of each verb has fewer items.
        let indexes = std::iter::once(index(&["color"])).chain(others).collect();
        let config = QueueConfig { indexes, ..exclusive() };
        queue.store.create_queue(queue.name(), config).await.expect("a new queue");
        let name = |n: usize| format!("m{n:03}");
        let of_color =
            |id: &str, n: usize, color: &str| tagged(id, n as i64, &[(KEY, name(n).as_str()), ("color", color)]);
        let messages: Vec<NewMessage> = (0..MESSAGES)
            .map(|n| of_color(&name(n), n, if n == WANTED && verb != "complete" { "red" } else { "blue" }))
            .collect();
        let mut leases = Vec::new();
        if verb != "enqueue" {
            queue.put(messages.clone()).await;
            leases = queue.take_all().await.iter().map(to).collect();
            assert_eq!(leases.len(), MESSAGES);
        }
        if verb == "complete" {
            // It waits for the message of its exclusivity value.
            queue.put([of_color("waits", WANTED, "red")]).await;
        }
        let (store, shard, requests) = (&queue.store, &queue.shard, colored("red"));
        assert!(!has_leases(store.dequeue(shard, &requests, false, None).await), "{verb}");
        notified.store(0, Ordering::SeqCst);
        let dequeue = store.dequeue(shard, &requests, true, None);
        let dequeued = match verb {
            "enqueue" => futures::join!(store.enqueue(shard, messages), dequeue).1,
            "complete" => {
                let completions = leases.into_iter().map(Completion::from).collect();
                futures::join!(store.complete(shard, completions), dequeue).1
            }
            _ => {
                let releases = leases.into_iter().map(|lease| Release::undelivered(lease, "")).collect();
                futures::join!(store.release(shard, releases), dequeue).1
            }
        };
        assert!(!has_leases(dequeued), "{verb}: it is executed between two scripts");
        assert!(notified.load(Ordering::SeqCst) > 0, "{verb}");
        assert!(has_leases(store.dequeue(shard, &requests, false, None).await), "{verb}");
    }
}

#[tokio::test]
async fn q18_a_server_is_notified_of_what_it_sends_to_a_shard_that_was_missing() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let (made, _) = through_new_server(&redis, "first");
    made.store.create_queue(made.name(), QueueConfig { shards: SHARDS, ..simple() }).await.expect("a new queue");
    let keys = ShardKeys::new(&made.shard.sibling(1));
    let (removed, _) = redis.execute(::redis::cmd("DEL").arg(keys.key("state")).arg(keys.key("config")));
    removed.expect("the shard is missing");
    let (queue, gated, notified) = through_gate(&redis, Script::Enqueue, store::Clock::Test(Clock::new().shared()));
    let enqueue = queue.store.enqueue(&queue.shard, vec![message(&name_in(1), 1)]);
    wakes_who_waits(&queue, &gated, &notified, enqueue).await;
}

#[tokio::test]
async fn q18_a_server_is_notified_of_what_its_call_makes_runnable_after_a_search_for_the_shard() {
    let redis = Arc::new(SimulatedRedis::new(0));
    let (queue, gated, notified) = through_gate(&redis, Script::Cancel, store::Clock::Test(Clock::new().shared()));
    queue.store.create_queue(queue.name(), QueueConfig { shards: SHARDS, ..exclusive() }).await.expect("a new queue");
    queue.put([keyed("runs", 1, "value"), keyed("waits", 2, "value")]).await;
    assert_eq!(queue.take_one().await.id, id("runs"));
    let cancellation = Cancellation { id: id("runs"), fencing_token: 0, force: true, reason: String::new() };
    let cancel = queue.store.cancel(&queue.shard, vec![cancellation]);
    wakes_who_waits(&queue, &gated, &notified, cancel).await;
}

#[tokio::test]
async fn q18_a_server_is_notified_of_what_a_call_makes_runnable_that_was_refused_unread() {
    let waited_for_too_long = || Ok(Value::Array(vec![Value::Int(-1), Value::Int(1)]));
    let without_scripts = || Err(RedisError::from((ErrorKind::Server(ServerErrorKind::NoScript), "no such script")));
    for refusal in [waited_for_too_long(), without_scripts()] {
        let redis = Arc::new(SimulatedRedis::new(0));
        redis.keyspace().set_time(1_000 * Clock::new().now_ms());
        // Calls have stamps, whose times are not compared.
        let (queue, gated, notified) = through_gate(&redis, Script::Complete, store::Clock::redis("queues", 0));
        queue.store.create_queue(queue.name(), exclusive()).await.expect("a new queue");
        queue.put([keyed("runs", 1, "value"), keyed("waits", 2, "value")]).await;
        let completion = Completion::from(to(&queue.take_one().await));
        *gated.refusal.lock().expect("no panic") = Some(refusal);
        let complete = queue.store.complete(&queue.shard, vec![completion]);
        wakes_who_waits(&queue, &gated, &notified, complete).await;
        assert!(gated.refusal.lock().expect("no panic").is_none(), "it was sent twice");
    }
}
