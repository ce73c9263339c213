//! A Dequeue whose reply is lost between Redis and the server, for callers that gave no request id and for Work streams:
//! the answer speaks for every try, and the leases of the lost reply reach those callers (Q10).

use super::machines::Redis;
use super::proxy::Proxy;
use crate::histories::pair::Server;
use crate::system::program::SOON;
use std::time::{Duration, Instant};
use tallystone_lua::Script;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::*;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const QUEUE: &str = "lost";
/// Longer than a test runs: no lease ends by itself.
const LEASE_MS: i64 = 600_000;

/// A server that reaches its Redis through a proxy, and another that reaches it directly.
struct Rig {
    queue: QueueClient<Channel>,
    /// Of the other server.
    other: QueueClient<Channel>,
    admin: QueueAdminClient<Channel>,
    proxy: Proxy,
    servers: [Server; 2],
    redis: Redis,
}

impl Rig {
    async fn start() -> Self {
        let redis = Redis::start().await;
        let proxy = Proxy::start(redis.port()).await;
        let servers = [Server::start(&proxy.url()).await, Server::start(&redis.url()).await];
        let connect = async |server: &Server| {
            Channel::from_shared(server.url()).expect("a good address").connect().await.expect("a server")
        };
        let (first, second) = (connect(&servers[0]).await, connect(&servers[1]).await);
        let (queue, other, admin) = (QueueClient::new(first), QueueClient::new(second.clone()), second);
        let mut rig = Rig { queue, other, admin: QueueAdminClient::new(admin), proxy, servers, redis };
        let config = QueueConfig { lease_ms: Some(LEASE_MS), ..QueueConfig::default() };
        let create = CreateQueueRequest { name: QUEUE.to_owned(), config: Some(config) };
        rig.admin.create_queue(create).await.expect("a new queue");
        // The first call of a server reads the configuration.
        rig.queue.dequeue(dequeue(0)).await.expect("an empty queue");
        rig
    }

    async fn enqueue(&mut self, ids: &[&str]) {
        let message = |id: &&str| NewMessage { id: (*id).to_owned(), ..NewMessage::default() };
        let request = EnqueueRequest { queue: QUEUE.to_owned(), messages: ids.iter().map(message).collect() };
        self.other.enqueue(request).await.expect("an Enqueue");
    }

    /// A Dequeue through the proxy.
    fn call(&self, request: DequeueRequest) -> JoinHandle<Result<Vec<Lease>, Status>> {
        let mut queue = self.queue.clone();
        tokio::spawn(async move { Ok(queue.dequeue(request).await?.into_inner().leases) })
    }

    fn lose_a_dequeue(&self) {
        self.proxy.lose(Script::Dequeue.sha1());
    }

    async fn running(&mut self) -> u64 {
        let depth = DepthRequest { queue: QUEUE.to_owned(), filter: None };
        let counts = self.admin.depth(depth).await.expect("a Depth").into_inner().counts;
        counts.expect("counts").running as u64
    }

    async fn stop(self) {
        drop((self.queue, self.other, self.admin));
        for server in self.servers {
            server.stop().await;
        }
        drop((self.proxy, self.redis));
    }
}

fn dequeue(wait_ms: i64) -> DequeueRequest {
    DequeueRequest { queue: QUEUE.to_owned(), worker: "w".to_owned(), limit: 2, wait_ms, ..DequeueRequest::default() }
}

