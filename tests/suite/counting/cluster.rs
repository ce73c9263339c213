//! Counters on a Redis Cluster (Q17): primaries are killed, or frozen while their replicas take their places, under load.

use super::load::Load;
use super::machines::Machines;
use super::rounds::{NAMESPACE, conclude, config, progress};
use crate::crash::cluster::{Cluster, Fault};
use crate::system::program::SOON;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const CONFIG: &str = "[redis]\npartitions = 6\nreplicas_min = 1\nreplica_wait_ms = 500\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_n3_n8_failovers_of_a_cluster_leave_every_total_exact() {
    let cluster = Cluster::start().await;
    let url = cluster.url();
    let mut machines = Machines::start_on(cluster, url, CONFIG, 2).await;
    machines.clients[0].put_namespace(NAMESPACE, config()).await.expect("a new namespace");
    let (done, until) = watch::channel(false);
    let load = Load::new(NAMESPACE, &machines.clients, until);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(load.clone().add(rand::random()));
    }
    for (slots, fault) in [(0, Fault::Killed), (1, Fault::Frozen), (2, Fault::Killed)] {
        let striking = async {
            progress(&load, &machines, 100).await;
            machines.redis.strike(slots, fault).await;
            progress(&load, &machines, 100).await;
        };
        tokio::select! {
            () = striking => {}
            Some(ended) = tasks.join_next() => panic!("ended early: {ended:?}"),
        }
    }
    done.send_replace(true);
    let ended = Instant::now();
    timeout(SOON, tasks.join_all()).await.expect("every client ends");
    conclude(&machines, &load, ended).await;
}
