//! How soon calls succeed after another node has become the primary (Q16, Q17, X2, X3), without a replica that a write waits for.

use super::cluster::{Cluster, Fault};
use super::machines::{Redis, Server, config_file};
use super::replication::command;
use super::sentinels::Nodes;
use crate::system::program::SOON;
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_client::{Client, NewMessage, QueueConfig};
use tallystone_lua::keys::Keyspace;
use tallystone_model::QueueName;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// What the documents promise: from the moment when the new primary stands.
const PROMISED: Duration = Duration::from_secs(3);
/// A test allows so many times what is promised, because other tests keep the machine busy. That is less than any time after
/// which a connection that hangs is given up.
pub(super) const MARGIN: u32 = 2;
const PARTITIONS: u16 = 6;
/// Enough that some are in the middle of a call when the primary freezes.
const CALLERS: usize = 8;

/// Callers that enqueue one message after the other, each in its queue; when each last succeeded.
struct Callers {
    succeeded: Vec<watch::Receiver<Instant>>,
    _tasks: JoinSet<()>,
}

impl Callers {
    async fn start(server: &Server, queues: &[String]) -> Callers {
        let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
        let (mut succeeded, mut tasks) = (Vec::new(), JoinSet::new());
        for queue in queues {
            client.create_queue(queue, QueueConfig::simple()).await.expect("a queue");
        }
        for (caller, queue) in (0..CALLERS).zip(queues.iter().cycle()) {
            let (success, receiver) = watch::channel(Instant::now());
            let (client, queue) = (client.clone(), queue.clone());
            tasks.spawn(async move {
                for number in 0.. {
                    let message = NewMessage::new(format!("{caller}-{number}"), "");
                    if client.enqueue(&queue, vec![message]).await.is_ok_and(|results| results[0].is_ok()) {
                        success.send_replace(Instant::now());
                    } else {
                        // A refusal costs nothing, and a busy loop would.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            });
            succeeded.push(receiver);
        }
        let callers = Callers { succeeded, _tasks: tasks };
        callers.all_succeed_after(Instant::now()).await;
        callers
    }

    /// Waits until each has succeeded later than this; returns how much later the last one did for the first time.
    async fn all_succeed_after(&self, begin: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        for (caller, receiver) in self.succeeded.iter().enumerate() {
            let mut receiver = receiver.clone();
            let later = timeout(SOON, receiver.wait_for(|at| *at > begin)).await;
            let at = *later.unwrap_or_else(|_| panic!("caller {caller} is not served")).expect("it calls");
            longest = longest.max(at - begin);
        }
        longest
    }

    async fn keep_the_promise(&self, fault: Fault, stands: Instant) {
        let took = self.all_succeed_after(stands).await;
        println!("{fault:?}: each caller has succeeded {took:?} after the new primary stands");
        assert!(took <= MARGIN * PROMISED, "{fault:?}: {took:?}");
    }
}

async fn strike(redis: &mut Redis, fault: Fault) {
    match fault {
        Fault::Killed => redis.kill().await,
        Fault::Frozen => redis.signal(Signal::SIGSTOP),
    }
}

async fn recover(redis: &mut Redis, fault: Fault) {
    match fault {
        Fault::Killed => redis.restart().await,
        Fault::Frozen => redis.signal(Signal::SIGCONT),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_calls_succeed_soon_after_the_sentinels_have_named_a_primary() {
    let mut nodes = Nodes::start(0).await;
    let server = Server::start_as(&["server", "--redis-url", &nodes.url(), "--log", "warn"]).await;
    let callers = Callers::start(&server, &["orders".to_owned()]).await;
    for fault in [Fault::Killed, Fault::Frozen] {
        let before = nodes.primary().await;
        strike(&mut nodes.redis[before], fault).await;
        nodes.promoted(before).await;
        callers.keep_the_promise(fault, Instant::now()).await;
        recover(&mut nodes.redis[before], fault).await;
        nodes.followed().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_calls_succeed_soon_after_a_replica_of_a_cluster_is_promoted() {
    const SLOTS: usize = 1;
    let mut cluster = Cluster::start().await;
    let demand_no_replica =
        async |redis: &Redis| command(redis, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    for redis in &cluster.redis {
        demand_no_replica(redis).await;
    }
    let (_dir, config) = config_file("[redis]\npartitions = 6\n");
    let server = Server::start(cluster.url(), &config).await;
    let theirs = cluster.partitions(SLOTS, PARTITIONS).await;
    let names = (0..100).map(|number| format!("q/{number}"));
    let is_theirs = |name: &String| {
        let name = QueueName::parse("queue", name).expect("a name");
        theirs.contains(&Keyspace::number_of_queue(&name, PARTITIONS))
    };
    let callers = Callers::start(&server, &names.filter(is_theirs).take(CALLERS).collect::<Vec<_>>()).await;
    for fault in [Fault::Killed, Fault::Frozen] {
        let before = cluster.primary(SLOTS).await;
        strike(&mut cluster.redis[before], fault).await;
        cluster.promoted(before).await;
        callers.keep_the_promise(fault, Instant::now()).await;
        recover(&mut cluster.redis[before], fault).await;
        demand_no_replica(&cluster.redis[before]).await;
    }
}
