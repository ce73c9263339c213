//! Every call that writes, repeated as a caller does whose answer was lost: the same answer, and nothing changes (Q10).

use super::machines::Redis;
use crate::histories::pair::Server;
use std::sync::Arc;
use tallystone_model::{QueueName, Shard};
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::*;
use tallystone_server::store::{RedisOptions, RedisStore};
use tallystone_tests::{Clock, TestQueue};
use tonic::transport::Channel;

const QUEUE: &str = "retries";

/// A server, its services on the wire, and direct access to its store.
struct Wire {
    queue: QueueClient<Channel>,
    admin: QueueAdminClient<Channel>,
    stored: TestQueue<RedisStore>,
    server: Server,
    _redis: Redis,
}

impl Wire {
    async fn start() -> Self {
        let redis = Redis::start().await;
        let server = Server::start(&redis.url()).await;
        let channel = Channel::from_shared(server.url()).expect("a good address").connect().await.expect("a server");
        let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
        let store = RedisStore::connect(options).await.expect("a durable Redis");
        let shard = Shard::first(&QueueName::parse("queue", QUEUE).expect("a valid name"));
        let stored = TestQueue { store: Arc::new(store), clock: Clock::new(), shard };
        let (queue, admin) = (QueueClient::new(channel.clone()), QueueAdminClient::new(channel));
        Wire { queue, admin, stored, server, _redis: redis }
    }

    async fn lease(&mut self, id: &str, request_id: &str) -> Lease {
        let request = DequeueRequest { request_id: request_id.to_owned(), ..dequeue(1) };
        let mut leases = self.queue.dequeue(request).await.expect("a Dequeue").into_inner().leases;
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0].id, id);
        leases.remove(0)
    }
}

/// Calls twice with the same request and gives the first answer.
macro_rules! twice {
    ($wire:ident.$service:ident.$method:ident($request:expr)) => {{
        let request = $request;
        let answer = $wire.$service.$method(request.clone()).await.expect(stringify!($method)).into_inner();
        let before = $wire.stored.snapshot().await;
        let again = $wire.$service.$method(request).await.expect(stringify!($method)).into_inner();
        assert_eq!(again, answer, "{} answers the same", stringify!($method));
        assert_eq!($wire.stored.snapshot().await, before, "{} again changes nothing", stringify!($method));
        answer
    }};
}

fn message(id: &str, priority: i64) -> NewMessage {
    NewMessage { id: id.to_owned(), priority, payload: "payload".into(), ..NewMessage::default() }
}

fn enqueue(messages: Vec<NewMessage>) -> EnqueueRequest {
    EnqueueRequest { queue: QUEUE.to_owned(), messages }
}

fn dequeue(limit: i32) -> DequeueRequest {
    DequeueRequest { queue: QUEUE.to_owned(), worker: "w".to_owned(), limit, ..DequeueRequest::default() }
}

fn lease_ref(lease: &Lease) -> LeaseRef {
    LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token, ..Default::default() }
}

fn release(lease: &Lease, delay_ms: i64) -> LeaseRelease {
    let LeaseRef { id, fencing_token, .. } = lease_ref(lease);
    LeaseRelease { id, fencing_token, delay_ms: Some(delay_ms), reason: "later".to_owned(), ..Default::default() }
}

fn cancel(id: &str, fencing_token: u64, force: bool) -> CancelRequest {
    let cancellation = Cancellation { id: id.to_owned(), fencing_token, force, reason: "not wanted".to_owned() };
    CancelRequest { queue: QUEUE.to_owned(), cancellations: vec![cancellation] }
}

/// The states that the items of an answer have come to.
fn states(results: &[TransitionResult]) -> Vec<State> {
    let state = |result: &TransitionResult| match &result.outcome {
        Some(transition_result::Outcome::Ok(transition)) => transition.state(),
        other => panic!("{other:?}"),
    };
    results.iter().map(state).collect()
}

