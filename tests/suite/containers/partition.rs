//! A primary of a Redis Cluster whose network is cut, under load (Q17): no answer comes back, not even that it is gone. Its
//! replica takes its place, and it comes back as a replica.

use super::engine::{Container, Network, podman, try_podman};
use crate::crash::cluster_failover::QUEUES;
use crate::crash::conclude::{check_invariants, conclude_by_calls, drain, progress};
use crate::crash::judge::LATE_MS;
use crate::crash::load::{Load, Phase, queue_config};
use crate::system::program::until;
use std::time::Duration;
use tallystone_client::Client;
use tallystone_lua::keys::Keyspace;
use tallystone_model::QueueName;
use tokio::sync::watch;
use tokio::task::JoinSet;

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;
const PARTITIONS: u16 = 6;

/// Three primaries, each with a replica.
struct Cluster {
    network: Network,
    nodes: Vec<Container>,
    addresses: Vec<String>,
}

impl Cluster {
    async fn start() -> Cluster {
        let network = Network::new("cluster");
        let arguments = "--cluster-enabled yes --cluster-node-timeout 2000 --cluster-require-full-coverage no \
                         --min-replicas-to-write 1 --min-replicas-max-lag 10";
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let nodes: Vec<_> = (0..NODES).map(|_| Container::redis_with(&network, &arguments)).collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.address(&network)).collect();
        let cluster = Cluster { network, nodes, addresses };
        for node in 0..NODES {
            until("every node answers", async || cluster.cli(node, &["ping"]) == "PONG").await;
        }
        let hosts: Vec<_> = cluster.addresses.iter().map(|address| format!("{address}:6379")).collect();
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        let create = ["--cluster", "create", "--cluster-replicas", "1", "--cluster-yes"];
        let created = cluster.cli(0, &[&create[..1], &create[1..2], &hosts, &create[2..]].concat());
        assert!(created.contains("All 16384 slots covered"), "{created}");
        for node in 0..NODES {
            until("the cluster stands", async || cluster.cli(node, &["cluster", "info"]).contains("cluster_state:ok"))
                .await;
        }
        for primary in cluster.primaries() {
            until("each primary has its replica", async || cluster.has_replica(primary)).await;
        }
        cluster
    }

    fn url(&self) -> String {
        format!("redis-cluster://{}", self.addresses.join(","))
    }

    /// What `redis-cli` prints in a node. It needs no network.
    fn cli(&self, node: usize, words: &[&str]) -> String {
        let ran = try_podman(&[&["exec", &self.nodes[node].0, "redis-cli"], words].concat());
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    fn primaries(&self) -> Vec<usize> {
        let primaries: Vec<_> = (0..NODES).filter(|node| self.has_role(*node, "master")).collect();
        assert_eq!(primaries.len(), PRIMARIES);
        primaries
    }

    /// Whether it has a role, as ROLE names it.
    fn has_role(&self, node: usize, role: &str) -> bool {
        self.cli(node, &["role"]).lines().next() == Some(role)
    }

    /// Whether the node has the slot of this queue, and keys in it.
    fn has_queue(&self, node: usize, queue: &str) -> bool {
        let queue = QueueName::parse("queue", queue).expect("a valid name");
        let slot = Keyspace::partition(Keyspace::number_of_queue(&queue, PARTITIONS), PARTITIONS).slot();
        self.cli(node, &["cluster", "countkeysinslot", &slot.to_string()]) != "0"
    }

    fn has_replica(&self, primary: usize) -> bool {
        self.cli(primary, &["info", "replication"]).contains("min_slaves_good_slaves:1")
    }

    /// The node that follows this primary.
    fn replica_of(&self, primary: usize) -> usize {
        let role = self.cli(primary, &["role"]);
        let replica = self.addresses.iter().position(|address| role.lines().any(|line| line == address));
        replica.unwrap_or_else(|| panic!("{} has no replica: {role}", self.addresses[primary]))
    }

    fn cut(&self, node: usize) {
        podman(&["network", "disconnect", &self.network.0, &self.nodes[node].0]);
    }

    fn mend(&self, node: usize) {
        podman(&["network", "connect", "--ip", &self.addresses[node], &self.network.0, &self.nodes[node].0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a container engine: ./test --containers"]
async fn x3_primaries_whose_network_is_cut_lose_nothing_and_run_nothing_twice() {
    let cluster = Cluster::start().await;
    let callers = Network::new("callers");
    let settings = "--env TALLYSTONE_REDIS_PARTITIONS=6 --env TALLYSTONE_REDIS_REPLICAS_MIN=1 \
                    --env TALLYSTONE_REDIS_REPLICA_WAIT_MS=500 --env TALLYSTONE_SERVER_SWEEPER_LEADER_LEASE_MS=1000";
    let settings: Vec<&str> = settings.split_whitespace().collect();
    let server = async || Container::server_with(&[&callers, &cluster.network], &cluster.url(), &settings).await;
    let servers = [server().await, server().await];
    let clients = servers.each_ref().map(|(_, url)| {
        let builder = Client::builder(url.clone()).retry_for(Duration::from_secs(90));
        builder.call_timeout(Duration::from_secs(5)).connect_lazy().expect("a good address")
    });
    let (phase, phases) = watch::channel(Phase::Load);
    let (mut tasks, mut loads) = (JoinSet::new(), Vec::new());
    for (via, (name, exclusive)) in QUEUES.into_iter().enumerate() {
        clients[0].create_queue(name, queue_config(exclusive)).await.expect("a queue");
        let load = Load::new(name, exclusive, &clients, &phases);
        load.spawn_spread(via, &mut tasks);
        loads.push(load);
    }
    for primary in cluster.primaries() {
        let replica = cluster.replica_of(primary);
        // The new primary has no replica until the old one is back, so it refuses writes. The queues of the others go on.
        let (struck, others): (Vec<_>, Vec<_>) =
            loads.iter().cloned().partition(|load| cluster.has_queue(primary, &load.queue));
        assert!(!struck.is_empty() && !others.is_empty(), "node {primary} has {} of the queues", struck.len());
        let round = async {
            progress(&loads, 20).await;
            cluster.cut(primary);
            until("its replica is the primary", async || cluster.has_role(replica, "master")).await;
            progress(&others, 20).await;
            cluster.mend(primary);
            until("it follows the new primary", async || {
                cluster.has_role(primary, "slave") && cluster.has_replica(replica)
            })
            .await;
            progress(&loads, 20).await;
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
        conclude_by_calls(&clients, load, LATE_MS).await;
    }
}
