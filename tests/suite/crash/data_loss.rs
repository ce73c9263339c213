//! A store that is not what it was: it is noticed within a second, refused, and used again only when its data is back or
//! an operator has accepted it (X7).

use super::machines::{Redis, Server};
use crate::system::program::{self, SOON};
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::*;
use tallystone_tests::http_client;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const QUEUE: &str = "q";
const NAMESPACE: &str = "n";
const POLL: Duration = Duration::from_millis(10);
/// What the documents promise, and some time for a busy machine.
pub(super) const NOTICED: Duration = Duration::from_secs(1);
pub(super) const BUSY: Duration = Duration::from_secs(4);
/// The time between two probes, and how long the second one waits for its answer.
const HANG_NOTICED: Duration = Duration::from_millis(3_300);

/// A Redis with a server of queues and one of counters, and something in both.
struct Scene {
    redis: Redis,
    queue: Server,
    queues: Client,
    counters: CounterClient,
    counters_url: String,
    _counters: Server,
    _dir: TempDir,
}

impl Scene {
    async fn start(more: &[&str]) -> Scene {
        let dir = TempDir::new().expect("a temporary folder");
        let redis = Redis::start().await;
        let url = redis.url();
        let queue = Server::start_as(&[&["server", "--redis-url", &url, "--log", "error"], more].concat()).await;
        let queue_url = queue.url();
        let args = ["counters", "--redis-url", &url, "--server", &queue_url, "--log", "error"];
        let counters = Server::start_as(&[&args, more].concat()).await;
        let retry_for = Duration::ZERO;
        let queues = Client::builder(queue.url()).retry_for(retry_for).connect_lazy().expect("an address");
        let counter_client = CounterClient::builder(counters.url()).retry_for(retry_for).connect_lazy();
        let scene = Scene {
            redis,
            queues,
            queue,
            counters: counter_client.expect("an address"),
            counters_url: counters.url(),
            _counters: counters,
            _dir: dir,
        };
        scene.queues.create_queue(QUEUE, QueueConfig::exclusive("key")).await.expect("a new queue");
        scene.enqueue("before").await.expect("an open queue");
        scene.counters.put_namespace(NAMESPACE, NamespaceConfig::default()).await.expect("a new namespace");
        scene.add().await.expect("an add");
        scene
    }

    async fn enqueue(&self, id: &str) -> Result<(), String> {
        let message = NewMessage::new(id, "").metadata("key", "k");
        match self.queues.enqueue(QUEUE, vec![message]).await {
            Ok(mut items) => items.remove(0).map(drop).map_err(|refused| refused.reason),
            Err(error) => Err(reason(error)),
        }
    }

    async fn add(&self) -> Result<(), String> {
        self.counters.add(NAMESPACE, NewAdd::new("c", 1)).await.map(drop).map_err(reason)
    }

    async fn keys(&self) -> Vec<String> {
        let mut connection = self.redis.connection().await;
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
        keys.sort();
        keys
    }