#[tokio::test]
async fn q10_every_call_can_be_repeated() {
    let mut wire = Wire::start().await;
    let queue = || QUEUE.to_owned();

    let config = QueueConfig { lease_ms: Some(60_000), ..QueueConfig::default() };
    let created = twice!(wire.admin.create_queue(CreateQueueRequest { name: queue(), config: Some(config) }));
    assert_eq!(created.queue.unwrap_or_default().revision, 1);
    let config = QueueConfig { max_attempts: Some(7), ..QueueConfig::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["max_attempts".to_owned()] });
    let updated =
        twice!(wire.admin.update_queue(UpdateQueueRequest { name: queue(), config: Some(config), update_mask }));
    assert_eq!(updated.queue.unwrap_or_default().revision, 2);

    // Enqueue: a batch with a bad item, an invisible one, and the same id twice.
    let invisible = NewMessage { invisibility_ms: Some(600_000), ..message("invisible", 9) };
    let messages = vec![message("a", 1), message("", 1 << 40), message("b\n", 2), invisible, message("a", 1)];
    let named = messages.into_iter().filter(|message| !message.id.is_empty()).collect();
    let enqueued = twice!(wire.queue.enqueue(enqueue(named)));
    assert!(matches!(enqueued.results[1].outcome, Some(enqueue_result::Outcome::Error(_))), "{enqueued:?}");
    twice!(wire.queue.enqueue(enqueue(vec![message("b", 2), message("c", 3), message("d", 4), message("e", 5)])));
    let coalesced = |priority| enqueue(vec![NewMessage { coalesce: true, ..message("d", priority) }]);
    twice!(wire.queue.enqueue(coalesced(-4)));

    // Dequeue and everything that ends a lease.
    let request = DequeueRequest { request_id: "d and a".to_owned(), ..dequeue(2) };
    let leases = wire.queue.dequeue(request.clone()).await.expect("a Dequeue").into_inner().leases;
    let before = wire.stored.snapshot().await;
    let mut again = wire.queue.dequeue(request).await.expect("a Dequeue").into_inner().leases;
    assert_eq!(wire.stored.snapshot().await, before, "it changes nothing");
    // All is the same but what is left of the leases.
    for (again, first) in again.iter_mut().zip(&leases) {
        assert!((1..=first.left_ms).contains(&again.left_ms), "{again:?} {first:?}");
        again.left_ms = first.left_ms;
    }
    assert_eq!(leases, again);
    assert_eq!([leases[0].id.as_str(), leases[1].id.as_str()], ["d", "a"]);
    twice!(wire.queue.enqueue(coalesced(-4)));
    let LeaseRef { id, fencing_token, .. } = lease_ref(&leases[1]);
    let extension = LeaseExtension { id, fencing_token, lease_ms: Some(90_000) };
    let request_id = "extend".to_owned();
    twice!(wire.queue.extend_lease(ExtendLeaseRequest { queue: queue(), extensions: vec![extension], request_id }));
    let both = leases.iter().map(lease_ref).collect();
    let completed = twice!(wire.queue.complete(CompleteRequest { queue: queue(), leases: both }));
    assert_eq!(states(&completed.results), [State::Pending, State::Completed], "d was coalesced while it ran");

    let leases = [wire.lease("d", "1").await, wire.lease("b", "2").await, wire.lease("c", "3").await];
    let releases = vec![release(&leases[0], 0), release(&leases[1], 600_000)];
    let released = twice!(wire.queue.release(ReleaseRequest { queue: queue(), releases }));
    assert_eq!(states(&released.results), [State::Pending, State::Invisible]);
    let canceled = twice!(wire.queue.cancel(cancel("c", leases[2].fencing_token, false)));
    assert_eq!(states(&canceled.results), [State::Canceled]);
    let lease = wire.lease("d", "4").await;
    twice!(wire.queue.cancel(cancel("d", 0, true)));
    twice!(wire.queue.cancel(cancel("e", 0, false)));
    // The lease that the operator took away is lost, however often the call is repeated.
    for _ in 0..2 {
        let request = CompleteRequest { queue: queue(), leases: vec![lease_ref(&lease)] };
        let lost = wire.queue.complete(request).await.expect("a Complete").into_inner();
        let Some(transition_result::Outcome::Error(lost)) = &lost.results[0].outcome else { panic!("{lost:?}") };
        assert_eq!(lost.code, tonic::Code::FailedPrecondition as i32, "{lost:?}");
    }

    // The operator's.
    let redrive = RedriveRequest { queue: queue(), ids: vec!["c".to_owned(), "d".to_owned()] };
    assert_eq!(states(&twice!(wire.admin.redrive(redrive)).results), [State::Pending, State::Pending]);
    let (id, visible_at_ms) = ("invisible".to_owned(), Some(4_000_000_000_000));
    let update = UpdateMessageRequest { queue: queue(), id, priority: Some(-9), visible_at_ms };
    assert_eq!(twice!(wire.admin.update_message(update)).transition.unwrap_or_default().state(), State::Invisible);
    let id = "invisible".to_owned();
    let update = UpdateMessageRequest { queue: queue(), id, priority: None, visible_at_ms: Some(1) };
    assert_eq!(twice!(wire.admin.update_message(update)).transition.unwrap_or_default().state(), State::Pending);

    work_streams(&mut wire).await;

    // What these answer the second time says that there was nothing left to do.
    let purge = PurgeQueueRequest { name: queue(), include_running: true };
    let first = wire.admin.purge_queue(purge.clone()).await.expect("a PurgeQueue").into_inner();
    assert!(first.purged > 0 && !first.more, "{first:?}");
    let before = wire.stored.snapshot().await;
    let again = wire.admin.purge_queue(purge).await.expect("a PurgeQueue").into_inner();
    assert_eq!(again, PurgeQueueResponse { purged: 0, more: false });
    assert_eq!(wire.stored.snapshot().await, before);
    for force in [false, true] {
        let delete = DeleteQueueRequest { name: queue(), force };
        wire.admin.delete_queue(delete.clone()).await.expect("a DeleteQueue");
        wire.admin.delete_queue(delete).await.expect("the same");
        let unknown = DeleteQueueRequest { name: "unknown".to_owned(), force };
        let refused = wire.admin.delete_queue(unknown).await.expect_err("there never was one");
        assert_eq!(refused.code(), tonic::Code::NotFound);
    }

    drop((wire.queue, wire.admin, wire.stored));
    wire.server.stop().await;
}

