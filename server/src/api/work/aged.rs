//! Leases that wait for a client that does not read (Q11, Q23).

use super::subscription::Subscription;
use crate::engine::WorkEvents;
use crate::engine::tests::{Rig, queue, request};
use crate::testing::shard_of;
use std::time::Duration;
use tallystone_model::store::Cancellation;
use tallystone_model::{MessageId, Store};
use tallystone_proto::queue::v1 as pb;
use tokio::time::{advance, sleep};

/// A subscription without credits, and the events of its lane.
fn subscribe(rig: &Rig) -> (Subscription, WorkEvents) {
    let events = WorkEvents::new();
    let session = rig.engine.work(&queue("q"), request(0), false, events.sender(0)).unwrap();
    (Subscription::new(session, None), events)
}

/// Takes in the lease for one more credit.
async fn leased(subscription: &mut Subscription, events: &mut WorkEvents) {
    subscription.submit(pb::WorkRequest { credits: 1, ..Default::default() }).unwrap();
    let event = events.next().await.1;
    assert_eq!(event.leases.as_ref().map(|granted| granted.len()), Some(1));
    assert!(subscription.take_in(event).is_none());
}

#[tokio::test(start_paused = true)]
async fn q11_a_lease_that_waited_for_its_client_says_what_is_left_and_one_that_ended_is_not_sent() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a", "b"]).await;
    let (mut subscription, mut events) = subscribe(&rig);
    leased(&mut subscription, &mut events).await;
    advance(Duration::from_secs(10)).await;
    let response = subscription.response(true).unwrap();
    let left = |lease: &pb::Lease| (lease.attempt, lease.left_ms);
    assert_eq!(response.leases.iter().map(left).collect::<Vec<_>>(), [(1, 20_000)]);

    leased(&mut subscription, &mut events).await;
    advance(Duration::from_secs(30)).await;
    assert_eq!(subscription.response(true), None);
    // It is released, as far as it is one, and its credit stands for another lease.
    let leases = events.next().await.1.leases.unwrap().take();
    assert_eq!((leases[0].id.to_string(), leases[0].attempt), ("b".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn q11_a_lease_that_the_store_answers_late_says_what_is_left_and_one_that_may_have_ended_is_released() {
    let rig = Rig::with_queues(&["q"]).await;
    let (mut subscription, mut events) = subscribe(&rig);
    rig.enqueue("q", &["a", "b"]).await;
    let mut late = async |late: Duration| {
        rig.store.hung_shards.send_replace(1);
        subscription.submit(pb::WorkRequest { credits: 1, ..Default::default() }).unwrap();
        sleep(late).await;
        rig.store.hung_shards.send_replace(0);
        assert!(subscription.take_in(events.next().await.1).is_none());
        subscription.response(true)
    };
    let left = |response: pb::WorkResponse| {
        let left = |lease: &pb::Lease| (lease.id.clone(), lease.attempt, lease.leased_at_ms, lease.left_ms);
        response.leases.iter().map(left).collect::<Vec<_>>()
    };
    assert_eq!(late(Duration::from_secs(10)).await.map(left), Some(vec![("a".to_owned(), 1, 1_000_000, 20_000)]));
    assert_eq!(late(Duration::from_secs(30)).await.map(left), None);
    // Its credit stands for another lease.
    assert!(subscription.take_in(events.next().await.1).is_none());
    assert_eq!(subscription.response(true).map(left), Some(vec![("b".to_owned(), 1, 1_000_000, 30_000)]));
}

#[tokio::test(start_paused = true)]
async fn q23_a_lease_that_is_revoked_before_its_client_reads_is_not_sent_and_its_credit_returns() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a"]).await;
    let (mut subscription, mut events) = subscribe(&rig);
    leased(&mut subscription, &mut events).await;
    let id = MessageId::parse("id", "a").unwrap();
    let cancellation = Cancellation { id, fencing_token: 0, force: true, reason: String::new() };
    rig.store.oracle.cancel(&shard_of("q"), vec![cancellation]).await.unwrap();
    assert!(subscription.take_in(events.next().await.1).is_none());
    assert_eq!(subscription.response(true), None);
    rig.enqueue("q", &["b"]).await;
    let leases = events.next().await.1.leases.unwrap().take();
    assert_eq!(leases[0].id.to_string(), "b");
}
