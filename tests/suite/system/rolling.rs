//! Servers are replaced one by one, and no caller notices (O3); a backup is restored (O6).

use super::program::{self, Running, SOON};
use crate::system::dev::Dev;
use crate::system::pages;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::{
    Client, CounterClient, CounterType, IdempotencyToken, NamespaceConfig, NewAdd, NewMessage, QueueConfig, Worker,
};
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const POLL: Duration = Duration::from_millis(10);
/// How many messages pass between two restarts.
const BETWEEN: usize = 300;

/// One of two servers on a Redis, of the queue or of counters.
struct Server {
    /// The verb and its flags.
    args: Vec<String>,
    port: u16,
    process: Option<Running>,
}

impl Server {
    /// One on this Redis that does not run yet.
    fn new(verb: &[&str], port: u16, redis: &str) -> Server {
        let listen = format!("127.0.0.1:{port}");
        let args = [verb, &["--log", "warn", "--listen", &listen, "--redis-url", redis]].concat();
        Server { args: args.into_iter().map(str::to_owned).collect(), port, process: None }
    }

    async fn start(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut process = Running::start(program::command(&args));
        let give_up_at = Instant::now() + SOON;
        while TcpStream::connect(&listen).await.is_err() {
            assert!(!process.has_ended(), "it has ended: {}", process.last_words().await);
            assert!(Instant::now() < give_up_at, "it does not listen");
            sleep(POLL).await;
        }
        self.process = Some(process);
    }

    /// SIGTERM: its health says so before it has gone, and it ends in order.
    async fn stop(&mut self) {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port)).expect("an address");
        let mut health = HealthClient::new(endpoint.connect().await.expect("the server"));
        let mut watched = health.watch(HealthCheckRequest::default()).await.expect("its health").into_inner();
        let first = watched.message().await.expect("an answer").expect("a status");
        assert_eq!(first.status(), ServingStatus::Serving);
        let process = self.process.take().expect("it runs");
        let (status, next) = tokio::join!(process.stop(), watched.message());
        let next = next.expect("a status before the end").expect("a status before the end");
        assert_eq!(next.status(), ServingStatus::NotServing);
        assert_eq!(status.code(), Some(0));
    }
}

/// Callers of one client, which share a stream, while the only server is killed several times (Q27).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q27_a_server_is_killed_under_callers_on_a_stream_and_every_message_is_there_once() {
    const CALLERS: usize = 32;
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let mut server = Server::new(&["server"], lasting_port(), &redis.url());
    server.start().await;
    let client = Client::connect(format!("http://127.0.0.1:{}", server.port)).await.expect("a server");
    // A call without a second attempt may have acted.
    let hasty = client.with_retry_for(Duration::ZERO);
    let (stopping, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (client, hasty) = (client.clone(), hasty.clone());
            let (stopping, acknowledged) = (stopping.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let (mut made, mut broken) = (0, 0);
                while !stopping.load(Ordering::SeqCst) {
                    let message = vec![NewMessage::new(format!("{caller}-{made}"), "payload")];
                    match hasty.enqueue("q", message.clone()).await {
                        Ok(results) => assert!(results[0].is_ok(), "{results:?}"),
                        Err(error) => {
                            broken += 1;
                            assert!(error.is_unavailable(), "{error:?}");
                            let results = client.enqueue("q", message).await.expect("the same call again");
                            results[0].as_ref().expect("no refused message");
                        }
                    }
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                    made += 1;
                }
                (made, broken)
            })
        })
        .collect();
    for round in 0..3 {
        let until = acknowledged.load(Ordering::SeqCst) + 10 * BETWEEN;
        let goes_on = async {
            while acknowledged.load(Ordering::SeqCst) < until {
                sleep(POLL).await;
            }
        };
        timeout(SOON, goes_on).await.unwrap_or_else(|_| panic!("the load hangs in round {round}"));
        server.process.take().expect("it runs").kill().await;
        server.start().await;
    }
    stopping.store(true, Ordering::SeqCst);
    let (mut made, mut broken) = (0, 0);
    for caller in callers {
        let of_one = timeout(SOON, caller).await.expect("an end").expect("no failed call");
        (made, broken) = (made + of_one.0, broken + of_one.1);
    }
    assert!(broken >= 3, "{broken} calls were under way at three kills");
    let counts = client.depth("q", None).await.expect("a Depth");
    assert_eq!((counts.pending, counts.live()), (made, made), "each acknowledged message is there once");
}

/// Restarts one server after the other, three times each, while the load continues.
async fn restart_each(servers: &mut [Server; 2], acknowledged: &AtomicUsize) {
    for round in 0..3 {
        for server in servers.iter_mut() {
            let until = acknowledged.load(Ordering::SeqCst) + BETWEEN;
            let goes_on = async {
                while acknowledged.load(Ordering::SeqCst) < until {
                    sleep(POLL).await;
                }
            };
            timeout(SOON, goes_on).await.unwrap_or_else(|_| panic!("the load hangs in round {round}"));
            server.stop().await;
            server.start().await;
        }
    }
}

