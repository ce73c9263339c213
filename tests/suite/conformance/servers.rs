//! Several servers on one store: Q13, Q14, Q18.

use super::bring;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, no_lease, to, went};
use tallystone_tests::*;
use tokio::sync::mpsc;

over_each_store!(
    q13_no_message_and_no_key_is_leased_twice_at_once,
    q13_an_acknowledged_write_is_seen_through_every_server,
    q7_q23_every_server_is_notified_of_a_lease_that_an_operator_has_ended,
    q14_what_is_enqueued_here_is_dequeued_there_at_once,
    s5_every_server_is_notified_of_a_flow_whose_small_flushes_are_slow,
    q18_a_waiting_server_is_notified_of_all_that_makes_a_message_runnable,
    q18_a_server_that_waits_is_notified_though_its_last_dequeue_found_something,
    q18_the_server_that_moves_what_is_due_is_notified_itself,
);

async fn q13_no_message_and_no_key_is_leased_twice_at_once<S: Probe>(stage: &Stage<S>) {
    const MESSAGES: usize = 400;
    let queue = stage.queue(exclusive()).await;
    // What the workers see: keys running now, messages done.
    let (running, done) = (RefCell::new(BTreeSet::new()), RefCell::new(BTreeSet::new()));
    let enqueue = async |part: usize| {
        let mine = if part == 0 { queue.clone() } else { queue.through(&stage.other) };
        for n in (part..MESSAGES).step_by(2) {
            mine.put([keyed(&format!("m{n}"), (n % 7) as i64, &format!("k{}", n % 11))]).await;
        }
    };
    let work = async |part: usize| {
        let mine = if part < 2 { queue.clone() } else { queue.through(&stage.other) };
        let key = |lease: &Lease| lease.metadata.get(KEY).expect("a key").to_owned();
        while done.borrow().len() < MESSAGES {
            let leases = mine.take(3).await;
            for lease in &leases {
                assert!(running.borrow_mut().insert(key(lease)), "{} is leased twice at once", key(lease));
            }
            tokio::task::yield_now().await;
            for lease in leases {
                // Before the call: once it is done, the key may be leased before this task sees the answer.
                running.borrow_mut().remove(&key(&lease));
                assert!(done.borrow_mut().insert(lease.id.clone()), "{} ran twice", lease.id);
                assert_eq!(mine.complete(to(&lease)).await, went(State::Completed, 3));
            }
        }
    };
    tokio::join!(enqueue(0), enqueue(1), work(0), work(1), work(2), work(3));
    assert_eq!(queue.depth().await, Depth { completed: MESSAGES as u64, ..Depth::default() });
}

async fn q13_an_acknowledged_write_is_seen_through_every_server<S: Probe>(stage: &Stage<S>) {
    let here = stage.queue(exclusive()).await;
    let there = here.through(&stage.other);
    let mine = filter(&[(KEY, "k")]);
    let seen = async |queue: &TestQueue<S>, state: State| {
        let mut depth = Depth::default();
        *depth.of_mut(state) = 1;
        assert_eq!(queue.state("m").await, state);
        assert_eq!((queue.depth().await, queue.depth_of(&mine).await), (depth, depth));
        assert_eq!(queue.list(state).await, ["m"]);
        assert_eq!(queue.facts("m").await.message.state, state);
    };
    // Each write through the server that has not made the last one.
    here.put([NewMessage { invisibility_ms: Some(50), ..keyed("m", 1, "k") }]).await;
    seen(&there, State::Invisible).await;
    stage.clock.advance(50);
    let lease = there.take_one().await;
    seen(&here, State::Running).await;
    here.release(to(&lease), Some(0), "").await.expect("a live lease");
    seen(&there, State::Pending).await;
    there.cancel(no_lease("m"), "").await.expect("a pending message");
    seen(&here, State::Canceled).await;
    here.redrive("m").await.expect("a canceled message");
    seen(&there, State::Pending).await;
    assert_eq!(there.take_where(1, std::slice::from_ref(&mine)).await, ["m"]);
    seen(&here, State::Running).await;
    here.complete(lease_ref("m", here.get("m").await.fencing_token)).await.expect("a live lease");
    seen(&there, State::Completed).await;
}

