//! What a server knows of the partitions that answer, while others hang (Q17, O1).

use super::cluster::Cluster;
use super::machines::{Server, config_file};
use crate::system::program::SOON;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{Client, NewMessage, QueueConfig};
use tallystone_lua::keys::Keyspace;
use tallystone_model::QueueName;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const PARTITIONS: u16 = 6;
const QUEUES: usize = 24;
const POLL: Duration = Duration::from_millis(100);
/// Of the tenant with all queues.
const MESSAGES_MAX: usize = 60;
const CONFIG: &str = "[redis]\npartitions = 6\n[[tenants]]\nname = \"q\"\nprefix = \"q/\"\nmessages_max = 60\n";

/// A server whose queues are one tenant, and a third of whose partitions will hang.
struct Stage {
    cluster: Cluster,
    server: Server,
    client: Client,
    gone: BTreeSet<u16>,
    /// The queues of these partitions, and the others.
    away: Vec<String>,
    served: Vec<String>,
    _dir: TempDir,
}

impl Stage {
    async fn start() -> Stage {
        let cluster = Cluster::start().await;
        let (dir, config) = config_file(CONFIG);
        let server = Server::start(cluster.url(), &config).await;
        let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
        let gone = cluster.partitions(1, PARTITIONS).await;
        let is_gone = |name: &String| {
            let name = QueueName::parse("queue", name).expect("a name");
            gone.contains(&Keyspace::number_of_queue(&name, PARTITIONS))
        };
        let names = (0..QUEUES).map(|number| format!("q/{number}"));
        let (away, served): (Vec<String>, Vec<String>) = names.partition(is_gone);
        assert!(away.len() >= 3 && served.len() >= 6, "{} are away, {} are served", away.len(), served.len());
        for name in away.iter().chain(&served) {
            client.create_queue(name, QueueConfig::simple()).await.expect("a queue");
        }
        Stage { cluster, server, client, gone, away, served, _dir: dir }
    }

    /// Whether it was accepted.
    async fn put(&self, queue: &str, id: &str) -> bool {
        let results = self.client.enqueue(queue, vec![NewMessage::new(id, "")]).await;
        results.is_ok_and(|mut results| results.remove(0).is_ok())
    }

    /// Waits for a page of metrics with all of these lines.
    async fn until(&self, lines: &[String]) {
        let give_up_at = Instant::now() + 2 * SOON;
        loop {
            let page = self.server.metrics().await;
            if lines.iter().all(|line| page.lines().any(|found| found == line)) {
                return;
            }
            assert!(Instant::now() < give_up_at, "{lines:?}:\n{page}");
            sleep(POLL).await;
        }
    }

    fn states(&self, number_of_gone: u8) -> Vec<String> {
        let state = |number: u16| {
            let value = if self.gone.contains(&number) { number_of_gone } else { 0 };
            format!("tallystone_store_partition_unavailable{{partition=\"{number}\"}} {value}")
        };
        (0..PARTITIONS).map(state).collect()
    }
}

fn pending(queue: &str, number: usize) -> String {
    format!("tallystone_queue_messages{{queue=\"{queue}\",state=\"pending\"}} {number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_o1_partitions_that_hang_are_named_and_the_queues_of_others_are_measured() {
    let stage = Stage::start().await;
    for queue in stage.away.iter().chain(&stage.served) {
        assert!(stage.put(queue, "m").await, "{queue}");
    }
    let all = |number| stage.served.iter().map(move |queue| pending(queue, number)).collect::<Vec<_>>();
    stage.until(&[all(1), stage.states(0)].concat()).await;
    stage.cluster.freeze_all(1);
    for queue in &stage.served {
        assert!(stage.put(queue, "another").await, "{queue}");
    }
    stage.until(&[all(2), stage.states(1)].concat()).await;
    stage.cluster.thaw_all(1);
    stage.until(&stage.states(0)).await;
}

/// The server knows what the partitions keep that answer, and refuses what passes the bound of the tenant, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_partitions_that_hang_do_not_hide_what_a_tenant_keeps_in_others() {
    let stage = Stage::start().await;
    let queue = &stage.served[0];
    for queue in &stage.away {
        assert!(stage.put(queue, "m").await, "{queue}");
    }
    // Each number that is another one is that of another reading, and the third reading began after the first ended.
    let (mut read, give_up_at) = (BTreeSet::new(), Instant::now() + SOON);
    for number in 0.. {
        assert!(Instant::now() < give_up_at, "the server does not read what is kept");
        let _accepted_or_full = stage.put(queue, &format!("before{number}")).await;
        let page = stage.server.metrics().await;
        let messages = page.lines().find_map(|line| line.strip_prefix("tallystone_tenant_messages{tenant=\"q\"} "));
        read.extend(messages.map(str::to_owned));
        if read.len() > 3 {
            break;
        }
        sleep(POLL).await;
    }
    let empty = async || {
        stage.client.delete_queue(queue, true).await.expect("a deletion");
        stage.client.create_queue(queue, QueueConfig::simple()).await.expect("a queue");
    };
    empty().await;
    stage.cluster.freeze_all(1);
    let accepted = async |id: String| {
        let give_up_at = Instant::now() + SOON;
        while !stage.put(queue, &id).await {
            assert!(Instant::now() < give_up_at, "{id}: the server does not read that others are gone");
            sleep(POLL).await;
        }
    };
    // More than the bound, but each is gone before the next one comes.
    for number in 0..2 * MESSAGES_MAX {
        accepted(format!("gone{number}")).await;
        empty().await;
    }
    let room = MESSAGES_MAX - stage.away.len();
    for number in 0..room {
        accepted(format!("kept{number}")).await;
    }
    assert!(!stage.put(queue, "too many").await, "those in the partitions that hang count, too");
    stage.cluster.thaw_all(1);
}
