//! A stream that closes while its worker's calls are under way (Q7).

use super::subscription::Subscription;
use crate::engine::WorkEvents;
use crate::engine::tests::{Rig, queue, request};
use crate::testing::shard_of;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tallystone_model::Store;
use tallystone_model::store::Depth;
use tallystone_proto::queue::v1 as pb;
use tokio::time::sleep;

/// More than one step of a large flush, and no more than one flush.
const MESSAGES: usize = 100;

/// A subscription that releases its leases when it ends, with all messages of the queue: its client has received them.
async fn with_leases(rig: &Rig, events: &mut WorkEvents) -> (Subscription, Vec<pb::LeaseRef>) {
    let ids: Vec<String> = (0..MESSAGES).map(|n| format!("m{n}")).collect();
    rig.enqueue("q", &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let session = rig.engine.work(&queue("q"), request(0), true, events.sender(0)).unwrap();
    let mut subscription = Subscription::new(session, None);
    subscription.submit(pb::WorkRequest { credits: MESSAGES as u32, ..Default::default() }).unwrap();
    let mut leases = Vec::new();
    while leases.len() < MESSAGES {
        assert!(subscription.take_in(events.next().await.1).is_none());
        let received = subscription.response(true).into_iter().flat_map(|response| response.leases);
        leases.extend(received.map(|lease| pb::LeaseRef {
            id: lease.id,
            fencing_token: lease.fencing_token,
            ..Default::default()
        }));
    }
    (subscription, leases)
}

/// What the queue has once all that was sent has been executed.
async fn depth(rig: &Rig) -> Depth {
    sleep(Duration::from_secs(1)).await;
    rig.store.oracle.depth(&shard_of("q"), None).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn q7_a_stream_that_closes_releases_nothing_that_its_worker_has_completed() {
    let rig = Rig::with_queues(&["q"]).await;
    let mut events = WorkEvents::new();
    let (mut subscription, leases) = with_leases(&rig, &mut events).await;
    // Small flushes elsewhere: a large one is sent in steps.
    rig.store.oracle.notify_light_flow(&shard_of("q"), "another queue").await.unwrap();
    rig.store.exit.send_replace(false);
    subscription.submit(pb::WorkRequest { complete: leases, ..Default::default() }).unwrap();
    drop(subscription);
    rig.store.called("complete", 1).await;
    // The first step of each verb has been executed, and its answer is under way.
    sleep(Duration::from_millis(1)).await;
    rig.store.exit.send_replace(true);
    let depth = depth(&rig).await;
    assert_eq!((depth.completed, depth.pending, depth.running), (MESSAGES as u64, 0, 0));
    assert!(rig.store.calls("complete") > 1, "in steps");
}

#[tokio::test(start_paused = true)]
async fn q7_a_stream_that_closes_releases_what_was_not_completed() {
    let rig = Rig::with_queues(&["q"]).await;
    let mut events = WorkEvents::new();
    let (mut subscription, mut leases) = with_leases(&rig, &mut events).await;
    let completed = leases.split_off(MESSAGES / 2);
    subscription.submit(pb::WorkRequest { complete: completed, ..Default::default() }).unwrap();
    assert!(subscription.take_in(events.next().await.1).is_none());
    rig.store.away.store(true, Ordering::SeqCst);
    subscription.submit(pb::WorkRequest { complete: leases, ..Default::default() }).unwrap();
    assert!(subscription.take_in(events.next().await.1).is_none());
    assert_eq!(subscription.response(true).map(|response| response.completed.len()), Some(MESSAGES));
    rig.store.away.store(false, Ordering::SeqCst);
    drop(subscription);
    let depth = depth(&rig).await;
    assert_eq!((depth.completed, depth.pending, depth.running), (MESSAGES as u64 / 2, MESSAGES as u64 / 2, 0));
}