/// The results of a broken Work stream are requested again on another.
async fn work_streams(wire: &mut Wire) {
    let start = WorkStart { queue: QUEUE.to_owned(), worker: "w".to_owned(), ..WorkStart::default() };
    let mut leases = Vec::new();
    {
        let first = WorkRequest { start: Some(start.clone()), credits: 2, ..WorkRequest::default() };
        let (requests, stream) = tokio::sync::mpsc::channel(4);
        requests.send(first).await.expect("room");
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let mut responses = wire.queue.work(stream).await.expect("a stream").into_inner();
        while leases.len() < 2 {
            leases.extend(responses.message().await.expect("a response").expect("no end").leases);
        }
    }
    let results = async |wire: &mut Wire| {
        let request = WorkRequest {
            start: Some(start.clone()),
            complete: vec![lease_ref(&leases[0])],
            release: vec![release(&leases[1], 0)],
            ..WorkRequest::default()
        };
        let responses = wire.queue.work(tokio_stream::iter([request])).await.expect("a stream");
        let (mut responses, mut results) = (responses.into_inner(), Vec::new());
        while let Some(response) = responses.message().await.expect("an orderly end") {
            results.extend(response.completed.into_iter().chain(response.released));
        }
        results.sort_by(|a, b| a.id.cmp(&b.id));
        results
    };
    let first = results(wire).await;
    assert_eq!(first.len(), 2);
    let before = wire.stored.snapshot().await;
    assert_eq!(results(wire).await, first);
    assert_eq!(wire.stored.snapshot().await, before);
}
