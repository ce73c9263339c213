//! S1: callers that wait are bounded for each queue, by number and by distinct filters, and for the server by number.

use super::victim::{Victim, works};
use crate::system::program::SOON;
use std::time::Duration;
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const FILES: u32 = 4_096;
const WAITING: &str = "tallystone_waiting_dequeues";
const REFUSED: &str = "tallystone_waiters_refused_total";

fn filter(value: &str) -> Vec<pb::Filter> {
    vec![pb::Filter { equals: [("k".to_owned(), value.to_owned())].into() }]
}

fn dequeue(wait_ms: i64, filters: Vec<pb::Filter>) -> pb::DequeueRequest {
    let (queue, worker) = ("q".to_owned(), "w".to_owned());
    pb::DequeueRequest { queue, worker, limit: 1, wait_ms, filters, ..Default::default() }
}

/// A Dequeue that waits for a minute.
fn wait(calls: &QueueClient<Channel>, filters: Vec<pb::Filter>) -> JoinHandle<Result<usize, Status>> {
    let mut calls = calls.clone();
    let request = dequeue(60_000, filters);
    tokio::spawn(async move { calls.dequeue(request).await.map(|response| response.into_inner().leases.len()) })
}

/// A refused waiter learns why, and when to call again.
fn is_refused(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.get_details_error_info().expect("details").reason, "TOO_MANY_WAITERS");
    assert!(status.get_details_retry_info().and_then(|info| info.retry_delay).is_some_and(|delay| !delay.is_zero()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_distinct_filters_of_waiting_callers_are_bounded() {
    let victim = Victim::start("queue_filters_max = 3", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let drained = innocent.dequeue(tallystone_client::Dequeue::new("q")).await.expect("a lease");
    assert_eq!(drained.len(), 1);
    let calls = victim.calls().await;
    let mut kept: Vec<_> = (0..3).map(|n| wait(&calls, filter(&n.to_string()))).collect();
    victim.until(WAITING, 3.0).await;
    is_refused(&wait(&calls, filter("new")).await.unwrap().expect_err("a fourth filter"));
    let refused = victim.metric(&format!("{REFUSED}{{reason=\"queue_filters_max\"}}")).await;
    assert_eq!((refused, victim.metric(REFUSED).await), (1.0, 1.0));
    // A filter that others wait for costs nothing more, and neither does none.
    kept.push(wait(&calls, filter("1")));
    kept.push(wait(&calls, Vec::new()));
    victim.until(WAITING, 5.0).await;
    // A call that need not wait is served, whatever its filter.
    let message = tallystone_client::NewMessage::new("there", "payload").metadata("k", "new");
    innocent.enqueue("q", vec![message]).await.expect("an Enqueue");
    victim.until(WAITING, 4.0).await;
    for waiter in kept {
        waiter.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_waiting_callers_are_bounded_and_those_that_left_make_room() {
    let victim = Victim::start("queue_waiters_max = 4", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    assert_eq!(innocent.dequeue(tallystone_client::Dequeue::new("q")).await.expect("a lease").len(), 1);
    let calls = victim.calls().await;
    let kept: Vec<_> = (0..4).map(|_| wait(&calls, Vec::new())).collect();
    victim.until(WAITING, 4.0).await;
    is_refused(&wait(&calls, Vec::new()).await.unwrap().expect_err("a fifth waiter"));
    // A subscription waits too.
    let (requests, receiver) = tokio::sync::mpsc::unbounded_channel();
    let start = pb::WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..Default::default() };
    requests.send(pb::WorkRequest { start: Some(start), credits: 1, ..Default::default() }).expect("a stream");
    let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
    let mut responses = calls.clone().work(stream).await.expect("a stream").into_inner();
    is_refused(&responses.message().await.expect_err("a sixth waiter"));
    let refused = victim.metric(&format!("{REFUSED}{{reason=\"queue_waiters_max\"}}")).await;
    assert_eq!((refused, victim.metric(REFUSED).await), (2.0, 2.0));
    // Those that wait are served as before.
    works(&innocent, "for-one").await;
    victim.until(WAITING, 3.0).await;
    let again = wait(&calls, Vec::new());
    victim.until(WAITING, 4.0).await;
    // A caller that has disconnected makes room for another.
    for waiter in kept {
        waiter.abort();
    }
    again.abort();
    let give_up_at = Instant::now() + SOON;
    while let Err(status) = calls.clone().dequeue(dequeue(1, Vec::new())).await {
        is_refused(&status);
        assert!(Instant::now() < give_up_at, "the others have left");
    }
}

/// The bounds hold for all queues of a server together, so the test also refuses callers of another, empty queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_callers_that_wait_at_one_server_are_bounded_and_what_is_runnable_is_served() {
    let victim = Victim::start("waiting_dequeues_max = 2\nsubscriptions_max = 1", FILES).await;
    let innocent = victim.innocent();
    for queue in ["q", "other"] {
        innocent.create_queue(queue, tallystone_client::QueueConfig::simple()).await.expect("a queue");
    }
    let calls = victim.calls().await;
    let kept: Vec<_> = (0..2).map(|_| wait(&calls, Vec::new())).collect();
    victim.until(WAITING, 2.0).await;
    let elsewhere = || pb::DequeueRequest { queue: "other".to_owned(), ..dequeue(60_000, Vec::new()) };
    is_refused(&calls.clone().dequeue(elsewhere()).await.expect_err("a third waiter"));
    let of_reason = |reason: &str| format!("{REFUSED}{{reason=\"{reason}\"}}");
    let refused = victim.metric(&of_reason("waiting_dequeues_max")).await;
    assert_eq!((refused, victim.metric(REFUSED).await), (1.0, 1.0));
    // A call that finds a message need not wait.
    let give = async |id: &str| {
        let message = tallystone_client::NewMessage::new(id, "payload");
        assert!(innocent.enqueue("other", vec![message]).await.expect("an Enqueue")[0].is_ok());
    };
    give("for-a-call").await;
    let served = calls.clone().dequeue(elsewhere()).await.expect("what is runnable").into_inner();
    assert_eq!(served.leases.len(), 1);
    // Subscriptions are counted separately.
    let subscribe = async || {
        let (requests, receiver) = tokio::sync::mpsc::unbounded_channel();
        let start = pb::WorkStart { queue: "other".to_owned(), worker: "w".to_owned(), ..Default::default() };
        requests.send(pb::WorkRequest { start: Some(start), credits: 1, ..Default::default() }).expect("a stream");
        let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
        (calls.clone().work(stream).await.expect("a stream").into_inner(), requests)
    };
    let (mut first, _first_requests) = subscribe().await;
    give("for-a-subscription").await;
    // It has its place once it has got a lease.
    first.message().await.expect("an open stream").expect("a lease");
    let (mut second, _second_requests) = subscribe().await;
    is_refused(&second.message().await.expect_err("a second subscription"));
    assert_eq!(victim.metric(&of_reason("subscriptions_max")).await, 1.0);
    // A caller that has disconnected makes room for another.
    kept[0].abort();
    let give_up_at = Instant::now() + SOON;
    while let Err(status) = calls.clone().dequeue(dequeue(1, Vec::new())).await {
        is_refused(&status);
        assert!(Instant::now() < give_up_at, "the other one has left");
    }
    kept[1].abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_long_polls_with_distinct_filters_cost_an_enqueue_little() {
    const FILTERS: usize = 2_000;
    // The default of `queue_filters_max`.
    const WAIT: usize = 256;
    const ROUNDS: u32 = 60;
    // What an Enqueue may take of the processor, in the server and in Redis together, while others wait. It is the same on a
    // machine that does much else, unlike the time of a call.
    const CPU_MAX: Duration = Duration::from_millis(10);
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "first").await;
    assert_eq!(innocent.dequeue(tallystone_client::Dequeue::new("q")).await.expect("a lease").len(), 1);
    let spent = async || victim.cpu() + victim.redis_cpu().await;
    let cpu_of_each = async |name: &str| {
        let before = spent().await;
        for round in 0..ROUNDS {
            works(&innocent, &format!("{name}-{round}")).await;
        }
        (spent().await - before) / ROUNDS
    };
    let before = cpu_of_each("before").await;
    let calls = victim.calls().await;
    let attack: Vec<_> = (0..FILTERS).map(|n| wait(&calls, filter(&n.to_string()))).collect();
    victim.until(WAITING, WAIT as f64).await;
    victim.until(REFUSED, (FILTERS - WAIT) as f64).await;
    let during = cpu_of_each("during").await;
    println!("an Enqueue took {during:?} of the processor during the attack, {before:?} before");
    assert!(during < CPU_MAX, "an Enqueue took {during:?} of the processor during the attack, {before:?} before");
    attack.iter().for_each(JoinHandle::abort);
}
