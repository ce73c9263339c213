//! Dequeues whose reply is lost on its way from the store: what their callers learn, and which caller gets the leases (Q10).

use super::tests::{HOUR, Rig, id_of, queue, request};
use super::*;
use crate::testing::shard_of;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tallystone_model::{Applied, Filter};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

fn is_unknown(answer: &Result<Vec<Lease>, Refusal>) -> bool {
    matches!(answer, Err(Refusal::Unavailable { applied: Applied::Unknown, .. }))
}

fn filtered(value: &str) -> DequeueRequest {
    let filter = Filter::parse([("k".to_owned(), value.to_owned())].into()).unwrap();
    DequeueRequest { filters: vec![filter], ..request(1) }
}

impl Rig {
    /// Lets the store act on the next dequeue, and loses its reply; from then on the store is unavailable.
    async fn lose_and_leave(&self) {
        self.store.lose.store(1, Ordering::SeqCst);
        let before = self.store.calls("dequeue");
        self.store.called("dequeue", before + 1).await;
        while self.store.lose.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        self.store.away.store(true, Ordering::SeqCst);
    }

    fn back(&self) {
        self.store.away.store(false, Ordering::SeqCst);
    }

    /// Messages directly in the store: no lane is notified of them.
    async fn stored(&self, ids: &[&str]) {
        let messages = ids.iter().map(|id| NewMessage::new(id_of(id), 0)).collect();
        self.store.oracle.enqueue(&shard_of("q"), messages).await.unwrap();
    }

    fn call(&self, request: DequeueRequest, wait: Duration) -> tokio::task::JoinHandle<Result<Vec<Lease>, Refusal>> {
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.dequeue(&queue("q"), request, 0, Instant::now() + wait).await })
    }
}