    /// Both servers refuse everything.
    async fn refuses(&self) {
        assert_eq!(self.enqueue("during").await, lost());
        let made = self.queues.enqueue("another", vec![NewMessage::new("m", "")]).await;
        assert_eq!(made.map(drop).map_err(reason), lost());
        assert_eq!(self.queues.get_message(QUEUE, "before").await.map(drop).map_err(reason), lost());
        assert_eq!(self.add().await, lost());
        for url in [self.queue.url(), self.counters_url.clone()] {
            assert_eq!(health(&url).await, (503, r#"{"status":"NOT_SERVING"}"#.to_owned()));
        }
    }

    /// Both servers serve again, without another start.
    async fn serves(&self) {
        until(BUSY + NOTICED, || async { self.enqueue("after").await.is_ok() && self.add().await.is_ok() }).await;
        for url in [self.queue.url(), self.counters_url.clone()] {
            until(BUSY, || async { health(&url).await == (200, r#"{"status":"SERVING"}"#.to_owned()) }).await;
        }
    }
}

/// The reason on the wire; "" if the server was not reached.
pub(super) fn reason(error: Error) -> String {
    match error {
        Error::Refused(refused) => refused.reason,
        _ => String::new(),
    }
}

pub(super) fn lost() -> Result<(), String> {
    Err("DATA_LOSS".to_owned())
}

async fn grpc_health(url: &str) -> ServingStatus {
    let channel = Channel::from_shared(url.to_owned()).expect("an address").connect().await.expect("a connection");
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    answer.expect("the health of the process").into_inner().status()
}

async fn health(url: &str) -> (u16, String) {
    let http = http_client();
    let response = http.get(format!("{url}/health")).send().await.expect("a response");
    (response.status().as_u16(), response.text().await.expect("text"))
}

pub(super) async fn until<F: Future<Output = bool>>(limit: Duration, holds: impl Fn() -> F) {
    let give_up_at = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < give_up_at, "not within {limit:?}");
        sleep(POLL).await;
    }
}

/// Waits for the next beats of the stores after all that was written.
async fn beats(redis: &Redis) {
    let connection = redis.connection().await;
    for key in ["ts:store", "tc:store"] {
        let beat = async || -> Option<u64> {
            redis::cmd("HGET").arg(key).arg("beat").query_async(&mut connection.clone()).await.expect("an answer")
        };
        let before = beat().await;
        let give_up_at = Instant::now() + NOTICED + BUSY;
        while beat().await == before {
            assert!(Instant::now() < give_up_at, "{key} has no beat");
            sleep(POLL).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_an_emptied_store_is_refused_until_an_operator_accepts_it() {
    let scene = Scene::start(&[]).await;
    let waiting = tokio::spawn({
        let client = scene.queues.clone();
        let wait =
            Dequeue::new(QUEUE).filter(Filter::equals("key", "nothing has it")).worker("patient").wait_ms(60_000);
        async move { client.dequeue(wait).await }
    });
    scene.redis.flush().await;
    // The first calls that miss their queue find out at once, also where they do so together: none of them says that the
    // queue was deleted, and it is not made again as another one.
    let reads = futures::future::join_all((0..16).map(|_| scene.queues.get_queue(QUEUE))).await;
    for read in reads {
        assert_eq!(read.map(drop).map_err(reason), lost());
    }
    assert_eq!(scene.enqueue("first").await, lost());
    // So do those of the counters: none of them counts 0 or misses its namespace.
    let counts = futures::future::join_all((0..16).map(|_| scene.counters.get(NAMESPACE, "c"))).await;
    for count in counts {
        assert_eq!(count.map(drop).map_err(reason), lost());
    }
    assert_eq!(scene.add().await, lost());
    scene.refuses().await;
    let answer = waiting.await.expect("no panic");
    assert_eq!(answer.map(drop).map_err(reason), lost());
    // Except for a queue of rollups that was being created just then.
    let keys = scene.keys().await;
    let mut written = keys.iter().filter(|key| key.contains('{') && !key.contains("{rollup/"));
    assert_eq!(written.next(), None, "nothing is written into the emptied store: {keys:?}");

    // No other process takes it for a new store.
    for verb in ["server", "counters"] {
        let args = [verb, "--redis-url", &scene.redis.url(), "--listen", "127.0.0.1:0"];
        let started = program::run(program::command(&args), "").await;
        assert_eq!(started.code, Some(2), "{started:?}");
        assert!(started.stderr.contains("tallystone store accept"), "{started:?}");
    }

    let accepted = scene.redis.accept().await;
    assert!(accepted["queues"].is_string() && accepted["counters"].is_string(), "{accepted}");
    until(NOTICED + BUSY, || async {
        scene.queues.create_queue(QUEUE, QueueConfig::exclusive("key")).await.is_ok()
            && scene.counters.put_namespace(NAMESPACE, NamespaceConfig::default()).await.is_ok()
    })
    .await;
    scene.serves().await;
    let again = scene.redis.accept().await;
    assert!(again["queues"].is_null() && again["counters"].is_null(), "nothing is lost any more: {again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_an_older_copy_is_refused_and_the_right_data_is_used_again() {
    let mut scene = Scene::start(&[]).await;
    beats(&scene.redis).await;
    scene.redis.kill().await;
    let older = scene.redis.copy();
    scene.redis.restart().await;
    until(BUSY, || async { scene.enqueue("later").await.is_ok() && scene.add().await.is_ok() }).await;
    beats(&scene.redis).await;
    scene.redis.kill().await;
    let newer = scene.redis.copy();

    scene.redis.put_back(&older);
    scene.redis.restart().await;
    until(NOTICED + BUSY, || async { scene.enqueue("x").await == lost() && scene.add().await == lost() }).await;
    scene.refuses().await;

    scene.redis.kill().await;
    scene.redis.put_back(&newer);
    scene.redis.restart().await;
    scene.serves().await;
    assert!(scene.queues.get_message(QUEUE, "later").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_the_mark_of_another_store_is_refused_until_the_right_one_is_back() {
    let scene = Scene::start(&[]).await;
    let mut connection = scene.redis.connection().await;
    let marks = ["ts:store", "tc:store"];
    let mut ids = Vec::new();
    for mark in marks {
        let id: String = redis::cmd("HGET").arg(mark).arg("id").query_async(&mut connection).await.expect("a mark");
        ids.push(id);
        // It was there before these servers last saw theirs.
        let other = ["id", "another", "born", "1"];
        redis::cmd("HSET").arg(mark).arg(&other).exec_async(&mut connection).await.expect("a mark");
    }
    until(NOTICED + BUSY, || async { scene.enqueue("x").await == lost() && scene.add().await == lost() }).await;
    scene.refuses().await;
    for (mark, id) in marks.iter().zip(&ids) {
        redis::cmd("HSET").arg(mark).arg("id").arg(id).exec_async(&mut connection).await.expect("a mark");
    }
    scene.serves().await;
    assert!(scene.queues.get_message(QUEUE, "before").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_store_that_may_be_volatile_is_used_as_it_is() {
    let scene = Scene::start(&["--allow-volatile"]).await;
    let url = scene.redis.url();
    let second = Server::start_as(&["server", "--redis-url", &url, "--log", "error", "--allow-volatile"]).await;
    let queues = Client::builder(second.url()).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    queues.enqueue(QUEUE, vec![NewMessage::new("second", "").metadata("key", "k")]).await.expect("an open queue");
    scene.redis.flush().await;
    until(NOTICED + BUSY, || async {
        scene.queues.create_queue(QUEUE, QueueConfig::exclusive("key")).await.is_ok()
            && scene.counters.put_namespace(NAMESPACE, NamespaceConfig::default()).await.is_ok()
    })
    .await;
    scene.serves().await;
    // The server that has noticed the loss first has begun the store again. The other one goes on with that: this compares the marks.
    until(NOTICED + BUSY, || async { queues.create_queue(QUEUE, QueueConfig::exclusive("key")).await.is_ok() }).await;
}

/// The health of a server is that of its store, by gRPC and by HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n14_health_says_that_redis_is_unavailable() {
    let mut scene = Scene::start(&[]).await;
    let urls = [scene.queue.url(), scene.counters_url.clone()];
    for url in &urls {
        until(BUSY, || async { health(url).await.0 == 200 }).await;
    }
    scene.redis.kill().await;
    for url in &urls {
        until(NOTICED + BUSY, || async { health(url).await.0 == 503 }).await;
    }
    scene.redis.restart().await;
    for url in &urls {
        until(NOTICED + BUSY, || async { health(url).await.0 == 200 }).await;
    }
    let unknown = format!("{}/health?service=nothing", urls[0]);
    let http = http_client();
    let response = http.get(unknown).send().await.expect("a response");
    assert_eq!(response.status().as_u16(), 404);
}

/// A Redis that hangs keeps its connections, and gives no error for 15 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n14_health_says_that_redis_hangs() {
    let scene = Scene::start(&[]).await;
    let urls = [scene.queue.url(), scene.counters_url.clone()];
    let is = async |http: u16, grpc: ServingStatus| {
        for url in &urls {
            until(HANG_NOTICED + BUSY, || async { health(url).await.0 == http && grpc_health(url).await == grpc })
                .await;
        }
    };
    is(200, ServingStatus::Serving).await;
    scene.redis.signal(Signal::SIGSTOP);
    let late = tokio::spawn({
        let client = scene.queues.with_call_timeout(SOON);
        async move { client.enqueue(QUEUE, vec![NewMessage::new("late", "").metadata("key", "k")]).await }
    });
    is(503, ServingStatus::NotServing).await;
    scene.redis.signal(Signal::SIGCONT);
    is(200, ServingStatus::Serving).await;
    let answer = late.await.expect("no panic").expect("its connection is not dropped").remove(0);
    assert!(answer.is_ok(), "{answer:?}");
}
