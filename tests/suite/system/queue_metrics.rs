//! The metrics of queues, as a server on a real Redis exports them (O1).

use super::program::{SOON, metrics_page};
use crate::crash::machines::Server;
use std::time::Duration;
use tallystone_client::{Client, Completion, Dequeue, NewMessage, QueueConfig, Release};
use tallystone_tests::{TestRedis, lasting_port};
use tokio::time::{Instant, sleep};

/// Three leases of a new queue end without success: one is released with a delay, one is released after its last attempt,
/// and one runs out, which was a last attempt, too.
async fn give_up_leases(client: &Client, queue: &str) {
    const LATER_MS: u64 = 3_600_000;
    client.create_queue(queue, QueueConfig::simple()).await.expect("a queue");
    let last_attempt = |id: &str| NewMessage::new(id, "").max_attempts(1);
    let messages = vec![NewMessage::new("later", ""), last_attempt("failed"), last_attempt("late").lease_ms(1_000)];
    client.enqueue(queue, messages).await.expect("an Enqueue");
    let leases = client.dequeue(Dequeue::new(queue).limit(3)).await.expect("leases");
    let release = |id: &str| Release::of(leases.iter().find(|lease| lease.id == id).expect("a lease"));
    let releases = vec![release("later").delay_ms(LATER_MS), release("failed")];
    let released = client.release(queue, releases).await.expect("an answer");
    assert!(released.iter().all(Result::is_ok), "{released:?}");
}

/// Waits for a page on which all of these lines are, or none of them.
async fn until(metrics: &str, lines: &[&str], are_there: bool) -> String {
    let give_up_at = Instant::now() + SOON;
    loop {
        let page = metrics_page(metrics).await;
        if lines.iter().all(|line| page.lines().any(|found| found.starts_with(line)) == are_there) {
            return page;
        }
        assert!(Instant::now() < give_up_at, "{lines:?}, {are_there}:\n{page}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn o1_a_server_shows_what_each_queue_does_and_holds_until_it_is_deleted() {
    let redis = TestRedis::start().await;
    let metrics = format!("127.0.0.1:{}", lasting_port());
    let url = redis.url();
    let args = ["server", "--redis-url", &url, "--allow-volatile", "--metrics-listen", &metrics];
    let server = Server::start_as(&args).await;
    let client = Client::connect(server.url()).await.expect("a client");
    give_up_leases(&client, "returns").await;
    client.create_queue("orders", QueueConfig::simple()).await.expect("a queue");
    let messages = (0..3).map(|n| NewMessage::new(format!("m{n}"), "")).collect();
    client.enqueue("orders", messages).await.expect("an Enqueue");
    let lease = client.dequeue(Dequeue::new("orders")).await.expect("a lease").remove(0);
    client.complete("orders", vec![Completion::of(&lease)]).await.expect("an answer").remove(0).expect("a live lease");
    client.dequeue(Dequeue::new("orders")).await.expect("a lease");
    let mut stale = Completion::of(&lease);
    stale.lease.fencing_token = 1;
    client.complete("orders", vec![stale]).await.expect("an answer").remove(0).expect_err("another lease");
    let expected = [
        "tallystone_queue_released_total{queue=\"returns\"} 2",
        "tallystone_queue_lapsed_total{queue=\"returns\"} 1",
        "tallystone_queue_errored_total{queue=\"returns\"} 2",
        "tallystone_queue_messages{queue=\"returns\",state=\"invisible\"} 1",
        "tallystone_queue_messages{queue=\"returns\",state=\"errored\"} 2",
        "tallystone_queue_messages{queue=\"returns\",state=\"running\"} 0",
        "tallystone_queue_enqueued_total{queue=\"orders\"} 3",
        "tallystone_queue_leased_total{queue=\"orders\"} 2",
        "tallystone_queue_completed_total{queue=\"orders\"} 1",
        "tallystone_queue_refused_total{queue=\"orders\",reason=\"LEASE_LOST\"} 1",
        "tallystone_queue_messages{queue=\"orders\",state=\"pending\"} 1",
        "tallystone_queue_messages{queue=\"orders\",state=\"running\"} 1",
        "tallystone_queue_messages{queue=\"(other)\",state=\"pending\"} 0",
    ];
    let page = until(&metrics, &expected, true).await;
    for metric in ["oldest_pending_age", "oldest_lease_age"] {
        let line = format!("tallystone_queue_{metric}_seconds{{queue=\"orders\"}} ");
        let age: f64 = page.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).expect("an age");
        assert!(age > 0.0, "{metric}");
    }
    let ages = client.ages("orders").await.expect("ages");
    assert!(ages.oldest_pending_ms > Some(0) && ages.oldest_lease_ms > Some(0), "{ages:?}");
    assert!(ages.oldest_pending_ms >= ages.oldest_lease_ms, "it was enqueued before the lease: {ages:?}");
    let listed = client.list_queues("", 0, "").await.expect("a list").items.remove(0);
    assert!(listed.ages.oldest_pending_ms >= ages.oldest_pending_ms, "{listed:?}");

    client.delete_queue("orders", true).await.expect("a deletion");
    until(&metrics, &["tallystone_queue_enqueued_total{queue=\"orders\"}"], false).await;
}