fn ids(leases: &[Lease]) -> Vec<&str> {
    assert!(leases.iter().all(|lease| lease.attempt == 1), "no lease was lost on the way: {leases:?}");
    leases.iter().map(|lease| lease.id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q10_a_dequeue_whose_repeat_meets_a_closed_port_does_not_say_that_nothing_happened() {
    let mut rig = Rig::start().await;
    rig.enqueue(&["a", "b"]).await;
    rig.lose_a_dequeue();
    let answer = rig.call(dequeue(500)).await.expect("no panic").expect_err("the port is closed");
    let details = answer.get_details_error_info().expect("a reason");
    assert_eq!((answer.code(), details.reason.as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
    assert_eq!(details.metadata["applied"], "unknown", "{answer:?}");
    assert_eq!(rig.running().await, 2, "the first try took effect");
    // No caller can get these leases any more: the server itself releases them, long before they end.
    rig.proxy.open();
    let found = timeout(SOON, rig.other.dequeue(dequeue(i64::try_from(SOON.as_millis()).expect("a minute"))));
    let found = found.await.expect("in time").expect("a Dequeue").into_inner().leases;
    assert_eq!(found.iter().map(|lease| lease.attempt).collect::<Vec<_>>(), [1, 1], "no worker had them");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q10_a_waiting_dequeue_gets_the_leases_of_its_lost_reply() {
    for request_id in ["", "mine"] {
        let mut rig = Rig::start().await;
        rig.enqueue(&["a", "b"]).await;
        rig.lose_a_dequeue();
        let waiting = rig.call(DequeueRequest { request_id: request_id.to_owned(), ..dequeue(60_000) });
        rig.proxy.lost().await;
        assert_eq!(rig.running().await, 2);
        // The proxy loses the reply of the repeat, too.
        rig.lose_a_dequeue();
        rig.proxy.lost().await;
        rig.proxy.open();
        let leases = timeout(SOON, waiting).await.expect("in time").expect("no panic").expect("leases");
        assert_eq!(ids(&leases), ["a", "b"]);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q10_a_work_stream_gets_the_leases_of_a_lost_reply() {
    let mut rig = Rig::start().await;
    let start = WorkStart { queue: QUEUE.to_owned(), worker: "w".to_owned(), ..WorkStart::default() };
    let (requests, stream) = tokio::sync::mpsc::channel(4);
    let first = WorkRequest { start: Some(start), credits: 3, ..WorkRequest::default() };
    requests.send(first).await.expect("room");
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    rig.enqueue(&["a", "b"]).await;
    rig.lose_a_dequeue();
    let mut responses = rig.queue.work(stream).await.expect("a stream").into_inner();
    rig.proxy.lost().await;
    assert_eq!(rig.running().await, 2);
    rig.proxy.open();
    let mut leases = Vec::new();
    while leases.len() < 2 {
        let response = timeout(SOON, responses.message()).await.expect("in time");
        leases.extend(response.expect("a response").expect("no end").leases);
    }
    assert_eq!(ids(&leases), ["a", "b"]);
    // The third credit is still there.
    rig.enqueue(&["c"]).await;
    let response = timeout(SOON, responses.message()).await.expect("in time");
    assert_eq!(ids(&response.expect("a response").expect("no end").leases), ["c"]);
    drop((requests, responses));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q10_a_work_stream_that_closed_meanwhile_leaves_no_lease_behind() {
    let mut rig = Rig::start().await;
    let start = WorkStart { queue: QUEUE.to_owned(), worker: "w".to_owned(), ..WorkStart::default() };
    rig.enqueue(&["a"]).await;
    rig.lose_a_dequeue();
    {
        let first = WorkRequest { start: Some(start), credits: 3, ..WorkRequest::default() };
        let (requests, stream) = tokio::sync::mpsc::channel(4);
        requests.send(first).await.expect("room");
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let responses = rig.queue.work(stream).await.expect("a stream").into_inner();
        rig.proxy.lost().await;
        drop((requests, responses));
    }
    rig.proxy.open();
    let found = timeout(SOON, rig.other.dequeue(dequeue(i64::try_from(SOON.as_millis()).expect("a minute"))));
    let found = found.await.expect("in time").expect("a Dequeue").into_inner().leases;
    assert_eq!(found.iter().map(|lease| (lease.id.as_str(), lease.attempt)).collect::<Vec<_>>(), [("a", 1)]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q14_a_subscription_that_is_lost_without_a_word_is_noticed() {
    let mut rig = Rig::start().await;
    // It waits, and this server's subscription is what would wake it.
    let waiting = rig.call(dequeue(12_000));
    rig.queue.dequeue(dequeue(1)).await.expect("behind the other");
    rig.proxy.silence_subscriptions();
    rig.enqueue(&["a"]).await;
    let leases = timeout(SOON, waiting).await.expect("in time").expect("no panic").expect("an answer");
    assert_eq!(leases.iter().map(|lease| lease.id.as_str()).collect::<Vec<_>>(), ["a"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q14_connections_that_are_lost_without_a_word_are_noticed() {
    let mut rig = Rig::start().await;
    rig.enqueue(&["a"]).await;
    rig.proxy.silence();
    let silent = Instant::now();
    let leases = rig.call(dequeue(12_000)).await.expect("no panic").expect("an answer");
    assert_eq!(ids(&leases), ["a"]);
    assert!(silent.elapsed() < Duration::from_secs(10), "found out after {:?}", silent.elapsed());
    rig.stop().await;
}