async fn q14_what_is_enqueued_here_is_dequeued_there_at_once<S: Probe>(stage: &Stage<S>) {
    let here = stage.queue(simple()).await;
    let there = here.through(&stage.other);
    for n in 0..50 {
        let name = format!("m{n}");
        here.put([message(&name, 1)]).await;
        assert_eq!(there.take_ids(1).await, [name]);
    }
}

async fn q7_q23_every_server_is_notified_of_a_lease_that_an_operator_has_ended<S: Probe>(stage: &Stage<S>) {
    let (sender, mut revoked) = mpsc::unbounded_channel();
    for server in [&stage.store, &stage.other] {
        let sender = sender.clone();
        server.on_revoked(Box::new(move |shard, lease| drop(sender.send((shard.clone(), lease.clone())))));
    }
    let mut both_get = async |queue: &TestQueue<S>, ended: LeaseRef| {
        for _ in 0..2 {
            let (shard, lease) = loop {
                let notified = tokio::time::timeout(Duration::from_secs(10), revoked.recv()).await;
                let (shard, lease) = notified.expect("notified in time").expect("a channel");
                if shard == queue.shard {
                    break (shard, lease);
                }
            };
            assert_eq!((shard, lease), (queue.shard.clone(), ended.clone()));
        }
    };
    // The second id is stored in another form.
    for name in ["a b ü", "0190163d-8694-739b-aea5-966c26f8ad91"] {
        let queue = stage.queue(exclusive()).await;
        queue.put([keyed("own", 1, "own"), keyed("waits", 2, "own"), keyed(name, 3, "key")]).await;
        let leases = queue.take(2).await;
        // A cancel by the worker itself, or of a message that does not run, revokes no lease.
        queue.cancel_as(to(&leases[0]), true, "").await.expect("its own lease");
        queue.cancel_as(lease_ref("waits", 0), true, "").await.expect("a pending message");
        let revoke = LeaseRef { fencing_token: 0, ..to(&leases[1]) };
        queue.cancel_as(revoke, true, "").await.expect("forced");
        both_get(&queue, to(&leases[1])).await;
        queue.put([keyed("runs", 1, "own"), keyed("waits too", 2, "own")]).await;
        let runs = queue.take_one().await;
        // Neither does a purge of what does not run.
        queue.purge(false).await;
        queue.purge(true).await;
        both_get(&queue, to(&runs)).await;
    }
}

async fn s5_every_server_is_notified_of_a_flow_whose_small_flushes_are_slow<S: Probe>(stage: &Stage<S>) {
    let (sender, mut notified) = mpsc::unbounded_channel();
    for server in [&stage.store, &stage.other] {
        let sender = sender.clone();
        server.on_light_flow(Box::new(move |flow| drop(sender.send(flow.to_owned()))));
    }
    let queue = stage.queue(simple()).await;
    let flow = format!("light {}", queue.shard.queue);
    stage.store.notify_light_flow(&queue.shard, &flow).await.expect("an answer");
    for _ in 0..2 {
        let received = tokio::time::timeout(Duration::from_secs(10), async {
            while notified.recv().await.expect("a channel") != flow {}
        });
        received.await.expect("notified in time");
    }
}

/// It may hold other callers than those that got these leases.
async fn q18_a_server_that_waits_is_notified_though_its_last_dequeue_found_something<S: Probe>(stage: &Stage<S>) {
    let (sender, mut notified) = mpsc::unbounded_channel();
    stage.other.on_ready(Box::new(move |shard| drop(sender.send(shard.clone()))));
    let queue = stage.queue(simple()).await;
    // Its due time is the first: no later lease publishes another.
    queue.put([message("first", 0)]).await;
    queue.take_one().await;
    for n in 0..3 {
        queue.put([message(&format!("m{n}"), n)]).await;
        let dequeued = stage.other.dequeue(&queue.shard, &[request(1)], true, None).await.expect("an open queue");
        assert!(dequeued.leases.iter().flatten().all(|leases| leases.len() == 1));
        while notified.try_recv().is_ok() {}
        queue.put([message(&format!("n{n}"), n)]).await;
        until_notified(&mut notified, &queue.shard, "an Enqueue").await;
        queue.take_one().await;
    }
}

