//! A replica whose clock is ahead becomes the primary: no lease ends before its worker expects it (Q17).

use super::lost_writes::{Nodes, QUEUE, until_answered};
use super::machines::Redis;
use crate::histories::pair::Server;
use crate::system::program::until;
use std::time::Duration;
use tallystone_client::{Client, Completion, Dequeue, Lease, NewMessage, QueueConfig};
use tallystone_link::Clock;
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::ClockShift;
use tokio::time::Instant;

/// A primary, and a replica whose clock is ahead by this time.
async fn nodes(ahead_ms: i64) -> (ClockShift, Nodes) {
    let shift = ClockShift::new();
    shift.set_ms(ahead_ms);
    let replica = Redis::shifted(&shift).await;
    (shift, Nodes::with(replica).await)
}

/// Two messages of one value, and one of another.
async fn fill(client: &Client) {
    client.create_queue(QUEUE, QueueConfig::exclusive("customer")).await.expect("a queue");
    let message = |(id, customer)| NewMessage::new(id, "").metadata("customer", customer);
    let messages = [("first", "anna"), ("second", "anna"), ("third", "bert")].map(message).to_vec();
    let results = client.enqueue(QUEUE, messages).await.expect("an answer");
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

/// When the first worker leased two messages, and their leases.
async fn lease_two(client: &Client, lease_ms: u64) -> (Instant, Vec<Lease>) {
    let began = Instant::now();
    let dequeue = Dequeue::new(QUEUE).worker("first").limit(2).lease_ms(lease_ms);
    let leases = client.dequeue(dequeue).await.expect("an answer");
    assert_eq!(leases.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["first", "third"]);
    (began, leases)
}

/// The time that another worker first gets a message.
async fn other_lease(client: &Client) -> Instant {
    let dequeue = || client.dequeue(Dequeue::new(QUEUE).worker("other").lease_ms(600_000));
    until("the lease ends", async || !until_answered(dequeue).await.is_empty()).await;
    Instant::now()
}

/// By the new primary's clock, both leases have ended when it is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_no_lease_ends_early_if_the_clock_of_the_new_primary_is_ahead() {
    const LEASE_MS: u64 = 7_000;
    let (_shift, mut nodes) = nodes(8_000).await;
    let (server, client) = nodes.server().await;
    fill(&client).await;
    let (began, leases) = lease_two(&client, LEASE_MS).await;
    nodes.separate().await;
    nodes.fail_over().await;

    let completed = until_answered(|| client.complete(QUEUE, vec![Completion::of(&leases[1])])).await;
    assert!(completed[0].is_ok(), "{completed:?} after {:?}", began.elapsed());
    let held = other_lease(&client).await - began;
    assert!(held >= Duration::from_millis(LEASE_MS), "another worker ran {held:?} after the first");
    // The server has measured the difference of the clocks. Otherwise it would have waited for 20 s longer.
    assert!(held < Duration::from_millis(LEASE_MS + 15_000), "{held:?}");
    let completed = client.complete(QUEUE, vec![Completion::of(&leases[0])]).await.expect("an answer");
    assert_eq!(completed[0].as_ref().expect_err("it is another's").reason, "LEASE_LOST");
    server.stop().await;
}

/// It cannot measure by how much, so it waits for twice the bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q17_nor_if_the_server_has_not_known_the_earlier_primary() {
    const LEASE_MS: u64 = 4_000;
    let (_shift, mut nodes) = nodes(3_000).await;
    let (server, client) = nodes.server().await;
    fill(&client).await;
    let (began, _) = lease_two(&client, LEASE_MS).await;
    server.stop().await;
    nodes.separate().await;
    nodes.fail_over().await;

    let clock = Clock::redis("queues", 3_500);
    let options = RedisOptions { url: nodes.url(), clock, ..RedisOptions::default() };
    let server = Server::start_on(RedisStore::connect(options).await.expect("a durable Redis")).await;
    let client = Client::connect(server.url()).await.expect("a client").with_retry_for(Duration::ZERO);
    let held = other_lease(&client).await - began;
    assert!(held >= Duration::from_millis(LEASE_MS), "another worker ran {held:?} after the first");
    server.stop().await;
}
