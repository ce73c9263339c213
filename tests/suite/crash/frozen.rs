//! Nodes that hang: they take connections, and answer nothing. Calls that wait for one of them hold up nothing else, and end
//! when another node takes its place (Q16, Q17).

use super::cluster::Cluster;
use super::machines::{self, Redis, config_file};
use super::replication::{command, follows};
use super::sentinels::{NAME, Sentinel};
use crate::system::program::SOON;
use futures::future::join_all;
use nix::sys::signal::Signal;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;
use tallystone_client::{Client, NewMessage, QueueConfig};
use tallystone_link::{Link, Primary, RedisConfig, ReplicaWait};
use tallystone_lua::keys::Keyspace;
use tallystone_model::{Applied, QueueName, Refusal};
use tokio::time::{Instant, sleep, timeout};

const CONFIG: &str = "[server]\nsweeper_leader_lease_ms = 1000\n[redis]\npartitions = 6\n";
const PARTITIONS: u16 = 6;
/// Enough that a sweep of each of those that hang, one after the other, takes longer than a test waits.
const QUEUES: usize = 240;
/// What is due in partitions that hang, and in the others after it.
const FIRST_DUE_MS: u64 = 4_000;
const LATER_DUE_MS: u64 = 5_000;
const POLL: Duration = Duration::from_millis(20);
/// Longer than a test waits.
const FOREVER_MS: u64 = 2 * SOON.as_millis() as u64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_partitions_that_hang_hold_up_no_sweeps_of_others() {
    others_are_swept_without(1, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_without_the_partition_of_its_lease_the_sweeper_goes_on() {
    others_are_swept_without(0, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_without_the_partition_of_the_lease_another_sweeper_takes_over() {
    others_are_swept_without(0, true).await;
}

/// `leader_ends`: the server that sweeps is killed after the nodes have begun to hang.
async fn others_are_swept_without(slots: usize, leader_ends: bool) {
    let cluster = Cluster::start().await;
    let (_dir, config) = config_file(CONFIG);
    let mut leader = machines::Server::start(cluster.url(), &config).await;
    let server = machines::Server::start(cluster.url(), &config).await;
    let client = Client::builder(server.url()).connect().await.expect("a server that listens");
    let names: Vec<String> = (0..QUEUES).map(|number| format!("q/{number}")).collect();
    for created in join_all(names.iter().map(|name| client.create_queue(name, QueueConfig::simple()))).await {
        created.expect("a queue");
    }
    let gone = cluster.partitions(slots, PARTITIONS).await;
    let is_gone = |name: &&String| {
        let name = QueueName::parse("queue", name).expect("a name");
        gone.contains(&Keyspace::number_of_queue(&name, PARTITIONS))
    };
    let (away, served): (Vec<&String>, Vec<&String>) = names.iter().partition(is_gone);
    assert!(away.len() >= 40 && served.len() >= 40, "{} are away, {} are served", away.len(), served.len());
    let later = async |queues: &[&String], id: &str, due_ms: u64| {
        let message = || NewMessage::new(id, "").invisibility_ms(due_ms);
        for enqueued in join_all(queues.iter().map(|name| client.enqueue(name, vec![message()]))).await {
            enqueued.expect("a served queue").remove(0).expect("a new message");
        }
    };
    later(&away, "m", FIRST_DUE_MS).await;
    later(&served, "m", LATER_DUE_MS).await;
    cluster.freeze_all(slots);
    if leader_ends {
        leader.kill().await;
    }
    for round in ["m", "again", "and again"] {
        if round != "m" {
            later(&served, round, 1).await;
        }
        let give_up_at = Instant::now() + SOON / 2;
        for name in &served {
            while client.depth(name, None).await.expect("a served queue").invisible > 0 {
                assert!(Instant::now() < give_up_at, "{name}: what is due stays invisible, round {round}");
                sleep(POLL).await;
            }
        }
    }
}

/// A primary, another Redis, and a Sentinel that names the first one, and later the second.
struct Named {
    old: Redis,
    new: Redis,
    sentinel: Sentinel,
    primary: Primary,
}

impl Named {
    async fn start() -> Named {
        let (old, new) = (Redis::start().await, Redis::start().await);
        let sentinel = Sentinel::start(old.port(), "").await;
        let url = format!("redis-sentinel://127.0.0.1:{}#{NAME}", sentinel.port);
        let primary = RedisConfig { url: url.clone(), ..RedisConfig::default() }.access().first_primary(&url);
        Named { old, new, sentinel, primary: primary.expect("a good address") }
    }

    /// The Sentinel names the other one, and this process reads that.
    async fn fail_over(&self) {
        command(&self.new, &["REPLICAOF", "NO", "ONE"]).await;
        self.sentinel.names(self.new.port()).await;
        self.primary.client().await.expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_an_attempt_to_connect_to_a_primary_that_hangs_goes_on_with_the_next_one() {
    let named = Named::start().await;
    named.primary.client().await.expect("an answer");
    let until_connected = async |expected: bool| {
        let give_up_at = Instant::now() + SOON;
        while is_connected_to(named.old.port()) != expected {
            assert!(Instant::now() < give_up_at, "not so: connected {expected}");
            sleep(POLL).await;
        }
    };
    until_connected(false).await;
    named.old.signal(Signal::SIGSTOP);
    let link = Link::new(named.primary.clone(), ReplicaWait::default(), []);
    let call = tokio::spawn(async move { link.call(&redis::cmd("PING")).await });
    until_connected(true).await;
    named.fail_over().await;
    call.await.expect("no panic").expect("the next primary answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_call_to_a_primary_that_hangs_ends_when_another_is_named() {
    let named = Named::start().await;
    follows(&named.new, &named.old).await;
    // A long wait for replicas keeps replies back: so long, silence says nothing of the node.
    let replicas = ReplicaWait { replicas_min: 1, wait_ms: FOREVER_MS, ..ReplicaWait::default() };
    let link = Link::new(named.primary.clone(), replicas, []);
    let write = redis::pipe().set("key", "value").clone();
    link.calls(&write, true).await.expect("a replica");
    named.old.signal(Signal::SIGSTOP);
    let mut call = link.calls(&write, true);
    // The connection is there, so the command is on its way from here on.
    assert!(futures::poll!(&mut call).is_pending());
    named.fail_over().await;
    let unknown = timeout(SOON, call).await.expect("it is not waited for").expect_err("it has not answered");
    let unknown = Refusal::from(unknown);
    assert!(matches!(unknown, Refusal::Unavailable { applied: Applied::Unknown, .. }), "{unknown:?}");
    link.call(&redis::cmd("PING")).await.expect("the next primary answers");
}

/// Whether this process has a connection to this port of this machine.
fn is_connected_to(port: u16) -> bool {
    let files = std::fs::read_dir("/proc/self/fd").expect("a list of files");
    let sockets: HashSet<PathBuf> = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).collect();
    let all = std::fs::read_to_string("/proc/net/tcp").expect("the sockets");
    let is_to_port = |line: &str| {
        // Number, own address, the other's, state (01: established), …; the tenth word is the inode.
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words.get(2).is_some_and(|to| to.ends_with(&format!(":{port:04X}")))
            && words.get(3) == Some(&"01")
            && words.get(9).is_some_and(|inode| sockets.contains(&PathBuf::from(format!("socket:[{inode}]"))))
    };
    all.lines().skip(1).any(is_to_port)
}