#[tokio::test(start_paused = true)]
async fn q10_an_answer_speaks_for_every_try_of_its_dequeue() {
    for building in [0, 1_000] {
        let rig = Rig::with_queues(&["q"]).await;
        rig.stored(&["a"]).await;
        let waiting = rig.wait("q", 3 * SECOND);
        rig.lose_and_leave().await;
        if building > 0 {
            rig.store.building.store(building, Ordering::SeqCst);
            rig.back();
        }
        let answer = waiting.await.unwrap();
        match building {
            0 => assert!(is_unknown(&answer), "its first try took effect: {answer:?}"),
            _ => assert_eq!(answer.unwrap()[0].id, id_of("a"), "the repeat collects before it needs an index"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn q10_empty_means_that_the_store_said_so() {
    let rig = Rig::with_queues(&["q"]).await;
    // Two wait in one group; a flush leases to both, and its reply is lost.
    let waiting = [rig.wait("q", 5 * SECOND), rig.wait("q", 5 * SECOND)];
    rig.store.called("dequeue", 1).await;
    sleep(SECOND).await;
    rig.store.lose.store(1, Ordering::SeqCst);
    rig.enqueue("q", &["a", "b"]).await;
    let mut leased = Vec::new();
    for answer in waiting {
        leased.extend(answer.await.unwrap().unwrap().into_iter().map(|lease| lease.id));
    }
    assert_eq!(leased, [id_of("a"), id_of("b")]);
}

#[tokio::test(start_paused = true)]
async fn q10_after_the_stores_return_a_wait_does_not_end_empty_before_a_new_request() {
    let rig = Rig::with_queues(&["q"]).await;
    let waiting = rig.call(filtered("v"), HOUR);
    rig.store.called("dequeue", 1).await;
    rig.store.away.store(true, Ordering::SeqCst);
    rig.engine.lanes.wake(&shard_of("q"));
    rig.store.called("dequeue", 3).await;
    rig.back();
    assert_eq!(rig.call(filtered("w"), Duration::ZERO).await.unwrap(), Ok(vec![]), "the store answers again");
    rig.engine.context.stopping.cancel();
    assert!(waiting.await.unwrap().is_err(), "no request for its group since");
}

#[tokio::test(start_paused = true)]
async fn q10_an_empty_answer_to_another_does_not_speak_for_a_request_id() {
    let rig = Rig::with_queues(&["q"]).await;
    let _first_in_line = rig.wait("q", HOUR);
    rig.store.called("dequeue", 1).await;
    sleep(SECOND).await;
    rig.store.away.store(true, Ordering::SeqCst);
    let named = DequeueRequest { request_id: "r".to_owned(), ..request(1) };
    let waiting = rig.call(named.clone(), 60 * SECOND);
    rig.store.called("dequeue", 2).await;
    // A twin of the call, through another server.
    rig.stored(&["a"]).await;
    let twin = rig.store.oracle.dequeue(&shard_of("q"), &[named], false, None).await.unwrap().leases.remove(0).unwrap();
    assert_eq!(twin.len(), 1);
    rig.back();
    assert_eq!(waiting.await.unwrap(), Ok(twin));
}

#[tokio::test(start_paused = true)]
async fn q10_the_repeat_gives_a_work_stream_what_the_lost_reply_gave() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.stored(&["a", "b"]).await;
    let mut events = WorkEvents::new();
    let mut session = rig.engine.work(&queue("q"), request(0), true, events.sender(0)).unwrap();
    session.submit(Submission { credits: 3, ..Submission::default() });
    rig.lose_and_leave().await;
    rig.store.clock_ms.fetch_add(3_000, Ordering::SeqCst);
    sleep(3 * SECOND).await;
    rig.back();
    let leases = tokio::time::timeout(10 * SECOND, events.next()).await.expect("in time").1.leases.unwrap().take();
    let left = |lease: &Lease| (lease.attempt, lease.left_ms);
    assert_eq!(leases.iter().map(left).collect::<Vec<_>>(), [(1, 27_000), (1, 27_000)]);
    // The third credit is still there.
    rig.stored(&["c"]).await;
    assert_eq!(events.next().await.1.leases.unwrap().take()[0].id, id_of("c"));
}

#[tokio::test(start_paused = true)]
async fn q10_the_repeat_of_a_request_id_says_what_is_left_of_the_lease() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.stored(&["a"]).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let named = DequeueRequest { request_id: "r".to_owned(), ..request(1) };
        let lease = rig.call(named, Duration::ZERO).await.unwrap().unwrap().remove(0);
        seen.push((lease.leased_at_ms, lease.left_ms));
        rig.store.clock_ms.fetch_add(20_000, Ordering::SeqCst);
    }
    assert_eq!(seen, [(1_000_000, 30_000), (1_000_000, 10_000)]);
}

#[tokio::test(start_paused = true)]
async fn q11_a_caller_learns_what_is_left_of_a_lease_that_the_store_answers_late() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.stored(&["a", "b"]).await;
    for (late, expected) in [(10 * SECOND, vec![("a", 1_000_000, 20_000)]), (30 * SECOND, vec![])] {
        rig.store.hung_shards.send_replace(1);
        let call = rig.call(request(1), Duration::ZERO);
        sleep(late).await;
        rig.store.hung_shards.send_replace(0);
        let leases = call.await.unwrap().unwrap();
        let seen = leases.iter().map(|lease| (lease.id.as_str(), lease.leased_at_ms, lease.left_ms));
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
    let next = rig.wait("q", SECOND).await.unwrap().unwrap();
    assert_eq!((next[0].id.as_str(), next[0].attempt), ("b", 1), "of which nothing may be left, it is released");
}

#[tokio::test(start_paused = true)]
async fn q10_leases_of_a_lost_reply_whose_caller_is_gone_are_released() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.stored(&["a", "b", "c"]).await;
    let events = WorkEvents::new();
    let mut session = rig.engine.work(&queue("q"), request(0), false, events.sender(0)).unwrap();
    session.submit(Submission { credits: 1, ..Submission::default() });
    let short = rig.wait("q", SECOND);
    let gone = rig.wait("q", HOUR);
    rig.lose_and_leave().await;
    assert!(is_unknown(&short.await.unwrap()));
    gone.abort();
    drop((session, events));
    rig.back();
    sleep(10 * SECOND).await;
    let depth = rig.store.oracle.depth(&shard_of("q"), None).await.unwrap();
    assert_eq!((depth.pending, depth.running), (3, 0));
    let message = rig.store.oracle.get_messages(&shard_of("q"), vec![id_of("a")]).await.unwrap().remove(0).unwrap();
    assert_eq!((message.version, message.attempts), (3, 0), "leased and released once");
}

#[tokio::test(start_paused = true)]
async fn q10_a_call_of_several_steps_whose_first_took_effect_does_not_say_that_nothing_happened() {
    let may_have_acted =
        |refusal: Option<Refusal>| matches!(refusal, Some(Refusal::Unavailable { applied: Applied::Unknown, .. }));
    // The Enqueue that makes its queue.
    let rig = Rig::with_queues(&[]).await;
    *rig.store.away_after.lock().unwrap() = Some("create_queue");
    let refusal = rig.engine.enqueue(&queue("q"), vec![NewMessage::new(id_of("a"), 0)], 0, true).await.err();
    assert!(may_have_acted(refusal.clone()), "the queue is made: {refusal:?}");
    // The deletion that empties its queue first.
    let rig = Rig::with_queues(&["q"]).await;
    rig.stored(&["a"]).await;
    *rig.store.away_after.lock().unwrap() = Some("purge");
    let refusal = rig.engine.delete_by_force(&queue("q"), None).await.err();
    assert!(may_have_acted(refusal.clone()), "the message is gone: {refusal:?}");
}