/// One address for both, as a Service of Kubernetes or HAProxy has it: a new connection goes to the next server that
/// accepts it.
async fn balancer(ports: [u16; 2]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut turn = 0;
        while let Ok((mut outer, _)) = listener.accept().await {
            turn += 1;
            tokio::spawn(async move {
                for attempt in 0..2 {
                    if let Ok(mut inner) = TcpStream::connect(("127.0.0.1", ports[(turn + attempt) % 2])).await {
                        let _ = copy_bidirectional(&mut outer, &mut inner).await;
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o3_servers_are_restarted_one_by_one_under_load_without_a_failed_call() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let ports = [lasting_port(), lasting_port()];
    let mut servers = ports.map(|port| Server::new(&["server"], port, &redis.url()));
    for server in &mut servers {
        server.start().await;
    }
    let client = Client::connect(format!("http://{}", balancer(ports).await)).await.expect("a server");
    client.create_queue("q", QueueConfig::simple()).await.expect("a queue");

    let (stopping, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let runs: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (client, stopping, acknowledged) = (client.clone(), stopping.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let mut made = 0;
                while !stopping.load(Ordering::SeqCst) {
                    let message = NewMessage::new(format!("{producer}-{made}"), "payload");
                    let enqueued = client.enqueue("q", vec![message]).await.expect("no failed call");
                    enqueued[0].as_ref().expect("no refused message");
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                    made += 1;
                }
            })
        })
        .collect();
    let done = tokio_util::sync::CancellationToken::new();
    let worker = tokio::spawn({
        let (client, runs, done) = (client.clone(), runs.clone(), done.clone());
        async move {
            let worker = Worker::new(client, "q").concurrency(16).release_on_close(false);
            let run = move |lease: tallystone_client::Lease| {
                *runs.lock().expect("no panic").entry(lease.id).or_default() += 1;
                async { Ok::<(), tallystone_client::Failure>(()) }
            };
            worker.run_until(done.cancelled(), run).await.expect("a worker that goes on")
        }
    });
    restart_each(&mut servers, &acknowledged).await;
    stopping.store(true, Ordering::SeqCst);
    for producer in producers {
        producer.await.expect("no failed call");
    }
    let made = acknowledged.load(Ordering::SeqCst);
    let drained = async {
        while client.depth("q", None).await.expect("a Depth").live() > 0 {
            sleep(POLL).await;
        }
    };
    timeout(SOON, drained).await.expect("all messages are completed");
    done.cancel();
    let stats = worker.await.expect("a worker");
    let runs = runs.lock().expect("no panic");
    assert_eq!(runs.len(), made, "each message has run");
    let again = runs.values().filter(|runs| **runs > 1).count();
    assert_eq!(again, 0, "no lease was lost: {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o3_counters_are_restarted_one_by_one_under_load_without_a_failed_call() {
    let dir = TempDir::new().expect("a temporary folder");
    let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.expect("a redis-server");
    let ports = [lasting_port(), lasting_port()];
    // Adds and reads of ACCURATE counters need no queue.
    let verb = ["counters", "--server", "http://127.0.0.1:1"];
    let mut servers = ports.map(|port| Server::new(&verb, port, &redis.url()));
    for server in &mut servers {
        server.start().await;
    }
    let client = CounterClient::connect(format!("http://{}", balancer(ports).await)).await.expect("a server");
    let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    client.put_namespace("n", config).await.expect("a namespace");
    let (stopping, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (client, stopping, acknowledged) = (client.clone(), stopping.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let (name, mut own) = (format!("c{caller}"), 0);
                while !stopping.load(Ordering::SeqCst) {
                    client.add("n", NewAdd::new(&name, 1).token(IdempotencyToken::now())).await.expect("no failed add");
                    own += 1;
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                    let count = client.get("n", &name).await.expect("no failed read").count;
                    assert_eq!(count, own, "a read has what was acknowledged before it, once");
                }
            })
        })
        .collect();
    restart_each(&mut servers, &acknowledged).await;
    stopping.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("no failed call");
    }
}

/// What the page on backups says, step by step.
#[tokio::test]
async fn o6_a_backup_of_a_running_dev_is_restored() {
    let dir = TempDir::new().expect("a temporary folder");
    let (data, backup) = (dir.path().join("data"), dir.path().join("backup"));
    let dev = Dev::start_in(&data, &[]).await;
    for id in ["a", "b"] {
        dev.ok(&["msg", "enqueue", "q", "--id", id, "--payload", id]).await;
    }
    dev.counter(&["add", "visits", "7"]).await;
    let [taken, put_back] = pages::blocks("docs/operations/upgrades.md", "## Backups").try_into().expect("two blocks");
    let restored = dir.path().join("restored");
    let run = async |commands: &str| {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-euc", commands]).env("REDIS_URL", dev.ready["redis_url"].as_str().expect("a URL"));
        shell.env("REDISCLI_AUTH", dev.redis_password());
        shell.env("REDIS_DIR", &data).env("BACKUP", &backup).env("NEW_DIR", &restored);
        let ran = shell.output().await.expect("a shell");
        assert!(ran.status.success(), "{commands}: {ran:?}");
    };
    run(&taken).await;
    dev.ok(&["msg", "enqueue", "q", "--id", "later"]).await;
    run(&put_back).await;
    dev.stop().await;

    let restored = Dev::start_in(&restored, &[]).await;
    let listed = restored.call(&["msg", "ls", "q"]).await.json();
    let ids: Vec<&str> = listed.iter().filter_map(|message| message["id"].as_str()).collect();
    assert_eq!(ids, ["a", "b"], "{listed:?}");
    assert_eq!(restored.counter(&["get", "visits"]).await["count"], 7);
    assert_eq!(restored.call(&["check"]).await.code, Some(0));
    restored.stop().await;
}
