//! S1: names of queues that callers invent cost the server little.

use super::victim::{Victim, works};
use crate::system::program::SOON;
use futures::{StreamExt, stream};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tonic::Code;
use tonic::transport::Channel;

const FILES: u32 = 4_096;
const ABSENT: usize = 15_000;
const NEW: usize = 3_000;
/// Calls of the attack that wait for their answers.
const AT_ONCE: usize = 1_000;
/// What the attack may cost in memory.
const ABSENT_KIB_MAX: u64 = 100 * 1024;
/// What each new queue may cost in memory.
const NEW_KIB_MAX: u64 = 20;
const LANES: &str = "tallystone_lanes";

/// Calls of this many absent queues; each verb in turn.
async fn call_absent(calls: &QueueClient<Channel>, count: usize) {
    let call = async |n: usize| {
        let (mut calls, queue) = (calls.clone(), format!("absent-{n}"));
        let lease = pb::LeaseRef { id: "a".to_owned(), fencing_token: 1, ..Default::default() };
        let code = match n % 3 {
            0 => calls.complete(pb::CompleteRequest { queue, leases: vec![lease] }).await.err(),
            1 => {
                let pb::LeaseRef { id, fencing_token, .. } = lease;
                let releases = vec![pb::LeaseRelease { id, fencing_token, ..Default::default() }];
                calls.release(pb::ReleaseRequest { queue, releases }).await.err()
            }
            _ => {
                let worker = "w".to_owned();
                let request = pb::DequeueRequest { queue, worker, limit: 1, wait_ms: 60_000, ..Default::default() };
                calls.dequeue(request).await.err()
            }
        };
        assert_eq!(code.map(|status| status.code()), Some(Code::NotFound));
    };
    stream::iter(0..count).map(call).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_calls_of_absent_queues_leave_nothing() {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let calls = victim.calls().await;
    let before = victim.memory_kib();
    let (mut meanwhile, attack) = (0, call_absent(&calls, ABSENT));
    let mut attack = std::pin::pin!(attack);
    loop {
        let id = format!("meanwhile-{meanwhile}");
        tokio::select! {
            biased;
            () = &mut attack => break,
            () = works(&innocent, &id) => meanwhile += 1,
        }
    }
    let grown = victim.memory_kib().saturating_sub(before);
    assert!(meanwhile > 0, "the innocent caller is served");
    println!("{ABSENT} absent queues: {grown} KiB, {meanwhile} calls of another caller meanwhile");
    assert!(grown < ABSENT_KIB_MAX, "{grown} KiB for {ABSENT} names");
    victim.until(LANES, 1.0).await;
    // A queue that comes to exist is found at once.
    let message = tallystone_client::NewMessage::new("a", "payload");
    innocent.enqueue("absent-1", vec![message]).await.expect("an Enqueue");
    let found = innocent.dequeue(tallystone_client::Dequeue::new("absent-1")).await.expect("the queue");
    assert_eq!(found.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_new_queue_costs_little_memory() {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let enqueue = async |n: usize| {
        let message = tallystone_client::NewMessage::new("a", "payload");
        innocent.enqueue(&format!("new-{n}"), vec![message]).await.expect("an Enqueue");
    };
    stream::iter(0..NEW).map(enqueue).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    let each = victim.memory_kib().saturating_sub(before) / NEW as u64;
    println!("{each} KiB for each of {NEW} new queues");
    assert!(each < NEW_KIB_MAX, "{each} KiB for each of {NEW} new queues");
    works(&innocent, "after").await;
}

/// In one stream.
const SUBSCRIPTIONS: u32 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_subscriptions_of_absent_queues_leave_no_lanes() {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let (requests, receiver) = tokio::sync::mpsc::unbounded_channel();
    let send = |request| requests.send(request).expect("an open stream");
    for subscription in 1..=SUBSCRIPTIONS {
        let (queue, worker) = (format!("absent-{subscription}"), "w".to_owned());
        let start = Some(pb::WorkStart { queue, worker, ..Default::default() });
        send(pb::WorkRequest { subscription, start, ..Default::default() });
    }
    // Its answer says that all the others before it were handled.
    let last = SUBSCRIPTIONS;
    send(pb::WorkRequest { subscription: last, credits: 1, ..Default::default() });
    let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
    let mut responses = victim.calls().await.work(stream).await.expect("a stream").into_inner();
    let mut end = async || {
        let response = tokio::time::timeout(SOON, responses.message()).await.expect("in time").expect("no end of all");
        let response = response.expect("no end of all");
        let ended = response.ended.expect("an end of this one");
        assert_eq!(ended.code, Code::NotFound as i32, "{ended:?}");
        response.subscription
    };
    assert_eq!(end().await, last);
    let grown = victim.memory_kib().saturating_sub(before);
    println!("{SUBSCRIPTIONS} subscriptions of absent queues: {grown} KiB");
    assert!(grown < ABSENT_KIB_MAX / 4, "{grown} KiB for {SUBSCRIPTIONS} names");
    works(&innocent, "meanwhile").await;
    victim.until(LANES, 1.0).await;
    // With its first credit each finds that there is no such queue.
    for subscription in [1, 2, 9_999] {
        send(pb::WorkRequest { subscription, credits: 1, ..Default::default() });
        assert_eq!(end().await, subscription);
    }
    victim.until(LANES, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_the_subscriptions_of_a_server_are_bounded() {
    let victim = Victim::start("subscriptions_max = 3", FILES).await;
    works(&victim.innocent(), "before").await;
    for round in 0..2 {
        let start = |subscription| pb::WorkRequest {
            subscription,
            start: Some(pb::WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let (requests, receiver) = tokio::sync::mpsc::unbounded_channel();
        (1..=4).for_each(|subscription| requests.send(start(subscription)).expect("an open stream"));
        let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
        let mut responses = victim.calls().await.work(stream).await.expect("a stream").into_inner();
        let response = tokio::time::timeout(SOON, responses.message()).await.expect("in time").expect("no end of all");
        let response = response.expect("no end of all");
        let ended = response.ended.expect("an end of one");
        assert_eq!((response.subscription, ended.code), (4, Code::ResourceExhausted as i32), "{round}: {ended:?}");
        let refused = victim.metric("tallystone_waiters_refused_total{reason=\"subscriptions_max\"}").await;
        assert_eq!(refused, f64::from(round + 1));
        // Their places are free as soon as the stream has gone.
        drop((requests, responses));
        victim.until("tallystone_work_streams", 0.0).await;
    }
}
