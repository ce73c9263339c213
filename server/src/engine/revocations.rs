//! Revocations that overtake the reply of the Dequeue that gives their lease (Q23).

use super::tests::{HOUR, Rig, id_of, queue, request};
use super::*;
use crate::testing::shard_of;
use std::time::Duration;
use tallystone_model::store::LeaseRef;

impl Rig {
    /// Cancels a running message by force, as through another server. Its lane has taken the notification in.
    async fn revoked(&self, id: &str) {
        let cancellation = Cancellation { id: id_of(id), fencing_token: 0, force: true, reason: String::new() };
        let canceled = self.store.oracle.cancel(&shard_of("q"), vec![cancellation]).await.unwrap();
        assert!(canceled[0].is_ok(), "{canceled:?}");
        settled().await;
    }

    fn worker(&self, events: &WorkEvents, number: u32) -> WorkSession {
        let mut session = self.engine.work(&queue("q"), request(0), true, events.sender(number)).unwrap();
        session.submit(Submission { credits: 1, ..Submission::default() });
        session
    }
}

/// Lets all tasks run: this clock does not advance while one can.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// The next lease, and the number of its subscription.
async fn next_lease(events: &mut WorkEvents) -> (u32, MessageId) {
    loop {
        let (number, event) = events.next().await;
        if let Some(granted) = event.leases {
            return (number, granted.take().remove(0).id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn q23_a_lease_that_was_revoked_before_its_reply_came_is_not_delivered_and_its_credit_returns() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a"]).await;
    let mut events = WorkEvents::new();
    rig.store.exit.send_replace(false);
    let _session = rig.worker(&events, 0);
    rig.store.called("dequeue", 1).await;
    settled().await;
    rig.revoked("a").await;
    rig.store.exit.send_replace(true);
    settled().await;
    rig.enqueue("q", &["b"]).await;
    assert_eq!(next_lease(&mut events).await, (0, id_of("b")));
}

#[tokio::test(start_paused = true)]
async fn q23_a_revocation_waits_for_the_flush_that_gives_its_lease() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a", "b"]).await;
    let mut events = WorkEvents::new();
    rig.store.exit.send_replace(false);
    let mut sessions = Vec::new();
    for number in 0..2 {
        sessions.push(rig.worker(&events, number));
        rig.store.called("dequeue", u64::from(number) + 1).await;
        settled().await;
    }
    // The flush before is settled first, and forgets nothing of it.
    rig.revoked("b").await;
    rig.store.exit.send_replace(true);
    assert_eq!(next_lease(&mut events).await, (0, id_of("a")));
    settled().await;
    rig.enqueue("q", &["c"]).await;
    assert_eq!(next_lease(&mut events).await, (1, id_of("c")));
}

#[tokio::test(start_paused = true)]
async fn q23_a_unary_dequeue_waits_on_if_its_only_lease_was_revoked() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a"]).await;
    rig.store.exit.send_replace(false);
    let waiting = rig.wait("q", HOUR);
    rig.store.called("dequeue", 1).await;
    settled().await;
    rig.revoked("a").await;
    rig.store.exit.send_replace(true);
    settled().await;
    rig.enqueue("q", &["b"]).await;
    assert_eq!(waiting.await.unwrap().unwrap()[0].id, id_of("b"));
}

#[tokio::test(start_paused = true)]
async fn q23_a_revocation_is_an_event_for_the_subscription_that_has_the_lease_alone() {
    const EACH: usize = 1_000;
    let rig = Rig::with_queues(&["q"]).await;
    let ids: Vec<String> = (0..EACH).map(|n| format!("m{n}")).collect();
    rig.enqueue("q", &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let leases = rig.engine.dequeue(&queue("q"), request(EACH), 0, Instant::now()).await.unwrap();
    assert_eq!(leases.len(), EACH);
    let mut events = WorkEvents::new();
    let _sessions: Vec<WorkSession> = (0..EACH as u32).map(|number| rig.worker(&events, number)).collect();
    settled().await;
    let cancellation =
        |id: &String| Cancellation { id: id_of(id), fencing_token: 0, force: true, reason: String::new() };
    let canceled = rig.store.oracle.cancel(&shard_of("q"), ids.iter().map(cancellation).collect()).await.unwrap();
    assert!(canceled.iter().all(Result::is_ok));
    settled().await;
    assert!(events.try_next().is_none(), "no subscription has one of these leases");
    rig.enqueue("q", &["own"]).await;
    let (number, _) = next_lease(&mut events).await;
    rig.revoked("own").await;
    let (notified, event) = events.try_next().expect("a revocation");
    assert_eq!((notified, event.revoked.len(), event.revoked[0].id.clone()), (number, 1, id_of("own")));
    assert!(events.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn q23_a_lease_that_its_worker_has_finished_is_revoked_for_no_subscription() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.enqueue("q", &["a", "b"]).await;
    let mut events = WorkEvents::new();
    let mut session = rig.engine.work(&queue("q"), request(0), true, events.sender(0)).unwrap();
    session.submit(Submission { credits: 2, ..Submission::default() });
    let leases = events.next().await.1.leases.unwrap().take();
    leases.iter().for_each(|lease| session.handed_over(lease));
    // As far as its session knows.
    session.finished(&LeaseRef::from(&leases[0]));
    session.submit(Submission { credits: 1, ..Submission::default() });
    settled().await;
    rig.revoked("a").await;
    rig.revoked("b").await;
    assert_eq!(events.try_next().expect("a revocation").1.revoked[0].id, id_of("b"));
    assert!(events.try_next().is_none());
}
