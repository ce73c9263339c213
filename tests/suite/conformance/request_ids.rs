//! Dequeue repeated with the same request id: Q10.

use super::{named, queues};
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{ids, to};
use tallystone_tests::*;

over_each_store!(
    q10_the_same_request_answers_the_same_leases_and_changes_nothing,
    q10_a_request_answers_those_of_its_leases_that_live,
    q10_a_request_whose_leases_are_over_is_a_new_one,
    q10_a_request_lives_as_long_as_its_leases_are_extended,
    q10_a_request_that_got_nothing_is_not_remembered,
    q10_the_same_request_twice_in_one_call_is_answered_once,
    q10_requests_are_known_per_queue_and_without_an_id_never,
    q10_a_repeated_request_shows_the_message_as_it_stands,
    q10_a_repeated_request_has_the_order_of_its_first_answer,
);

async fn q10_the_same_request_answers_the_same_leases_and_changes_nothing<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        for filters in [vec![], vec![filter(&[(KEY, "k2")]), filter(&[(KEY, "k4")]), filter(&[(KEY, "k3")])]] {
            let wanted = DequeueRequest { filters, ..named(&format!("r{}", queue.events().await.len()), 2) };
            let leases = queue.try_take(wanted.clone()).await.expect("an open queue");
            assert_eq!(leases.len(), 2);
            let before = queue.snapshot().await;
            stage.clock.advance(100);
            let again = queue.through(&stage.other).try_take(wanted.clone()).await;
            assert_eq!(again, Ok(leases.clone()));
            // Whatever else the repetition says, its id speaks.
            let other = DequeueRequest { worker: "other".to_owned(), filters: vec![], ..named(&wanted.request_id, 5) };
            assert_eq!(queue.try_take(other).await, Ok(leases));
            assert_eq!(queue.snapshot().await, before);
        }
    }
}

async fn q10_a_request_answers_those_of_its_leases_that_live<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let leases = queue.try_take(named("r", 4)).await.expect("an open queue");
        queue.complete(to(&leases[0])).await.expect("a live lease");
        queue.release(to(&leases[2]), Some(0), "").await.expect("a live lease");
        let again = queue.try_take(named("r", 4)).await;
        assert_eq!(again, Ok(vec![leases[1].clone(), leases[3].clone()]));
        // m2 runs under another request now: that lease is not this request's.
        assert_eq!(queue.take_ids(1).await, ["m2"]);
        assert_eq!(queue.try_take(named("r", 4)).await.map(|leases| ids(&leases)), Ok(vec!["m1".into(), "m3".into()]));
    }
}

async fn q10_a_request_whose_leases_are_over_is_a_new_one<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let first = queue.try_take(named("r", 2)).await.expect("an open queue");
        stage.clock.advance(29_999);
        assert_eq!(queue.try_take(named("r", 2)).await, Ok(first.clone()));
        stage.clock.advance(1);
        let second = queue.try_take(named("r", 2)).await.expect("an open queue");
        assert_eq!(ids(&second), ids(&first), "the most urgent again");
        assert!(second.iter().all(|lease| lease.attempt == 2 && lease.fencing_token > first[1].fencing_token));
        assert_eq!(queue.try_take(named("r", 2)).await, Ok(second.clone()), "and known again");
        for lease in &second {
            queue.complete(to(lease)).await.expect("a live lease");
        }
        let third = queue.try_take(named("r", 2)).await.expect("an open queue");
        assert_eq!(ids(&third), ["m2", "m3"]);
    }
}

async fn q10_a_request_lives_as_long_as_its_leases_are_extended<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let leases = queue.try_take(named("r", 2)).await.expect("an open queue");
        stage.clock.advance(20_000);
        queue.extend(to(&leases[1]), Some(60_000), "").await.expect("a live lease");
        for _ in 0..3 {
            // Sweeps, and requests of other ids, forget what is over and nothing else.
            queue.pass(15_000).await;
            queue.try_take(named("", 1)).await.expect("an open queue");
            queue.try_take(named("passes by", 1)).await.expect("an open queue");
        }
        let again = queue.try_take(named("r", 2)).await.expect("an open queue");
        assert_eq!(ids(&again), ["m1"]);
        assert_eq!(again[0].fencing_token, leases[1].fencing_token);
        assert_eq!(again[0].expires_at_ms, leases[1].leased_at_ms + 80_000);
    }
}

