//! A replica becomes the primary and lacks the last writes (X1): nothing that was handed out with them is handed out again.

use super::machines::Redis;
use super::proxy::Proxy;
use super::replication::{command, follows, replication};
use crate::histories::pair::Server;
use crate::system::program::SOON;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{Client, Completion, Dequeue, Error, Lease, NewMessage, QueueConfig};
use tallystone_model::{QueueName, Shard, Store};
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::ClockShift;
use tokio::time::{Instant, sleep};

pub(super) const QUEUE: &str = "orders";
const POLL: Duration = Duration::from_millis(20);

/// A primary with a replica, behind an address that leads to the primary.
pub(super) struct Nodes {
    pub(super) primary: Redis,
    pub(super) replica: Redis,
    proxy: Proxy,
}

impl Nodes {
    async fn start() -> Nodes {
        Nodes::with(Redis::start().await).await
    }

    pub(super) async fn with(replica: Redis) -> Nodes {
        let nodes = Nodes::before_they_meet(replica).await;
        nodes.meet().await;
        nodes
    }

    /// The primary has no replica yet.
    pub(super) async fn before_they_meet(replica: Redis) -> Nodes {
        let primary = Redis::start().await;
        let proxy = Proxy::start(primary.port()).await;
        Nodes { primary, replica, proxy }
    }

    pub(super) async fn meet(&self) {
        follows(&self.replica, &self.primary).await;
    }

    /// The replica has everything so far, and nothing of what follows.
    pub(super) async fn separate(&self) {
        // WAIT would count what its own connection has written, which is nothing.
        let give_up_at = Instant::now() + SOON;
        let offset = async |node: &Redis, name: &str| replication(node).await.get::<u64>(name).expect("an offset");
        while offset(&self.replica, "slave_repl_offset").await < offset(&self.primary, "master_repl_offset").await {
            assert!(Instant::now() < give_up_at, "the replica does not catch up");
            sleep(POLL).await;
        }
        command(&self.replica, &["REPLICAOF", "NO", "ONE"]).await;
    }

    /// The primary ends, and the address leads to the replica.
    pub(super) async fn fail_over(&mut self) {
        self.proxy.lead_to(self.replica.port());
        self.primary.kill().await;
    }

    /// Where the primary is.
    pub(super) fn url(&self) -> String {
        self.proxy.url()
    }

    pub(super) async fn server(&self) -> (Server, Client) {
        let server = Server::start(&self.url()).await;
        let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
        (server, client)
    }
}

pub(super) async fn enqueue(client: &Client, id: &str) -> Result<(), Error> {
    let results = client.enqueue(QUEUE, vec![NewMessage::new(id, "")]).await?;
    Ok(results.into_iter().next().expect("a result").map(drop)?)
}

pub(super) async fn lease(client: &Client, worker: &str) -> Result<Lease, Error> {
    let mut leases = client.dequeue(Dequeue::new(QUEUE).worker(worker).lease_ms(600_000)).await?;
    Ok(leases.pop().expect("a runnable message"))
}

/// The answer of the first call that reaches the new primary.
pub(super) async fn until_answered<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> T {
    let give_up_at = Instant::now() + SOON;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error:?}"),
        }
        assert!(Instant::now() < give_up_at, "the new primary is not reached");
        sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_two_workers_never_get_one_fencing_token() {
    never_get_one_fencing_token(Nodes::start().await, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_q17_nor_where_the_queue_has_shards() {
    never_get_one_fencing_token(Nodes::start().await, 4).await;
}

/// The primary has served for a shorter time than by which the clock of the new one is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_nor_do_they_if_the_clock_of_the_new_primary_is_behind() {
    let shift = ClockShift::new();
    shift.set_ms(-8_000);
    never_get_one_fencing_token(Nodes::with(Redis::shifted(&shift).await).await, 1).await;
}

/// A queue that is deleted and created again on the new primary, either, although its clock is behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_q11_a_queue_that_is_created_again_has_other_fencing_tokens() {
    let shift = ClockShift::new();
    shift.set_ms(-8_000);
    let mut nodes = Nodes::with(Redis::shifted(&shift).await).await;
    let (server, client) = nodes.server().await;
    client.create_queue(QUEUE, QueueConfig::simple()).await.expect("a queue");
    enqueue(&client, "order").await.expect("an Enqueue");
    let mut highest = lease(&client, "first").await.expect("a lease").fencing_token;
    nodes.separate().await;
    nodes.fail_over().await;
    for round in 0..3 {
        until_answered(async || enqueue(&client, &format!("order-{round}")).await).await;
        let token = until_answered(async || lease(&client, "second").await).await.fencing_token;
        assert!(token > highest, "{token} after {highest}");
        highest = token;
        until_answered(async || client.delete_queue(QUEUE, true).await).await;
        until_answered(async || client.create_queue(QUEUE, QueueConfig::simple()).await).await;
    }
    server.stop().await;
}

