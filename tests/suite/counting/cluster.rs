//! Counters on a Redis Cluster (Q17): primaries are killed, or frozen while their replicas take their places, under load; and
//! partitions that are unavailable, or hang, while the others serve.

use super::judge::all_rollups;
use super::load::Load;
use super::machines::Machines;
use super::rounds::{ACCEPT_LIMIT, NAMESPACE, conclude, config, progress};
use crate::crash::cluster::{Cluster, Fault};
use crate::system::program::SOON;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tallystone_client::{Client, CounterClient, CounterType, NamespaceConfig, NewAdd};
use tallystone_counters::CounterName;
use tallystone_counters::namespace;
use tallystone_counters::service::{queue_of, rollup_queue};
use tallystone_lua::keys::Keyspace;
use tallystone_workers::RollupStage;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const PARTITIONS: u16 = 6;
/// Six partitions, each write on a replica before its answer.
pub(super) const CONFIG: &str = "[redis]\npartitions = 6\nreplicas_min = 1\nreplica_wait_ms = 500\n";
/// All counts are exact this time after the last failover. A job that has failed waits for up to 2 s. A counter that got no job, because
/// its queue was unavailable, waits for 1 s, twice if it falls due just before that queue is tried again.
const CONVERGED_WITHIN: Duration = Duration::from_millis(ACCEPT_LIMIT.as_millis() as u64 + 4_000);
/// How long a call may take to a partition that is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long counters are watched.
const WATCHED: Duration = Duration::from_secs(8);
const BETWEEN_ADDS: Duration = Duration::from_millis(100);

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
    conclude(&machines, &load, ended, CONVERGED_WITHIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_partitions_that_are_unavailable_hold_up_no_rollups_of_others() {
    let cluster = Cluster::start().await;
    let url = cluster.url();
    let mut machines = Machines::start_on(cluster, url, CONFIG, 1).await;
    let all = counters_everywhere(&machines).await;
    let ones: BTreeMap<String, i64> = all.iter().map(|counter| (counter.clone(), 1)).collect();
    machines.until_rolled_up(NAMESPACE, &ones).await;
    let most = rollups(&machines, &machines.clients[0], &all).await.into_iter().max().expect("counters");
    // The worker has jobs of every counter when a third of the slots goes, and tries them again and again.
    machines.redis.kill_all(1).await;
    let client = impatient(&machines);
    let served = add_to_each(&client, &all).await;
    let watched = with_queues(&machines.queues[0].url(), &served).await;
    assert!(watched.len() >= 20 && served.len() < all.len());
    let fewest = rollups(&machines, &client, &watched).await.into_iter().min().expect("counters");
    assert!(2 * fewest >= most, "a counter was rolled up {fewest} times, and {most} times while all was there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_partitions_that_hang_hold_up_no_adds_of_others() {
    let cluster = Cluster::start().await;
    let url = cluster.url();
    let machines = Machines::start_on(cluster, url, CONFIG, 1).await;
    let all = counters_everywhere(&machines).await;
    machines.redis.freeze_all(1);
    let client = impatient(&machines);
    let served = add_to_each(&client, &all).await;
    let away: Vec<String> = all.iter().filter(|counter| !served.contains(counter)).cloned().collect();
    assert!(served.len() >= 20 && away.len() >= 20, "{} of {} were served", served.len(), all.len());
    let end = Instant::now() + WATCHED;
    let waiting = async {
        while Instant::now() < end {
            assert!(add_to_each(&client, &away).await.is_empty());
            sleep(BETWEEN_ADDS).await;
        }
    };
    let adding = async {
        while Instant::now() < end {
            assert_eq!(add_to_each(&client, &served).await, served);
            sleep(BETWEEN_ADDS).await;
        }
    };
    tokio::join!(waiting, adding);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_n4_a_slot_that_is_moved_fails_no_add() {
    let cluster = Cluster::start().await;
    let url = cluster.url();
    let machines = Machines::start_on(cluster, url, CONFIG, 1).await;
    let cached = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    machines.clients[0].put_namespace(NAMESPACE, cached).await.expect("a new namespace");
    let all: Vec<String> = (0..200).map(|number| format!("counter/{number}")).collect();
    assert_eq!(add_to_each(&machines.clients[0], &all).await, all);
    machines.redis.move_slot(Keyspace::partition(0, PARTITIONS).slot(), 0, 1).await;
    // They are sent together, and each is tried once.
    assert_eq!(add_to_each(&impatient(&machines), &all).await, all);
    let counts = machines.clients[0].get_many(NAMESPACE, all.clone()).await.expect("counts");
    assert!(counts.into_iter().all(|counted| counted.expect("a count").count == 2));
}

/// Makes counters in all partitions, each in one, and adds 1 to each.
async fn counters_everywhere<R>(machines: &Machines<R>) -> Vec<String> {
    let config = NamespaceConfig { buckets_per_id: Some(1), ..config() };
    machines.clients[0].put_namespace(NAMESPACE, config).await.expect("a new namespace");
    let all: Vec<String> = (0..200).map(|number| format!("counter/{number}")).collect();
    assert_eq!(add_to_each(&machines.clients[0], &all).await, all);
    all
}

/// A client that calls once, and waits no longer than for a partition that is there.
fn impatient<R>(machines: &Machines<R>) -> CounterClient {
    let once = CounterClient::builder(machines.counters[0].url()).retry_for(Duration::ZERO).call_timeout(PATIENCE);
    once.connect_lazy().expect("a good address")
}

/// Goes on adding to these counters, and returns how often each was rolled up meanwhile.
async fn rollups<R>(machines: &Machines<R>, client: &CounterClient, counters: &[String]) -> Vec<usize> {
    let (before, end) = (committed(machines), Instant::now() + WATCHED);
    while Instant::now() < end {
        assert_eq!(add_to_each(client, counters).await, counters);
        sleep(BETWEEN_ADDS).await;
    }
    let after = committed(machines);
    counters.iter().map(|counter| after.get(counter).unwrap_or(&0) - before.get(counter).unwrap_or(&0)).collect()
}

/// Adds 1 to each of these counters by a call for each, and returns those where that has counted.
async fn add_to_each(client: &CounterClient, counters: &[String]) -> Vec<String> {
    let adds = counters.iter().map(|counter| client.add(NAMESPACE, NewAdd::new(counter.clone(), 1)));
    counters
        .iter()
        .zip(join_all(adds).await)
        .filter(|(_, result)| result.is_ok())
        .map(|(counter, _)| counter.clone())
        .collect()
}

/// Those of the counters whose jobs are in queues that are served.
async fn with_queues(queue_url: &str, counters: &[String]) -> Vec<String> {
    let once = Client::builder(queue_url).retry_for(Duration::ZERO).call_timeout(PATIENCE);
    let client = once.connect_lazy().expect("a good address");
    let config = namespace::NamespaceConfig {
        num_queues: config().num_queues.expect("a number") as u16,
        ..namespace::NamespaceConfig::default()
    };
    let mut serving = BTreeSet::new();
    for number in 0..config.num_queues {
        if client.depth(&rollup_queue(NAMESPACE, &config, number), None).await.is_ok() {
            serving.insert(number);
        }
    }
    let has_queue = |counter: &&String| {
        let counter = CounterName::parse((*counter).clone()).expect("a name");
        serving.contains(&queue_of(&counter, &config))
    };
    counters.iter().filter(has_queue).cloned().collect()
}

/// How often each counter was rolled up.
fn committed<R>(machines: &Machines<R>) -> BTreeMap<String, usize> {
    let mut rollups = BTreeMap::new();
    for rollup in all_rollups(&machines.lives()) {
        if rollup.stage == RollupStage::Committed {
            *rollups.entry(rollup.of.1).or_default() += 1;
        }
    }
    rollups
}