async fn q10_a_request_that_got_nothing_is_not_remembered<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    assert_eq!(queue.try_take(named("r", 1)).await, Ok(vec![]));
    queue.put([message("m", 1)]).await;
    assert_eq!(queue.try_take(named("r", 1)).await.map(|leases| ids(&leases)), Ok(vec!["m".to_owned()]));
}

/// A caller that repeats a call while the first one still waits at the server.
async fn q10_the_same_request_twice_in_one_call_is_answered_once<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let requests = vec![named("r", 2), named("other", 1), named("r", 2), named("", 1)];
        let answer = queue.dequeue(requests).await.expect("an open queue");
        let leases: Vec<Vec<Lease>> = answer.leases.into_iter().map(|leases| leases.expect("leases")).collect();
        assert_eq!(ids(&leases[0]), ["m0", "m1"]);
        assert_eq!(leases[2], leases[0]);
        assert_eq!((ids(&leases[1]), ids(&leases[3])), (vec!["m2".to_owned()], vec!["m3".to_owned()]));
        assert_eq!(queue.depth().await.running, 4);
    }
}

async fn q10_requests_are_known_per_queue_and_without_an_id_never<S: Probe>(stage: &Stage<S>) {
    let [one, two] = queues(stage).await;
    assert_eq!(one.try_take(named("r", 1)).await.map(|leases| leases.len()), Ok(1));
    assert_eq!(two.try_take(named("r", 3)).await.map(|leases| leases.len()), Ok(3));
    assert_eq!(one.try_take(named("", 1)).await.map(|leases| ids(&leases)), Ok(vec!["m1".to_owned()]));
    assert_eq!(one.try_take(named("", 1)).await.map(|leases| ids(&leases)), Ok(vec!["m2".to_owned()]));
}

async fn q10_a_repeated_request_shows_the_message_as_it_stands<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("m", 5)]).await;
    let lease = queue.try_take(named("r", 1)).await.expect("an open queue").remove(0);
    queue.reprioritize("m", 3).await.expect("a running message");
    stage.clock.advance(1_000);
    let expires_at_ms = queue.extend(to(&lease), None, "").await.expect("a live lease");
    // What is left of it, its server knows.
    let left_ms = expires_at_ms - lease.leased_at_ms;
    let stands = Lease { priority: 3, version: 4, expires_at_ms, left_ms, ..lease };
    assert_eq!(queue.try_take(named("r", 1)).await, Ok(vec![stands]));
}

/// The property test found it: whatever takes the script a second step reordered the leases by their priorities of now.
async fn q10_a_repeated_request_has_the_order_of_its_first_answer<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { indexes: vec![index(&[KEY])], ..simple() }).await;
    queue.put([keyed("late", 9, "k"), keyed("early", 2, "k")]).await;
    let leases = queue.try_take(named("r", 2)).await.expect("an open queue");
    assert_eq!(ids(&leases), ["early", "late"]);
    queue.reprioritize("late", 1).await.expect("a running message");
    // The first server does not know yet that the index is gone: it calls the script again.
    let dropped = QueuePatch { indexes: Some(vec![]), ..QueuePatch::default() };
    queue.through(&stage.other).reconfigure(dropped).await;
    let filtered = DequeueRequest { filters: vec![filter(&[(KEY, "k")])], ..named("", 1) };
    let answer = queue.dequeue(vec![filtered, named("r", 2)]).await.expect("an open queue");
    assert_eq!(answer.leases[1].as_ref().map(|leases| ids(leases)), Ok(vec!["early".to_owned(), "late".to_owned()]));
}
