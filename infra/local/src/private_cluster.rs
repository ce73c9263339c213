//! A Redis Cluster of six nodes on this machine: three primaries, each with a replica. Its data survives restarts.

use crate::cluster::{ClusterNode, make_cluster, meet_again};
use crate::lock::{make_dir, unusable};
use crate::ports::free_port_except;
use crate::private::new_password;
use crate::redis::{Password, PrivateRedis, PrivateRedisOptions};
use crate::{LocalError, REDIS_CONF};
use futures::future::{join_all, select_all, try_join_all};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::sleep;

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;
/// After this time without an answer the other nodes count a node as failed.
const NODE_TIMEOUT_MS: u32 = 2_000;
/// A node that has ended starts again after this time: its replica has taken its place by then.
const RESTART_AFTER: Duration = Duration::from_secs(5);
/// Written when the nodes are a cluster.
const MADE: &str = "made";

/// A running Redis Cluster. Dropping it stops its nodes.
#[derive(Debug)]
pub struct PrivateCluster {
    dir: PathBuf,
    options: Vec<PrivateRedisOptions>,
    password: String,
    nodes: Vec<Mutex<PrivateRedis>>,
}

impl PrivateCluster {
    /// Starts its nodes, each in a folder of `dir`, and waits until they serve all slots. `change`: what else each node needs.
    ///
    /// # Errors
    /// A node does not start, or they do not find each other.
    pub async fn start(
        dir: &Path,
        change: impl Fn(PrivateRedisOptions) -> PrivateRedisOptions,
    ) -> Result<PrivateCluster, LocalError> {
        let (folder, unusable) = (make_dir(dir)?, unusable(dir));
        let password = new_password().map_err(&unusable)?;
        let is_made = folder.join(MADE).exists();
        let (mut options, mut members, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=NODES {
            let node_dir = folder.join(format!("node-{number}"));
            if !is_made && node_dir.exists() {
                // An earlier start has ended before the nodes were a cluster: they have no data.
                std::fs::remove_dir_all(&node_dir).map_err(&unusable)?;
            }
            let port = free_port_except(&taken).map_err(&unusable)?;
            taken.push(port);
            let bus_port = free_port_except(&taken).map_err(&unusable)?;
            taken.push(bus_port);
            let member = ClusterNode { port, bus_port, password: Some(password.clone()) };
            let mut extra_args = member.arguments(NODE_TIMEOUT_MS);
            extra_args.extend(["--cluster-require-full-coverage", "no"].map(str::to_owned));
            options.push(change(PrivateRedisOptions {
                port: Some(port),
                password: Password::Shared(password.clone()),
                extra_args,
                ..PrivateRedisOptions::new(node_dir)
            }));
            members.push(member);
        }
        let nodes = try_join_all(options.iter().cloned().map(PrivateRedis::start)).await?;
        let joined = if is_made { meet_again(&members).await } else { make_cluster(&members, PRIMARIES).await };
        joined.map_err(|error| unusable(std::io::Error::other(error)))?;
        std::fs::write(folder.join(MADE), "").map_err(&unusable)?;
        let nodes = nodes.into_iter().map(Mutex::new).collect();
        Ok(PrivateCluster { dir: folder, options, password, nodes })
    }

    /// Where its nodes listen: `redis-cluster://:PASSWORD@127.0.0.1:PORT,…`
    pub fn url(&self) -> String {
        format!("redis-cluster://:{}@{}", self.password, self.hosts())
    }

    /// The same without the password, fit to be shown.
    pub fn shown_url(&self) -> String {
        format!("redis-cluster://{}", self.hosts())
    }

    /// The file with the password.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("node-1").join(REDIS_CONF)
    }

    fn hosts(&self) -> String {
        let ports = self.options.iter().filter_map(|options| options.port);
        let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        hosts.join(",")
    }

    /// Starts each node that has ended again, until one cannot start.
    pub async fn keep_up(&self) -> LocalError {
        let keep_up = async |(node, options): (&Mutex<PrivateRedis>, &PrivateRedisOptions)| loop {
            let mut running = node.lock().await;
            running.ended().await;
            tracing::warn!(port = running.port(), "a node of the cluster has ended; its replica takes its place");
            sleep(RESTART_AFTER).await;
            match PrivateRedis::start(options.clone()).await {
                Ok(again) => *running = again,
                Err(error) => return error,
            }
        };
        select_all(self.nodes.iter().zip(&self.options).map(|node| Box::pin(keep_up(node)))).await.0
    }

    /// Stops its nodes, everything written, and waits until they have ended.
    pub async fn stop(self) {
        join_all(self.nodes.into_iter().map(|node| node.into_inner().stop())).await;
    }
}
