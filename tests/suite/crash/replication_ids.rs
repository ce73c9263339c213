//! A Redis draws another replication id while it serves, when its first replica comes (Q17, X2, X7): it has lost nothing, and is the same
//! primary (decision 287).

use super::lost_writes::{Nodes, QUEUE, enqueue, lease, until_answered};
use super::machines::Redis;
use super::replication::{command, replication};
use crate::histories::pair::Server;
use crate::system::program::until;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::{Client, QueueConfig};
use tokio::time::sleep;

/// Between two writes of a server.
const PAUSE: Duration = Duration::from_millis(20);
/// A move to another timeline leaves out about 30 million numbers. Each shard moves once, and perhaps once more.
const FEW_MOVES: u64 = 100_000_000;

/// A server that writes all the time: a process checks the timeline of a connection only when that was idle.
struct Busy {
    server: Server,
    client: Client,
    enqueued: AtomicUsize,
}

impl Busy {
    async fn start(nodes: &Nodes) -> Busy {
        let (server, client) = nodes.server().await;
        client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a queue");
        Busy { server, client, enqueued: AtomicUsize::new(0) }
    }

    async fn enqueue(&self) {
        let id = format!("busy-{}", self.enqueued.fetch_add(1, Ordering::Relaxed));
        until_answered(async || enqueue(&self.client, &id).await).await;
    }

    async fn while_it_writes<T>(&self, act: impl Future<Output = T>) -> T {
        let writes = async {
            loop {
                self.enqueue().await;
                sleep(PAUSE).await;
            }
        };
        tokio::select! {
            done = act => done,
            () = writes => unreachable!("it writes without end"),
        }
    }
}

async fn replication_id(redis: &Redis) -> String {
    replication(redis).await.get("master_replid").expect("an id")
}

async fn beat(redis: &Redis) -> u64 {
    redis::from_redis_value(command(redis, &["HGET", "ts:store", "beat"]).await).expect("a number")
}

/// Waits until a process has verified this number of times that the store is what it was, and has written since.
async fn beats(redis: &Redis, count: u64) {
    let wanted = beat(redis).await + count;
    until("beats", async || beat(redis).await >= wanted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_servers_of_two_replication_ids_work_on_one_timeline() {
    let nodes = Nodes::before_they_meet(Redis::start().await).await;
    let first = Busy::start(&nodes).await;
    first.enqueue().await;
    let begin = lease(&first.client, "w").await.expect("a lease").fencing_token;
    let id = replication_id(&nodes.primary).await;
    let meet = async {
        nodes.meet().await;
        nodes.server().await
    };
    let (second, client) = first.while_it_writes(meet).await;
    assert_ne!(replication_id(&nodes.primary).await, id, "the first replica brings another id");
    for number in 0..50 {
        first.enqueue().await;
        enqueue(&client, &format!("second-{number}")).await.expect("an Enqueue");
    }
    let left_out = lease(&client, "w").await.expect("a lease").fencing_token - begin;
    assert!(left_out < FEW_MOVES, "{left_out} numbers were left out");
    second.stop().await;
    first.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x7_a_failover_after_the_first_replica_came_is_no_loss_of_data() {
    let mut nodes = Nodes::before_they_meet(Redis::start().await).await;
    let busy = Busy::start(&nodes).await;
    let lose_a_beat = async {
        nodes.meet().await;
        // The process reads the new id with the mark.
        beats(&nodes.primary, 2).await;
        nodes.separate().await;
        beats(&nodes.primary, 1).await;
    };
    busy.while_it_writes(lose_a_beat).await;
    assert!(beat(&nodes.replica).await < beat(&nodes.primary).await);
    nodes.fail_over().await;
    busy.while_it_writes(beats(&nodes.replica, 2)).await;
    busy.server.stop().await;
}
