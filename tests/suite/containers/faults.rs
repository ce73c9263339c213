//! A server that is cut off from Redis, and one that is frozen (Q11, Q14): what it held continues through the other one.

use super::engine::{Container, Network, podman};
use crate::system::program::SOON;
use std::time::Duration;
use tallystone_client::{Client, Completion, Dequeue, Lease, NewMessage, QueueConfig};
use tokio::time::{Instant, sleep, timeout};

const LEASE_MS: u64 = 3_000;
/// Of a lease that must not end before the test completes it, on a machine that does much else.
const LONG_LEASE_MS: u64 = 300_000;

/// Two servers on one Redis: a network for callers, and one for the store.
struct Two {
    servers: [(Container, Client); 2],
    _redis: Container,
    store: Network,
    _callers: Network,
}

impl Two {
    async fn start() -> Two {
        let (callers, store) = (Network::new("callers"), Network::new("store"));
        let redis = Container::redis(&store);
        let server = async || {
            let (server, url) = Container::server(&[&callers, &store], &redis).await;
            let client = Client::builder(url).retry_for(Duration::ZERO).call_timeout(Duration::from_secs(3));
            (server, client.connect().await.expect("a server"))
        };
        let servers = [server().await, server().await];
        let client = &servers[0].1;
        client.create_queue("q", QueueConfig::exclusive("k")).await.expect("a queue");
        let messages = ["a", "b"].map(|id| NewMessage::new(id, "p").metadata("k", "same").lease_ms(LEASE_MS));
        client.enqueue("q", messages.to_vec()).await.expect("an Enqueue");
        Two { servers, _redis: redis, store, _callers: callers }
    }

    /// The first server holds a lease, and is stopped by a fault. Through the other one the lease holds until it ends,
    /// and then one message of its key runs after the other. When the fault is over, the first lease is worth nothing.
    async fn survive(&self, fault: &[&str], repair: &[&str]) {
        let [(_, cut), (_, other)] = &self.servers;
        let lease = cut.dequeue(Dequeue::new("q")).await.expect("a Dequeue").remove(0);
        let leased_at = Instant::now();
        podman(fault);
        assert!(timeout(Duration::from_secs(8), cut.depth("q", None)).await.is_ok_and(|depth| depth.is_err()));
        let again = next(other).await;
        // What has passed is at least the lease, but for the time from its start to its reply.
        assert!(
            leased_at.elapsed() + Duration::from_millis(500) > Duration::from_millis(LEASE_MS),
            "it was leased twice"
        );
        assert!(again.fencing_token > lease.fencing_token);
        // The other message has the same key.
        assert!(other.dequeue(Dequeue::new("q")).await.expect("a Dequeue").is_empty());
        podman(repair);
        let late = until(async || cut.complete("q", vec![Completion::of(lease.lease_ref())]).await.ok()).await;
        assert_eq!(late[0].as_ref().expect_err("an old lease").reason, "LEASE_LOST");
        other.complete("q", vec![Completion::of(again.lease_ref())]).await.expect("a Complete")[0]
            .as_ref()
            .expect("done");
        let last = next(cut).await;
        assert_ne!(last.id, again.id, "each message is completed once");
        cut.complete("q", vec![Completion::of(last.lease_ref())]).await.expect("a Complete")[0].as_ref().expect("done");
        let violations = other.check_queue("q", "").await;
        assert!(violations.is_ok(), "{violations:?}");
    }
}

async fn next(client: &Client) -> Lease {
    until(async || client.dequeue(Dequeue::new("q").lease_ms(LONG_LEASE_MS)).await.ok()?.pop()).await
}

async fn until<T>(mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up_at = Instant::now() + SOON;
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(Instant::now() < give_up_at, "not in time");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_a_server_that_is_cut_off_from_redis_loses_its_leases_and_comes_back() {
    let two = Two::start().await;
    let (network, server) = (two.store.0.clone(), two.servers[0].0.0.clone());
    two.survive(&["network", "disconnect", &network, &server], &["network", "connect", &network, &server]).await;
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_a_server_that_is_frozen_loses_its_leases_and_comes_back() {
    let two = Two::start().await;
    let server = two.servers[0].0.0.clone();
    two.survive(&["pause", &server], &["unpause", &server]).await;
}
