//! More calls than the store takes, because it hangs (O8): what waits is bounded, what is refused says when to retry, and what
//! has no caller any more gives its room back.

use super::machines::{Redis, Server};
use crate::counting::overload::retry_delay;
use crate::system::program::{SOON, until};
use futures::future::join_all;
use nix::sys::signal::Signal;
use std::time::Duration;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::*;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

const QUEUE: &str = "overload";
const CALLS: usize = 100;
/// Of one call.
const MESSAGES: usize = 400;
const PAYLOAD_BYTES: usize = 1_024;
/// `server.waiting_items_max`.
const WAITING_MAX: usize = 10_000;
/// `server.waiting_bytes_max`.
const WAITING_BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// The gauges of the calls of workers, and of the other calls.
const LEASES: &str = "{kind=\"leases\"}";
const OTHERS: &str = "{kind=\"others\"}";
/// Two flushes are under way at once; each has one whole call.
const SENT_MAX: usize = 2 * MESSAGES;
/// How long the callers wait.
const DEADLINE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);

/// One server and its Redis.
struct Machine {
    redis: Redis,
    server: Server,
    channel: Channel,
    _dir: TempDir,
}

impl Machine {
    async fn start(more: &str) -> Machine {
        let dir = TempDir::new().expect("a temporary folder");
        let config = dir.path().join("tallystone.toml");
        let bounds = format!("[server]\nwaiting_items_max = {WAITING_MAX}\n{more}");
        std::fs::write(&config, bounds).expect("a file");
        let redis = Redis::start().await;
        let server = Server::start(redis.url(), &config).await;
        let channel = Channel::from_shared(server.url()).expect("an address").connect().await.expect("a server");
        let request = CreateQueueRequest { name: QUEUE.to_owned(), config: None };
        QueueAdminClient::new(channel.clone()).create_queue(request).await.expect("a new queue");
        Machine { redis, server, channel, _dir: dir }
    }

    fn client(&self) -> QueueClient<Channel> {
        QueueClient::new(self.channel.clone())
    }

    /// New messages that wait.
    async fn waiting(&self) -> usize {
        self.gauge("tallystone_waiting_messages").await
    }

    async fn gauge(&self, name: &str) -> usize {
        let page = self.server.metrics().await;
        let of_line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let value = page.lines().find_map(of_line).expect("a gauge");
        value.parse::<f64>().expect("a number") as usize
    }

    /// Waits until no more than this number of items of such calls waits.
    async fn until_waiting(&self, kind: &str, max: usize) {
        let name = format!("tallystone_waiting_call_items{kind}");
        until(&format!("what has no caller is gone: {kind}"), async || self.gauge(&name).await <= max).await;
    }

    /// The refusal of one call that the store does not answer.
    async fn unanswered(&self, verb: Verb) -> Status {
        fn within<T>(message: T) -> Request<T> {
            let mut request = Request::new(message);
            request.set_timeout(DEADLINE);
            request
        }
        let (mut client, mut admin) = (self.client(), QueueAdminClient::new(self.channel.clone()));
        let (queue, fencing_token) = (QUEUE.to_owned(), 1);
        let ids = (0..MESSAGES).map(|number| format!("m {number}"));
        let answer = match verb {
            Verb::Complete => {
                let leases = ids.map(|id| LeaseRef { id, fencing_token, ..Default::default() }).collect();
                client.complete(within(CompleteRequest { queue, leases })).await.map(drop)
            }
            Verb::Release => {
                let releases = ids.map(|id| LeaseRelease { id, fencing_token, ..Default::default() }).collect();
                client.release(within(ReleaseRequest { queue, releases })).await.map(drop)
            }
            Verb::ExtendLease => {
                let extensions = ids.map(|id| LeaseExtension { id, fencing_token, ..Default::default() }).collect();
                let request = ExtendLeaseRequest { queue, extensions, request_id: String::new() };
                client.extend_lease(within(request)).await.map(drop)
            }
            Verb::Cancel => {
                let cancellations = ids.map(|id| Cancellation { id, ..Default::default() }).collect();
                client.cancel(within(CancelRequest { queue, cancellations })).await.map(drop)
            }
            Verb::Redrive => admin.redrive(within(RedriveRequest { queue, ids: ids.collect() })).await.map(drop),
            Verb::Dequeue => {
                let pair = |number: usize, filter| (format!("key{number}"), format!("{filter:0>255}"));
                let filter = |filter: usize| Filter { equals: (0..4).map(|number| pair(number, filter)).collect() };
                let (worker, filters) = ("w".to_owned(), (0..16).map(filter).collect());
                let request = DequeueRequest { queue, worker, limit: 1, filters, ..Default::default() };
                client.dequeue(within(request)).await.map(drop)
            }
        };
        answer.expect_err("the store does not answer meanwhile")
    }

    async fn depth(&self) -> u64 {
        let request = DepthRequest { queue: QUEUE.to_owned(), filter: None };
        let answer = QueueAdminClient::new(self.channel.clone()).depth(request).await.expect("a depth");
        answer.into_inner().counts.expect("counts").pending
    }

