//! Makes a Redis Cluster of nodes that run on this machine.

use futures::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, RedisError, RedisResult};
use std::io;
use std::time::{Duration, Instant};

/// The slots of a cluster.
const SLOTS: usize = 16_384;
const POLL: Duration = Duration::from_millis(50);
/// Nodes find each other, and replicas their primaries, within seconds.
const READY_WAIT: Duration = Duration::from_secs(60);

/// One node, started with [`ClusterNode::arguments`].
#[derive(Clone, Debug)]
pub struct ClusterNode {
    /// Where clients find it on 127.0.0.1.
    pub port: u16,
    /// Where the other nodes find it. The default of Redis is a port 10,000 above, which may be none.
    pub bus_port: u16,
    /// The password of all nodes.
    pub password: Option<String>,
}

impl ClusterNode {
    /// More arguments of its redis-server. `timeout_ms`: after this time without an answer a node counts as failed.
    pub fn arguments(&self, timeout_ms: u32) -> Vec<String> {
        let arguments = ["--cluster-enabled", "yes", "--cluster-port", &self.bus_port.to_string()].map(str::to_owned);
        arguments.into_iter().chain(["--cluster-node-timeout".to_owned(), timeout_ms.to_string()]).collect()
    }

    /// What another node needs to find it.
    fn meet(&self) -> Cmd {
        let mut command = cluster("MEET");
        command.arg("127.0.0.1").arg(self.port).arg(self.bus_port);
        command
    }

    /// As CLUSTER NODES shows it.
    fn address(&self) -> String {
        format!(" 127.0.0.1:{}@{}", self.port, self.bus_port)
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let login = self.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        Client::open(format!("redis://{login}127.0.0.1:{}", self.port))?.get_multiplexed_async_connection().await
    }
}

/// Makes a cluster of empty nodes: the first `primaries` of them share the slots, and each further one is a replica of the next
/// primary in turn. Returns when every node knows that the cluster is complete, and every primary has its replicas.
///
/// # Errors
/// A node refuses, or they do not find each other in time.
pub async fn make_cluster(nodes: &[ClusterNode], primaries: usize) -> RedisResult<()> {
    let mut connections = connect(nodes).await?;
    let mut ids: Vec<String> = Vec::new();
    for (number, connection) in connections.iter_mut().enumerate() {
        // Different from the start, so that no two claim a slot with the same right.
        cluster("SET-CONFIG-EPOCH").arg(number + 1).exec_async(connection).await?;
        ids.push(cluster("MYID").query_async(connection).await?);
        if number < primaries {
            let (from, end) = (number * SLOTS / primaries, (number + 1) * SLOTS / primaries);
            cluster("ADDSLOTSRANGE").arg(from).arg(end - 1).exec_async(connection).await?;
        }
    }
    meet(nodes, &mut connections).await?;
    for (number, connection) in connections.iter_mut().enumerate().skip(primaries) {
        cluster("REPLICATE").arg(&ids[number % primaries]).exec_async(connection).await?;
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        until(connection, &cluster("INFO"), |info| info.contains("cluster_state:ok")).await?;
        if number < primaries {
            // As the primary counts them: it may demand them for a write.
            let replicas = (primaries..nodes.len()).filter(|replica| replica % primaries == number).count();
            let are_online = |info: &str| info.matches("state=online").count() == replicas;
            until(connection, redis::cmd("INFO").arg("replication"), are_online).await?;
        }
    }
    Ok(())
}

/// Nodes of a cluster that have started again, perhaps on other ports, find each other. Returns when every node knows that all
/// slots are served.
///
/// # Errors
/// As [`make_cluster`].
pub(crate) async fn meet_again(nodes: &[ClusterNode]) -> RedisResult<()> {
    let mut connections = connect(nodes).await?;
    // Each remembers where the others were. It would learn from one that they have moved only after it has found them failed.
    for (number, connection) in connections.iter_mut().enumerate() {
        for (_, node) in nodes.iter().enumerate().filter(|(other, _)| *other != number) {
            node.meet().exec_async(connection).await?;
        }
    }
    for connection in &mut connections {
        let are_known = |known: &str| nodes.iter().all(|node| known.contains(&node.address()));
        until(connection, &cluster("NODES"), are_known).await?;
        let is_complete = |info: &str| info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384");
        until(connection, &cluster("INFO"), is_complete).await?;
    }
    Ok(())
}

async fn connect(nodes: &[ClusterNode]) -> RedisResult<Vec<MultiplexedConnection>> {
    try_join_all(nodes.iter().map(ClusterNode::connect)).await
}

/// The first node meets all others, and each learns of all.
async fn meet(nodes: &[ClusterNode], connections: &mut [MultiplexedConnection]) -> RedisResult<()> {
    for node in &nodes[1..] {
        node.meet().exec_async(&mut connections[0]).await?;
    }
    for connection in connections {
        until(connection, &cluster("NODES"), |known| {
            let is_met = |line: &&str| !line.contains("handshake");
            known.lines().filter(is_met).count() == nodes.len()
        })
        .await?;
    }
    Ok(())
}

fn cluster(verb: &str) -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg(verb);
    command
}

async fn until(connection: &mut MultiplexedConnection, command: &Cmd, is: impl Fn(&str) -> bool) -> RedisResult<()> {
    let give_up_at = Instant::now() + READY_WAIT;
    loop {
        let answer: String = command.query_async(connection).await?;
        if is(&answer) {
            return Ok(());
        }
        if Instant::now() > give_up_at {
            let why = format!("the nodes do not find each other: {answer}");
            return Err(RedisError::from(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        tokio::time::sleep(POLL).await;
    }
}