async fn never_get_one_fencing_token(mut nodes: Nodes, shards: u32) {
    let (server, client) = nodes.server().await;
    let config = QueueConfig { shards: Some(shards), ..QueueConfig::simple() };
    client.create_queue(QUEUE, config).await.expect("a queue");
    enqueue(&client, "order").await.expect("an Enqueue");
    nodes.separate().await;
    let lost = lease(&client, "first").await.expect("a lease");
    nodes.fail_over().await;

    let held = until_answered(async || lease(&client, "second").await).await;
    assert_eq!((lost.id.as_str(), held.id.as_str()), ("order", "order"));
    assert!(held.fencing_token > lost.fencing_token, "{lost:?} {held:?}");
    let complete = async |lease| {
        let answers = client.complete(QUEUE, vec![Completion::of(lease)]).await.expect("an answer");
        answers.into_iter().next().expect("a result")
    };
    let refused = complete(&lost).await.expect_err("the other worker holds it");
    assert_eq!(refused.reason, "LEASE_LOST");
    complete(&held).await.expect("it holds the lease");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_no_server_keeps_a_configuration_whose_update_was_lost() {
    let mut nodes = Nodes::start().await;
    let (first_server, first) = nodes.server().await;
    let (second_server, second) = nodes.server().await;
    first.create_queue(QUEUE, QueueConfig::simple()).await.expect("a queue");
    nodes.separate().await;
    let attempts = |max_attempts| QueueConfig { max_attempts: Some(max_attempts), ..QueueConfig::default() };
    let lost = first.update_queue(QUEUE, attempts(7)).await.expect("an update");
    assert_eq!(lost.config.max_attempts, Some(7));
    nodes.fail_over().await;

    let kept = until_answered(async || second.update_queue(QUEUE, attempts(9)).await).await;
    assert_ne!(kept.revision, lost.revision, "it has other content");
    let shown = until_answered(async || first.get_queue(QUEUE).await).await;
    assert_eq!((shown.config.max_attempts, shown.revision), (Some(9), kept.revision));
    first_server.stop().await;
    second_server.stop().await;
}

/// The ids of the entries of the outbox.
async fn entries(redis: &Redis) -> BTreeSet<String> {
    let key = format!("ts:{{{QUEUE}/0}}:outbox");
    let entries: Vec<(String, redis::Value)> =
        redis::from_redis_value(command(redis, &["XRANGE", &key, "-", "+"]).await).expect("entries");
    entries.into_iter().map(|(id, _)| id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_an_offset_of_history_is_never_used_for_another_event() {
    // A relay starts over when a call has failed, which most calls do during a failover. Without a message that is kept, the new
    // primary has no outbox.
    for (has_kept, sees_lost, starts_over) in [
        (true, true, false),
        (true, true, true),
        (true, false, false),
        (true, false, true),
        (false, true, false),
        (false, true, true),
        (false, false, true),
    ] {
        let kept = usize::from(has_kept);
        let mut nodes = Nodes::start().await;
        let options = RedisOptions { url: nodes.proxy.url(), ..RedisOptions::default() };
        let store = RedisStore::connect(options).await.expect("a durable Redis");
        let name = QueueName::parse("queue", QUEUE).expect("a name");
        let shard = Shard::first(&name);
        store.create_queue(&name, tallystone_tests::simple()).await.expect("a queue");
        let enqueue = async |id: &str| {
            let mut results = store.enqueue(&shard, vec![tallystone_tests::message(id, 0)]).await?;
            results.remove(0)
        };
        if has_kept {
            enqueue("kept").await.expect("an Enqueue");
        }
        nodes.separate().await;
        let mut reader = store.outbox_reader();
        reader.discover();
        let first = reader.read(Duration::ZERO).await.expect("a read");
        assert_eq!(first.events.len(), kept);
        enqueue("lost").await.expect("an Enqueue");
        if sees_lost {
            assert_eq!(reader.read(Duration::ZERO).await.expect("a read").events.len(), 1);
        }
        let before = entries(&nodes.primary).await;
        nodes.fail_over().await;

        let give_up_at = Instant::now() + SOON;
        while let Err(refusal) = enqueue("new").await {
            assert!(Instant::now() < give_up_at, "the new primary is not reached: {refusal}");
            sleep(POLL).await;
        }
        let after = entries(&nodes.replica).await;
        let common: Vec<&String> = before.intersection(&after).collect();
        assert_eq!(common.len(), kept, "only that of the message that was kept: {before:?} {after:?}");
        let (mut read, mut failed) = (reader.read(Duration::ZERO).await, 0);
        while read.is_err() {
            assert!(Instant::now() < give_up_at, "the reader does not reach the new primary");
            failed += 1;
            if starts_over {
                reader.start_over();
            }
            sleep(POLL).await;
            read = reader.read(Duration::ZERO).await;
        }
        assert!(failed > 0, "the connection to the old primary is closed");
        let read = read.expect("a read");
        let ids: Vec<&str> = read.events.iter().map(|recorded| recorded.event.id.as_str()).collect();
        assert_eq!(ids, if has_kept && starts_over { &["kept", "new"][..] } else { &["new"] });
        assert_eq!(read.losses.len(), usize::from(sees_lost), "history has an event too many, or it does not");
        assert_eq!((reader.take_undone(), reader.take_lost()), (u64::from(sees_lost), 0));
        // The events that wait for a sink are still counted exactly.
        let waiting = store.outbox_lengths(&[&shard]).await.expect("a length");
        assert_eq!(waiting, [Some(kept as u64 + 1)], "new, and what was kept");
        reader.ack(&read.shards).await.expect("acknowledged");
        assert_eq!(store.outbox_lengths(&[&shard]).await.expect("a length"), [Some(0)]);
    }
}