/// The server that moves what is due may do so for others than those who wait for it.
async fn q18_the_server_that_moves_what_is_due_is_notified_itself<S: Probe>(stage: &Stage<S>) {
    let (sender, mut notified) = mpsc::unbounded_channel();
    stage.other.on_ready(Box::new(move |shard| drop(sender.send(shard.clone()))));
    for what in ["window", "lapse"] {
        let queue = stage.queue(simple()).await;
        let color = |color: &str| filter(&[("color", color)]);
        let dequeue_one = async |name: &str| {
            let wanted = DequeueRequest { filters: vec![color(name)], ..request(1) };
            let dequeued = stage.other.dequeue(&queue.shard, &[wanted], true, None).await.expect("an open queue");
            assert_eq!(dequeued.leases, [Ok(vec![])], "{name}");
        };
        queue.depth_of(&color("red")).await;
        let hidden = (what == "window").then_some(1_000);
        queue.put([NewMessage { invisibility_ms: hidden, ..tagged("m", 1, &[("color", "red")]) }]).await;
        if what == "lapse" {
            queue.take_one().await;
        }
        dequeue_one("red").await;
        dequeue_one("blue").await;
        while notified.try_recv().is_ok() {}
        stage.clock.advance(30_000);
        dequeue_one("blue").await;
        until_notified(&mut notified, &queue.shard, what).await;
        assert_eq!(queue.through(&stage.other).take_where(1, &[color("red")]).await, ["m"]);
    }
}

async fn until_notified(notified: &mut mpsc::UnboundedReceiver<Shard>, shard: &Shard, what: &str) {
    loop {
        let notified = tokio::time::timeout(Duration::from_secs(10), notified.recv()).await;
        if notified.unwrap_or_else(|_| panic!("no notification of {what}")).expect("a channel") == *shard {
            return;
        }
    }
}

async fn q18_a_waiting_server_is_notified_of_all_that_makes_a_message_runnable<S: Probe>(stage: &Stage<S>) {
    let (sender, mut notified) = mpsc::unbounded_channel();
    stage.other.on_ready(Box::new(move |shard| drop(sender.send(shard.clone()))));
    for what in ["enqueue", "complete", "release", "cancel", "window", "lapse", "redrive", "show", "coalesced", "purge"]
    {
        let queue = stage.queue(exclusive()).await;
        let fencing_token = bring(&queue, keyed("runs", 1, "k"), State::Running).await;
        bring(&queue, keyed("hides", 1, "l"), State::Invisible).await;
        bring(&queue, keyed("ended", 1, "m"), State::Canceled).await;
        if matches!(what, "complete" | "cancel" | "purge") {
            queue.put([keyed("waits", 1, "k")]).await;
        }
        // The other server calls Dequeue, gets nothing, and holds its callers.
        let dequeued = stage.other.dequeue(&queue.shard, &[request(1)], true, None).await.expect("an open queue");
        assert_eq!(dequeued.leases, [Ok(vec![])]);
        let lease = lease_ref("runs", fencing_token);
        match what {
            "enqueue" => drop(queue.put([keyed("new", 1, "n")]).await),
            "complete" => drop(queue.complete(lease).await.expect("a live lease")),
            "release" => drop(queue.release(lease, Some(0), "").await.expect("a live lease")),
            "cancel" => drop(queue.cancel(lease, "").await.expect("a live lease")),
            "window" => drop(queue.pass(60_000).await),
            "lapse" => drop(queue.pass(30_000).await),
            "redrive" => drop(queue.redrive("ended").await.expect("a canceled message")),
            "show" => drop(queue.show_at("hides", 0).await.expect("an invisible message")),
            "coalesced" => {
                queue.put([NewMessage { coalesce: true, ..keyed("runs", 1, "k") }]).await;
                queue.complete(lease).await.expect("a live lease");
            }
            _ => {
                queue.cancel_as(no_lease("runs"), true, "").await.expect("a running message");
                queue.purge(false).await;
                queue.put([keyed("new", 1, "k")]).await;
            }
        }
        until_notified(&mut notified, &queue.shard, what).await;
        assert!(!queue.through(&stage.other).take(1).await.is_empty(), "{what}");
    }
}
