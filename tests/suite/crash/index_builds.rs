//! Another server replaces a filter index while a build of it waits for Redis: the build must not take the new index for its own
//! (Q8).

use super::proxy::Proxy;
use crate::system::program::SOON;
use std::sync::Arc;
use std::time::Duration;
use tallystone_lua::Script;
use tallystone_model::store::Depth;
use tallystone_model::{Filter, Refusal, Shard, Store};
use tallystone_server::store::{self, RedisOptions, RedisStore};
use tallystone_tests::queue::TestQueue;
use tallystone_tests::*;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// More than an index is built over while its caller waits.
const MANY: usize = 6_000;

/// A server that reaches its Redis through a proxy.
struct Held {
    proxy: Proxy,
    store: Arc<RedisStore>,
}

impl Held {
    async fn start(stage: &Stage<RedisStore>) -> Self {
        let redis = stage.redis.as_ref().expect("a Redis").url();
        let port = redis.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let proxy = Proxy::start(port).await;
        let options = RedisOptions {
            url: proxy.url(),
            allow_volatile: true,
            clock: store::Clock::Test(stage.clock.shared()),
            ..RedisOptions::default()
        };
        Held { proxy, store: Arc::new(RedisStore::connect(options).await.expect("a store")) }
    }

    fn depth(&self, shard: &Shard) -> JoinHandle<Result<Depth, Refusal>> {
        let (store, shard) = (self.store.clone(), shard.clone());
        tokio::spawn(async move { store.depth(&shard, Some(&mine())).await })
    }

    /// The depth, as soon as the index is complete.
    async fn pending(&self, shard: &Shard) -> u64 {
        let give_up_at = Instant::now() + SOON;
        loop {
            match self.depth(shard).await.expect("no panic") {
                Ok(depth) => return depth.pending,
                Err(Refusal::IndexBuilding { .. }) => assert!(Instant::now() < give_up_at, "the build does not end"),
                Err(other) => panic!("{other}"),
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Begins to build the index, and is held before its first step.
    async fn begin(&self, shard: &Shard) -> JoinHandle<Result<Depth, Refusal>> {
        self.proxy.hold(Script::BuildIndex.sha1(), 0);
        let depth = self.depth(shard);
        self.proxy.held().await;
        depth
    }
}

fn mine() -> Filter {
    filter(&[("origin", "o")])
}

async fn fill(queue: &TestQueue<RedisStore>, prefix: &str, messages: usize) {
    let message = |n: usize| tagged(&format!("{prefix}{n}"), 0, &[(KEY, &format!("k{}", n % 500)), ("origin", "o")]);
    for from in (0..messages).step_by(1_000) {
        queue.put((from..messages.min(from + 1_000)).map(message)).await;
    }
}

/// Deletes the queue and creates it with other messages.
async fn replace(stage: &Stage<RedisStore>, queue: &TestQueue<RedisStore>, messages: usize) {
    queue.purge(true).await;
    stage.store.delete_queue(queue.name()).await.expect("an empty queue");
    stage.clock.advance(1);
    stage.store.create_queue(queue.name(), exclusive()).await.expect("a new queue");
    fill(queue, "new", messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q8_a_build_does_not_continue_in_another_index_of_the_same_keys() {
    let stage = Stage::redis("rebuilt").await;
    let (first, second) = (Held::start(&stage).await, Held::start(&stage).await);
    let queue = stage.queue(exclusive()).await;
    fill(&queue, "old", MANY).await;
    // In the background, in the middle of its scan.
    first.proxy.hold(Script::BuildIndex.sha1(), 12);
    let depth = first.depth(&queue.shard).await.expect("no panic");
    assert_eq!(depth, Err(Refusal::IndexBuilding { keys: "origin".to_owned() }));
    first.proxy.held().await;
    replace(&stage, &queue, MANY).await;
    let begun = second.begin(&queue.shard).await;
    first.proxy.open();
    assert_eq!(first.pending(&queue.shard).await, MANY as u64);
    second.proxy.open();
    drop(begun.await.expect("no panic"));
    assert_eq!(second.pending(&queue.shard).await, MANY as u64);
    stage.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q8_a_build_that_ends_does_not_complete_another_index_of_the_same_keys() {
    let stage = Stage::redis("replaced").await;
    let (first, second) = (Held::start(&stage).await, Held::start(&stage).await);
    let queue = stage.queue(exclusive()).await;
    fill(&queue, "old", 10).await;
    // Its only step is done, and it reads the configuration to mark the index as complete.
    let depth = first.begin(&queue.shard).await;
    first.proxy.hold("MGET", 0);
    first.proxy.held().await;
    replace(&stage, &queue, 20).await;
    let begun = second.begin(&queue.shard).await;
    first.proxy.open();
    assert_eq!(depth.await.expect("no panic").map(|depth| depth.pending), Ok(20));
    second.proxy.open();
    assert_eq!(begun.await.expect("no panic").map(|depth| depth.pending), Ok(20));
    stage.assert_sound().await;
}
