//! Failovers of a Redis Cluster under load (Q17): a primary is killed, or frozen while its replica takes its place.

use super::cluster::{Cluster, Fault};
use super::conclude::{check_history, check_invariants, conclude, drain, progress};
use super::judge::LATE_MS;
use super::load::{Load, Phase, queue_config};
use super::machines::{self, config_file};
use crate::system::program::SOON;
use std::time::Duration;
use tallystone_client::{Client, QueueConfig};
use tallystone_link::RedisConfig;
use tallystone_lua::keys::Keyspace;
use tallystone_model::QueueName;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub(super) const CONFIG: &str = "[server]\nsweeper_leader_lease_ms = 1000\n[outbox]\nevents_max = 1000000000\n\
                      [redis]\npartitions = 6\nreplicas_min = 1\nreplica_wait_ms = 500\n";
pub(super) const PARTITIONS: u16 = 6;
/// Each primary has one of either kind.
pub(crate) const QUEUES: [(&str, bool); 6] = [
    ("simple/f", false),
    ("simple/b", false),
    ("simple/a", false),
    ("tails/0", true),
    ("tails/2", true),
    ("tails/1", true),
];
const POLL: Duration = Duration::from_millis(20);

#[test]
fn each_primary_has_a_queue_of_either_kind() {
    let primary = |name| {
        let queue = QueueName::parse("queue", name).expect("a valid name");
        Keyspace::number_of_queue(&queue, PARTITIONS) / 2
    };
    let found: Vec<_> = QUEUES.map(|(name, exclusive)| (exclusive, primary(name))).into();
    assert_eq!(found, [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_failovers_of_a_cluster_lose_nothing_and_run_nothing_twice() {
    fail_over(&QUEUES, 1, [(0, Fault::Killed), (1, Fault::Frozen), (2, Fault::Killed)]).await;
}

/// Each primary has shards of each queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x4_failovers_lose_nothing_of_queues_with_shards_on_all_primaries() {
    let queues = [("simple", false), ("tails", true)];
    // The last fault is that of a node that was a replica at first.
    fail_over(&queues, u32::from(PARTITIONS), [(0, Fault::Killed), (1, Fault::Frozen), (0, Fault::Killed)]).await;
}

/// `faults`: whose primaries, and what happens to them.
async fn fail_over(queues: &[(&str, bool)], shards: u32, faults: [(usize, Fault); 3]) {
    let mut cluster = Cluster::start().await;
    let (_dir, config) = config_file(CONFIG);
    let (_servers, clients) = machines::pair(&cluster.url(), &config, machines::PATIENCE).await;
    let (phase, phases) = watch::channel(Phase::Load);
    let (mut tasks, mut loads, mut configs) = (JoinSet::new(), Vec::new(), Vec::new());
    for (via, (name, exclusive)) in queues.iter().copied().enumerate() {
        let config = QueueConfig { shards: Some(shards), ..queue_config(exclusive) };
        clients[0].create_queue(name, config.clone()).await.expect("a queue");
        configs.push((name, config));
        let load = Load::new(name, exclusive, &clients, &phases);
        load.spawn_spread(via, &mut tasks);
        loads.push(load);
    }
    let impatient = clients[0].clone().with_retry_for(Duration::ZERO);
    for (slots, fault) in faults {
        let round = async {
            progress(&loads, 20).await;
            cluster.strike(slots, fault).await;
            let stands = Instant::now();
            for (name, config) in &configs {
                until_served(&impatient, name, config).await;
            }
            println!("{fault:?}: all queues are served {:?} after the new primary stands", stands.elapsed());
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
        let redis = RedisConfig { url: cluster.url(), partitions: Some(PARTITIONS), ..RedisConfig::default() };
        conclude(&clients, &redis, load, LATE_MS).await;
    }
    check_history(&cluster.url(), &config).await;
}

/// Waits until a call that writes succeeds: a creation that finds the queue as it is.
async fn until_served(client: &Client, queue: &str, config: &QueueConfig) {
    let give_up_at = Instant::now() + SOON;
    while let Err(error) = client.create_queue(queue, config.clone()).await {
        assert!(Instant::now() < give_up_at, "{queue}: {error}");
        sleep(POLL).await;
    }
}
