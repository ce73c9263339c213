//! The loop of a worker step by step, on streams within the test.

use super::*;
use crate::client::Client;
use crate::shared_streams::SharedResponses;
use crate::worker::Worker;
use tokio::sync::mpsc;
use tokio::time::advance;

type Endless = std::future::Pending<Result<(), Failure>>;
type EndlessLoop<'w> = WorkerLoop<'w, fn(Lease) -> Endless>;

fn endless(_: Lease) -> Endless {
    std::future::pending()
}

/// A worker of a server that is not there.
fn worker() -> Worker {
    let client = Client::builder("http://127.0.0.1:1").connect_lazy().expect("an address");
    Worker::new(client, "q")
}

fn looped(worker: &Worker) -> EndlessLoop<'_> {
    let handler: fn(Lease) -> Endless = endless;
    WorkerLoop::new(&worker.settings, handler)
}

/// A stream opens. Returns what is sent on it.
fn open(running: &mut EndlessLoop<'_>) -> mpsc::Receiver<wire::WorkRequest> {
    let (requests, sent) = mpsc::channel(1);
    let responses = Responses::Shared(SharedResponses::without_stream());
    let stream = Stream { requests: Requests::Own(requests), responses };
    running.on_event(StreamEvent::Opened(Ok(stream))).expect("an open stream");
    sent
}

/// Sends the next request.
async fn send(running: &mut EndlessLoop<'_>, sent: &mut mpsc::Receiver<wire::WorkRequest>) -> wire::WorkRequest {
    let room = room(&running.requests).await;
    running.send(room);
    sent.recv().await.expect("a request")
}

/// The loop of a worker whose first stream has its credits, and what is sent on that stream.
async fn begun(worker: &Worker) -> (EndlessLoop<'_>, mpsc::Receiver<wire::WorkRequest>) {
    let mut running = looped(worker);
    let mut sent = open(&mut running);
    assert_eq!(send(&mut running, &mut sent).await.credits, worker.settings.concurrency);
    (running, sent)
}

fn respond(running: &mut EndlessLoop<'_>, response: wire::WorkResponse) {
    running.on_event(StreamEvent::Response(Ok(response))).expect("a good response");
}

/// A lease of 30 s arrives, of which so much is left.
fn lease(running: &mut EndlessLoop<'_>, id: &str, left_ms: i64) {
    let (leased_at_ms, lease_expires_at_ms) = (1_000_000, 1_030_000);
    let (id, fencing_token) = (id.to_owned(), 1);
    let lease = wire::Lease { id, fencing_token, leased_at_ms, lease_expires_at_ms, left_ms, ..wire::Lease::default() };
    respond(running, wire::WorkResponse { leases: vec![lease], ..wire::WorkResponse::default() });
}

/// The stream ends.
fn end(running: &mut EndlessLoop<'_>) {
    let ended = Error::Protocol("the server ended the stream".to_owned());
    running.on_event(StreamEvent::Response(Err(ended))).expect("no final error");
}

#[tokio::test(start_paused = true)]
async fn q7_a_stopping_worker_withdraws_its_credits_and_starts_no_handler() {
    let worker = worker().concurrency(3);
    let (mut running, mut sent) = begun(&worker).await;
    lease(&mut running, "runs", 30_000);
    running.stop();
    assert_eq!(sent.recv().await, None, "the worker closes the stream, and its two credits end with it");
    lease(&mut running, "on its way", 30_000);
    assert_eq!(running.handlers.len(), 1);
    end(&mut running);

    let mut sent = open(&mut running);
    let request = send(&mut running, &mut sent).await;
    let released: Vec<_> = request.release.iter().map(|release| (release.id.as_str(), release.delay_ms)).collect();
    assert_eq!((request.credits, released), (0, vec![("on its way", Some(0))]));
    let transition = wire::Transition { state: wire::State::Pending.into(), version: 2 };
    let outcome = Some(wire::transition_result::Outcome::Ok(transition));
    let result = wire::TransitionResult { id: "on its way".to_owned(), outcome };
    respond(&mut running, wire::WorkResponse { released: vec![result], ..wire::WorkResponse::default() });
    assert!(!running.has_something_to_send() && !running.is_done(), "the handler continues");
    let stats = worker.stats();
    assert_eq!((stats.leased, stats.released, stats.lost, stats.reconnects), (2, 1, 0, 0));

    // Nothing else prolongs the stop.
    running.handlers.abort_all();
    while let Some(ended) = running.handlers.join_next_with_id().await {
        running.held.remove(ended.map_or_else(|error| error.id(), |(task, _)| task));
    }
    assert!(running.is_done());
}

#[tokio::test(start_paused = true)]
async fn q7_a_stopping_worker_with_release_on_close_releases_no_lease_that_would_come_back() {
    let worker = worker().concurrency(3).release_on_close(true);
    let (mut running, _sent) = begun(&worker).await;
    lease(&mut running, "runs", 30_000);
    running.stop();
    // A closed stream would lose the lease of the handler.
    assert!(running.requests.is_some());
    lease(&mut running, "stays", 30_000);
    assert!(running.outgoing.is_settled(), "a credit is left, for which the server would lease it again");
    lease(&mut running, "last", 30_000);
    let released: Vec<_> = running.outgoing.releases.iter().map(|release| release.lease.id.as_str()).collect();
    assert_eq!((released, running.handlers.len()), (vec!["last"], 1));
}

#[tokio::test(start_paused = true)]
async fn q11_the_times_of_a_lease_give_its_whole_length() {
    let worker = worker();
    let (mut running, mut sent) = begun(&worker).await;
    lease(&mut running, "late", 20_000);
    let start = Instant::now();
    assert_eq!(running.held.next_due(), start, "a third has passed");
    running.on_timer(start);
    assert_eq!(send(&mut running, &mut sent).await.extend.len(), 1);
    let extended = wire::LeaseExtended { lease_expires_at_ms: 1_040_000 };
    let outcome = Some(wire::lease_extension_result::Outcome::Ok(extended));
    let result = wire::LeaseExtensionResult { id: "late".to_owned(), outcome };
    respond(&mut running, wire::WorkResponse { extended: vec![result], ..wire::WorkResponse::default() });
    assert_eq!(running.held.next_due(), start + Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn q11_an_extension_that_was_not_sent_is_requested_on_the_next_stream() {
    let worker = worker();
    let (mut running, _sent) = begun(&worker).await;
    lease(&mut running, "long", 30_000);
    advance(Duration::from_secs(10)).await;
    running.on_timer(Instant::now());
    assert_eq!(running.outgoing.extends.len(), 1);
    end(&mut running);
    let mut sent = open(&mut running);
    running.on_timer(Instant::now());
    assert_eq!(send(&mut running, &mut sent).await.extend.len(), 1);
}

#[tokio::test]
async fn a_grace_may_be_as_long_as_its_type_allows() {
    let client = worker().settings.client.with_call_timeout(Duration::MAX);
    let worker = Worker::new(client, "q").grace(Duration::MAX);
    let stats = worker.run_until(std::future::ready(()), endless).await.expect("a stop");
    assert_eq!(stats.leased, 0);
}
