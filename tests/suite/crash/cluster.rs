//! A Redis Cluster of three primaries, each with a replica.

use super::machines::Redis;
use super::replication::{command, good_replicas, replication};
use crate::system::program::SOON;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_local::{ClusterNode, make_cluster};
use tallystone_lua::keys::Keyspace;
use tallystone_tests::lasting_port;
use tokio::time::{Instant, sleep};

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;
const NODE_TIMEOUT_MS: u32 = 2_000;
const POLL: Duration = Duration::from_millis(20);

/// What happens to a primary.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// kill -9. It comes back as a replica.
    Killed,
    /// It stops in the middle of what it does, and continues when another is the primary.
    Frozen,
}

pub(crate) struct Cluster {
    /// A node and the one three further on have the same slots.
    pub(crate) redis: Vec<Redis>,
}

impl Cluster {
    /// Each primary refuses writes that its replica cannot get.
    pub(crate) async fn start() -> Cluster {
        let (mut nodes, mut redis) = (Vec::new(), Vec::new());
        for _ in 0..NODES {
            let node = ClusterNode { port: lasting_port(), bus_port: lasting_port(), password: None };
            let mut args = node.arguments(NODE_TIMEOUT_MS);
            // Even where a slot has no primary, the others serve theirs.
            let more = ["--cluster-require-full-coverage", "no", "--min-replicas-to-write", "1"];
            args.extend(more.map(str::to_owned));
            redis.push(Redis::start_on(node.port, args).await);
            nodes.push(node);
        }
        make_cluster(&nodes, PRIMARIES).await.expect("a Redis Cluster");
        Cluster { redis }
    }

    /// What servers connect to: all nodes, because any may be away when a server starts.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.redis.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The number of the node that is the primary of these slots: 0, 1 or 2.
    pub(crate) async fn primary(&self, slots: usize) -> usize {
        let give_up_at = Instant::now() + SOON;
        loop {
            for number in [slots, slots + PRIMARIES] {
                let replication = replication(&self.redis[number]).await;
                // A primary without its replica has just been replaced, or has just replaced another.
                let is_primary = replication.get::<String>("role").as_deref() == Some("master");
                if is_primary && good_replicas(&replication) == 1 {
                    return number;
                }
            }
            assert!(Instant::now() < give_up_at, "the slots have no primary with a replica");
            sleep(POLL).await;
        }
    }

    /// Waits until the other node of its slots is the primary, and returns its number.
    pub(crate) async fn promoted(&self, before: usize) -> usize {
        let now = (before + PRIMARIES) % NODES;
        let give_up_at = Instant::now() + SOON;
        while replication(&self.redis[now]).await.get::<String>("role").as_deref() != Some("master") {
            assert!(Instant::now() < give_up_at, "the replica does not become the primary");
            sleep(POLL).await;
        }
        now
    }

    /// Strikes the primary of these slots, and waits until its replica has taken its place and it has come back as a replica.
    pub(crate) async fn strike(&mut self, slots: usize, fault: Fault) {
        let before = self.primary(slots).await;
        match fault {
            Fault::Killed => self.redis[before].kill().await,
            Fault::Frozen => self.redis[before].signal(Signal::SIGSTOP),
        }
        let now = self.promoted(before).await;
        match fault {
            Fault::Killed => self.redis[before].restart().await,
            Fault::Frozen => self.redis[before].signal(Signal::SIGCONT),
        }
        assert_eq!(self.primary(slots).await, now);
    }

    /// Kills the primary of these slots and its replica: no node serves the slots any more.
    pub(crate) async fn kill_all(&mut self, slots: usize) {
        for number in [slots, slots + PRIMARIES] {
            self.redis[number].kill().await;
        }
    }

    /// Freezes the primary of these slots and its replica: they take connections and answer nothing.
    pub(crate) fn freeze_all(&self, slots: usize) {
        for number in [slots, slots + PRIMARIES] {
            self.redis[number].signal(Signal::SIGSTOP);
        }
    }

    /// Moves a slot with its keys from the primary of one part of the slots to that of another, as `redis-cli --cluster reshard` does.
    pub(crate) async fn move_slot(&self, slot: u16, from_slots: usize, to_slots: usize) {
        let slot = slot.to_string();
        let (from, to) = (self.primary(from_slots).await, self.primary(to_slots).await);
        let text = async |node: usize| redis::from_redis_value(self.command(node, &["CLUSTER", "MYID"]).await);
        let [from_id, to_id]: [String; 2] = [text(from).await.expect("an id"), text(to).await.expect("an id")];
        self.command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
        self.command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
        let keys = self.command(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "10000"]).await;
        let keys: Vec<String> = redis::from_redis_value(keys).expect("keys");
        let port = self.redis[to].port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        self.command(from, &migrate).await;
        for slots in [to_slots, from_slots, 3 - from_slots - to_slots] {
            let node = self.primary(slots).await;
            self.command(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
        }
    }

    /// Lets the primary of these slots and its replica continue.
    pub(crate) fn thaw_all(&self, slots: usize) {
        for number in [slots, slots + PRIMARIES] {
            self.redis[number].signal(Signal::SIGCONT);
        }
    }

    /// The partitions of a store that are in these slots, of so many; it has a mark in each.
    pub(crate) async fn partitions(&self, slots: usize, partitions: u16) -> BTreeSet<u16> {
        let mut found = BTreeSet::new();
        for number in 0..partitions {
            let slot = Keyspace::partition(number, partitions).slot().to_string();
            let keys = self.command(slots, &["CLUSTER", "COUNTKEYSINSLOT", &slot]).await;
            if keys != redis::Value::Int(0) {
                found.insert(number);
            }
        }
        found
    }

    /// The answer of a node to one command.
    pub(crate) async fn command(&self, node: usize, words: &[&str]) -> redis::Value {
        command(&self.redis[node], words).await
    }
}
