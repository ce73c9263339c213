//! Failovers that Sentinels decide, under load (X2): the primary is killed, or frozen while the Sentinels replace it.

use super::conclude::{check_history, check_invariants, conclude, drain, progress};
use super::judge::LATE_MS;
use super::load::{Load, Phase, queue_config};
use super::machines::{self, Redis, config_file};
use super::sentinels::{NAME, Nodes, Sentinel};
use crate::system::program::SOON;
use futures::future::join_all;
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::{Client, NewMessage, QueueConfig};
use tallystone_link::{RedisAccess, RedisConfig};
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::lasting_port;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// What happens to the primary.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// kill -9. It comes back as a replica.
    Killed,
    /// It stops in the middle of what it does, and continues when another is the primary.
    Frozen,
}

/// All replicas have each write before it is acknowledged, so whichever the Sentinels choose has it.
const REPLICAS: u32 = 2;
const CONFIG: &str = "[server]\nsweeper_leader_lease_ms = 1000\n[outbox]\nevents_max = 1000000000\n\
                      [redis]\nreplicas_min = 2\nreplica_wait_ms = 500\n";
/// The queue of the calls that are timed.
const TIMED: &str = "timed";
const POLL: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_failover_under_load_loses_nothing_and_runs_nothing_twice() {
    let mut nodes = Nodes::start(REPLICAS).await;
    let (_dir, config) = config_file(CONFIG);
    let (_servers, clients) = machines::pair(&nodes.url(), &config, machines::PATIENCE).await;
    let (phase, phases) = watch::channel(Phase::Load);
    let (mut tasks, mut loads) = (JoinSet::new(), Vec::new());
    clients[0].create_queue(TIMED, QueueConfig::simple()).await.expect("a queue");
    for (name, exclusive) in [("simple", false), ("exclusive", true)] {
        clients[0].create_queue(name, queue_config(exclusive)).await.expect("a queue");
        let load = Load::new(name, exclusive, &clients, &phases);
        for via in 0..2 {
            tasks.spawn(load.clone().produce(via, rand::random()));
            tasks.spawn(load.clone().work(via, rand::random()));
            tasks.spawn(load.clone().stream(via, rand::random()));
        }
        loads.push(load);
    }
    let impatient = clients[0].clone().with_retry_for(Duration::ZERO);
    for fault in [Fault::Killed, Fault::Frozen, Fault::Killed] {
        let round = async {
            progress(&loads, 50).await;
            let before = nodes.primary().await;
            match fault {
                Fault::Killed => nodes.redis[before].kill().await,
                Fault::Frozen => nodes.redis[before].signal(Signal::SIGSTOP),
            }
            nodes.promoted(before).await;
            match fault {
                Fault::Killed => nodes.redis[before].restart().await,
                Fault::Frozen => nodes.redis[before].signal(Signal::SIGCONT),
            }
            nodes.followed().await;
            let stands = Instant::now();
            until_enqueued(&impatient).await;
            println!(
                "{fault:?}: the first call succeeds {:?} after the replicas follow the new primary",
                stands.elapsed()
            );
            progress(&loads, 1).await;
            for load in &loads {
                check_invariants(&clients, &load.queue).await;
            }
        };
        tokio::select! {
            () = round => {}
            Some(ended) = tasks.join_next() => panic!("ended early: {ended:?}"),
        }
    }
    drain(phase, tasks, &clients, &loads).await;
    for load in &loads {
        conclude(&clients, &RedisConfig { url: nodes.url(), ..RedisConfig::default() }, load, LATE_MS).await;
    }
    check_history(&nodes.url(), &config).await;
}

async fn until_enqueued(client: &Client) {
    let give_up_at = Instant::now() + SOON;
    let id = format!("{:?}", Instant::now());
    while let Err(error) = client.enqueue(TIMED, vec![NewMessage::new(&id, "")]).await {
        assert!(Instant::now() < give_up_at, "the server does not find the new primary: {error}");
        sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_one_sentinel_that_answers_is_enough() {
    let redis = Redis::start().await;
    let sentinel = Sentinel::start(redis.port(), "requirepass knock\n").await;
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let silent_port = silent.local_addr().expect("a bound port").port();
    let dir = TempDir::new().expect("a temporary folder");
    let [right, wrong] = [("right", "knock\n"), ("wrong", "other")].map(|(name, password)| {
        let path = dir.path().join(name);
        std::fs::write(&path, password).expect("a file");
        path
    });
    let connect = async |name: &str, password| {
        let hosts = format!("127.0.0.1:{},127.0.0.1:{silent_port},127.0.0.1:{}", lasting_port(), sentinel.port);
        let url = format!("redis-sentinel://{hosts}/0#{name}");
        let access = RedisAccess { sentinel_password_file: Some(password), ..RedisAccess::default() };
        RedisStore::connect(RedisOptions { url, access, ..RedisOptions::default() }).await
    };
    let refused = async |name, password| connect(name, password).await.err().expect("refused").to_string();
    connect(NAME, right.clone()).await.expect("the primary");
    let why = refused("other", right).await;
    assert!(why.contains("No such master with that name") && why.contains("it does not answer in time"), "{why}");
    let why = refused(NAME, wrong).await;
    assert!(why.contains("Password authentication failed"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_callers_do_not_wait_for_a_silent_sentinel_one_after_the_other() {
    const CALLERS: usize = 60;
    let redis = Redis::start().await;
    let sentinel = Sentinel::start(redis.port(), "").await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let silent_port = silent.local_addr().expect("a bound port").port();
    let url = format!("redis-sentinel://127.0.0.1:{silent_port},127.0.0.1:{}#{NAME}", sentinel.port);
    let primary = RedisAccess::default().primary(&url).expect("a good address");
    let began = Instant::now();
    for node in join_all((0..CALLERS).map(|_| primary.client())).await {
        let address = node.expect("the primary").get_connection_info().addr().to_string();
        assert_eq!(address, format!("127.0.0.1:{}", redis.port()));
    }
    // Half a second for each of them would be 30 s.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}
