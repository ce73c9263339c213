//! S1: names of queues that callers invent cost the server little.

use super::victim::{Victim, works};
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