    /// Sends a call until it is taken.
    async fn until_taken(&self, request: EnqueueRequest) {
        let give_up_at = Instant::now() + SOON;
        loop {
            match self.client().enqueue(request.clone()).await {
                Ok(answer) => {
                    let is_ok = |result: &EnqueueResult| matches!(result.outcome, Some(enqueue_result::Outcome::Ok(_)));
                    assert!(answer.into_inner().results.iter().all(is_ok));
                    return;
                }
                // The connection to Redis may be a new one after it stood still.
                Err(status) if status.code() == Code::Unavailable => sleep(POLL).await,
                Err(status) => sleep(retry_delay(&status)).await,
            }
            assert!(Instant::now() < give_up_at, "it is refused again and again");
        }
    }
}

/// The calls that are no Enqueues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Complete,
    Release,
    ExtendLease,
    Cancel,
    Redrive,
    Dequeue,
}

fn messages(call: usize) -> EnqueueRequest {
    let message = |number: usize| NewMessage {
        id: format!("{call} {number}"),
        payload: vec![b'x'; PAYLOAD_BYTES].into(),
        ..NewMessage::default()
    };
    EnqueueRequest { queue: QUEUE.to_owned(), messages: (0..MESSAGES).map(message).collect() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o8_new_messages_wait_within_bounds_while_the_store_stands_still() {
    let machine = Machine::start("").await;
    let requests: Vec<EnqueueRequest> = (0..CALLS).map(messages).collect();

    machine.redis.signal(Signal::SIGSTOP);
    let answers = join_all(requests.iter().map(async |messages| {
        let mut request = Request::new(messages.clone());
        request.set_timeout(DEADLINE);
        machine.client().enqueue(request).await.expect_err("no message is stored meanwhile")
    }));
    let is_refused = |status: &Status| status.code() == Code::ResourceExhausted;
    let (refused, late): (Vec<Status>, Vec<Status>) = answers.await.into_iter().partition(is_refused);
    println!("{} refused, {} waited in vain", refused.len(), late.len());
    for status in &refused {
        let _ = retry_delay(status);
    }
    // A call that the store did not answer in time gave its room to another one.
    let unanswered = late.iter().filter(|status| status.code() == Code::Unavailable).count();
    assert!(late.len() - unanswered <= WAITING_MAX / MESSAGES, "{} calls waited, {unanswered} sent", late.len());
    assert!(!refused.is_empty());
    // Their callers have gone; only what was sent is there.
    until("what has no caller is gone", async || machine.waiting().await <= SENT_MAX).await;

    machine.redis.signal(Signal::SIGCONT);
    // Each is there once, whether it was stored before or not.
    join_all(requests.into_iter().map(|messages| machine.until_taken(messages))).await;
    assert_eq!(machine.depth().await, (CALLS * MESSAGES) as u64);
    assert_eq!(machine.waiting().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o8_the_calls_of_every_verb_wait_within_bounds_while_the_store_stands_still() {
    let machine = Machine::start(&format!("waiting_bytes_max = {WAITING_BYTES_MAX}\n")).await;
    machine.redis.signal(Signal::SIGSTOP);
    for (kind, verbs) in [
        (LEASES, [Verb::Complete, Verb::Release, Verb::ExtendLease]),
        (OTHERS, [Verb::Cancel, Verb::Redrive, Verb::Dequeue]),
    ] {
        // A Dequeue has one item, and about 17 KB of filters.
        let calls_of = |verb| if verb == Verb::Dequeue { 5 * CALLS } else { CALLS };
        let calls = verbs.into_iter().flat_map(|verb| (0..calls_of(verb)).map(move |_| verb));
        let answers = join_all(calls.map(async |verb| (verb, machine.unanswered(verb).await)));
        let (answers, bytes) =
            tokio::join!(answers, async { machine.gauge(&format!("tallystone_waiting_call_bytes{kind}")).await });
        assert!(bytes <= WAITING_BYTES_MAX, "{bytes} bytes wait: {kind}");
        let is_refused = |(_, status): &(Verb, Status)| status.code() == Code::ResourceExhausted;
        let (refused, late): (Vec<_>, Vec<_>) = answers.into_iter().partition(is_refused);
        println!("{kind}: {} refused, {} waited in vain", refused.len(), late.len());
        for verb in verbs {
            assert!(refused.iter().any(|(of, _)| *of == verb), "{verb:?}");
        }
        for (_, status) in &refused {
            let _ = retry_delay(status);
        }
        let batches = late.iter().filter(|(verb, _)| *verb != Verb::Dequeue).count();
        assert!(batches <= WAITING_MAX / MESSAGES, "{batches} calls waited");
        // Their callers have gone; only what was sent is there: two flushes, each with a whole call of each verb.
        machine.until_waiting(kind, verbs.len() * SENT_MAX).await;
    }
    machine.redis.signal(Signal::SIGCONT);
    machine.until_taken(messages(0)).await;
    machine.until_waiting(LEASES, 0).await;
    machine.until_waiting(OTHERS, 0).await;
}
