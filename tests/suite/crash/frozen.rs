//! Nodes that stand still: they take connections, and answer nothing. What waits for one of them ends when another node takes its
//! place (Q16, Q17).

use super::machines::Redis;
use super::replication::{command, follows};
use super::sentinels::{NAME, Sentinel};
use crate::system::program::SOON;
use nix::sys::signal::Signal;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;
use tallystone_link::{Link, Primary, RedisConfig, ReplicaWait};
use tallystone_model::{Applied, Refusal};
use tokio::time::{Instant, sleep, timeout};

const POLL: Duration = Duration::from_millis(20);
/// Longer than a test waits.
const FOREVER_MS: u64 = 2 * SOON.as_millis() as u64;

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
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.sentinel.port)).expect("a good address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a Sentinel");
        let port = self.new.port().to_string();
        for words in [&["REMOVE", NAME][..], &["MONITOR", NAME, "127.0.0.1", &port, "2"]] {
            redis::cmd("SENTINEL").arg(words).exec_async(&mut connection).await.expect("it does so");
        }
        self.primary.client().await.expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_an_attempt_to_connect_to_a_primary_that_stands_still_goes_on_with_the_next_one() {
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
async fn x2_a_call_to_a_primary_that_stands_still_ends_when_another_is_named() {
    let named = Named::start().await;
    follows(&named.new, &named.old).await;
    // A long wait for replicas keeps replies back: so long, silence says nothing of the node.
    let replicas = ReplicaWait { replicas_min: 1, wait_ms: FOREVER_MS };
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
