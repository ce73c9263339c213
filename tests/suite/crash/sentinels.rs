//! A primary with two replicas, and the three Sentinels that choose another primary when it is unavailable.

use super::machines::Redis;
use super::replication::{command, follows, good_replicas, replication};
use crate::system::program::{Running, SOON};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tallystone_tests::{lasting_port, patient_connection};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// The Sentinels' name of the primary.
pub(crate) const NAME: &str = "orders";
const POLL: Duration = Duration::from_millis(20);
/// After this time without an answer a Sentinel regards a node as down.
const DOWN_AFTER_MS: u64 = 1_000;

/// The nodes, and what watches them.
pub(crate) struct Nodes {
    pub(crate) redis: [Redis; 3],
    sentinels: [Sentinel; 3],
}

impl Nodes {
    /// The first is the primary. Each of them refuses writes that fewer than `replicas_min` replicas can get.
    pub(crate) async fn start(replicas_min: u32) -> Nodes {
        let mut redis = [Redis::start().await, Redis::start().await, Redis::start().await];
        let replicas_min = replicas_min.to_string();
        for node in &mut redis {
            node.add_args(&["--min-replicas-to-write", &replicas_min]);
            command(node, &["CONFIG", "SET", "min-replicas-to-write", &replicas_min]).await;
        }
        for replica in &redis[1..] {
            follows(replica, &redis[0]).await;
        }
        let start = async || Sentinel::start(redis[0].port(), "").await;
        let sentinels = [start().await, start().await, start().await];
        for sentinel in &sentinels {
            sentinel.knows_all().await;
        }
        Nodes { redis, sentinels }
    }

    /// What servers connect to.
    pub(crate) fn url(&self) -> String {
        let hosts = self.sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port));
        format!("redis-sentinel://{}#{NAME}", hosts.join(","))
    }

    /// The number of the primary, by the first Sentinel.
    pub(crate) async fn primary(&self) -> usize {
        let port = self.sentinels[0].fields(&["SENTINEL", "MASTER", NAME]).await["port"].parse();
        let port: u16 = port.expect("a port");
        self.redis.iter().position(|redis| redis.port() == port).expect("one of them")
    }

    /// Waits until the Sentinels have made another node the primary.
    pub(crate) async fn promoted(&self, before: usize) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let now = self.primary().await;
            if now != before && replication(&self.redis[now]).await.get::<String>("role").as_deref() == Some("master") {
                return;
            }
            assert!(Instant::now() < give_up_at, "no Sentinel makes another node the primary");
            sleep(POLL).await;
        }
    }

    /// Lets all other nodes follow the primary, as the Sentinels would some ten seconds later, and waits until it counts them
    /// as good replicas. On a busy machine the Sentinels may take a new primary for dead, and promote one more.
    pub(crate) async fn followed(&self) {
        let first = self.primary().await;
        let port = self.redis[first].port().to_string();
        for (_, replica) in self.redis.iter().enumerate().filter(|(at, _)| *at != first) {
            command(replica, &["REPLICAOF", "127.0.0.1", &port]).await;
        }
        let give_up_at = Instant::now() + SOON;
        while good_replicas(&replication(&self.redis[self.primary().await]).await) != 2 {
            assert!(Instant::now() < give_up_at, "the replicas do not catch up");
            sleep(POLL).await;
        }
    }
}

/// One Sentinel. Killed when it is dropped.
pub(crate) struct Sentinel {
    pub(crate) port: u16,
    _process: Running,
    _dir: TempDir,
}

impl Sentinel {
    /// `more`: further lines of its configuration.
    pub(crate) async fn start(primary: u16, more: &str) -> Sentinel {
        let (dir, port) = (TempDir::new().expect("a temporary folder"), lasting_port());
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\nsentinel failover-timeout {NAME} 10000\n\
             sentinel parallel-syncs {NAME} 2\n{more}"
        );
        std::fs::write(&config, text).expect("a file");
        let program = std::env::var_os("TALLYSTONE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(program);
        command.arg(&config).arg("--sentinel").current_dir(dir.path()).kill_on_drop(true);
        let mut process = Running::start(command);
        process.listens(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
        Sentinel { port, _process: process, _dir: dir }
    }

    /// Lets it name the node at this port as the primary, whatever it has found.
    pub(crate) async fn names(&self, port: u16) {
        let mut connection = self.connection().await;
        for words in [&["REMOVE", NAME][..], &["MONITOR", NAME, "127.0.0.1", &port.to_string(), "2"]] {
            redis::cmd("SENTINEL").arg(words).exec_async(&mut connection).await.expect("it does so");
        }
    }

    async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a good address");
        patient_connection(&client).await.expect("a Sentinel")
    }

    async fn fields(&self, words: &[&str]) -> HashMap<String, String> {
        let mut connection = self.connection().await;
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.expect("its fields")
    }

    /// Waits until it knows both replicas and both other Sentinels: before that there is no failover.
    async fn knows_all(&self) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let fields = self.fields(&["SENTINEL", "MASTER", NAME]).await;
            if fields["num-slaves"] == "2" && fields["num-other-sentinels"] == "2" {
                return;
            }
            assert!(Instant::now() < give_up_at, "it does not find the others: {fields:?}");
            sleep(POLL).await;
        }
    }
}
