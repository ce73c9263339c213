//! Filtered Dequeue in exclusive queues: heads that turn out locked, and their way back: Q4, Q8.

use tallystone_model::limits::SWEEP_ITEMS_MAX;
use tallystone_model::store::DequeueRequest;
use tallystone_model::*;
use tallystone_tests::queue::{ids, lease_ref, no_lease, to};
use tallystone_tests::*;

over_each_store!(
    q8_a_filter_overtakes_the_head_of_a_value,
    q8_locked_heads_come_back_when_their_value_is_free,
    q8_what_changes_while_its_value_is_locked_comes_back_as_it_is,
    q8_many_locked_heads_before_a_free_one,
    q8_many_locked_heads_between_free_ones,
    q8_many_lists_parked_under_one_value,
    q4_locked_values_do_not_stand_in_the_way_of_free_ones,
);

fn flight(id: &str, priority: i64, tail: &str, origin: &str) -> NewMessage {
    tagged(id, priority, &[(KEY, tail), ("origin", origin)])
}

fn from(origin: &str) -> [Filter; 1] {
    [filter(&[("origin", origin)])]
}

async fn q8_a_filter_overtakes_the_head_of_a_value<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([flight("a", 1, "N1", "EWR"), flight("b", 2, "N1", "JFK"), flight("c", 3, "N1", "EWR")]).await;
    queue.put([flight("d", 4, "N1", "JFK"), flight("e", 9, "N2", "LGA")]).await;
    assert_eq!(queue.take_where(9, &from("JFK")).await, ["b"]);
    assert_eq!(queue.list(State::Pending).await, ["e", "a", "c", "d"], "the head waits, too");
    assert_eq!(queue.take_where(9, &from("EWR")).await, [""; 0]);
    queue.complete(lease_ref("b", queue.get("b").await.fencing_token)).await.expect("a live lease");
    assert_eq!(queue.list(State::Pending).await, ["a", "e", "c", "d"]);
    assert_eq!(queue.take_where(9, &from("JFK")).await, ["d"]);
    queue.release(lease_ref("d", queue.get("d").await.fencing_token), Some(0), "").await.expect("a live lease");
    assert_eq!(queue.take_ids(9).await, ["a", "e"]);
}

async fn q8_locked_heads_come_back_when_their_value_is_free<S: Probe>(stage: &Stage<S>) {
    for way in ["complete", "release", "cancel", "lapse", "purge"] {
        let queue = stage.queue(exclusive()).await;
        queue.put([flight("a", 1, "N1", "EWR")]).await;
        let a = queue.take_one().await;
        queue.put([flight("b", 2, "N1", "JFK"), flight("c", 3, "N2", "JFK"), flight("d", 4, "N1", "JFK")]).await;
        assert_eq!(queue.take_where(9, &from("JFK")).await, ["c"]);
        assert_eq!(queue.take_where(9, &from("JFK")).await, [""; 0], "b is locked, not gone");
        match way {
            "complete" => drop(queue.complete(to(&a)).await.expect("a live lease")),
            "release" => drop(queue.release(to(&a), Some(5), "").await.expect("a live lease")),
            "cancel" => drop(queue.cancel(to(&a), "").await.expect("a live lease")),
            "lapse" => stage.clock.advance(30_000),
            _ => {
                queue.purge(true).await;
                queue.put([flight("b", 2, "N1", "JFK")]).await;
            }
        }
        // Where time frees N1, it frees N2, too.
        let next = if way == "lapse" { vec!["b", "c"] } else { vec!["b"] };
        assert_eq!(queue.take_where(9, &from("JFK")).await, next, "{way}");
        assert_eq!(queue.take_where(9, &from("JFK")).await, [""; 0], "{way}");
    }
}

async fn q8_what_changes_while_its_value_is_locked_comes_back_as_it_is<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([flight("a", 1, "N1", "EWR")]).await;
    let mut holder = queue.take_one().await;
    let heads = [flight("b", 2, "N1", "JFK"), flight("c", 3, "N1", "JFK"), flight("d", 4, "N1", "LGA")];
    queue.put(heads.into_iter().chain([flight("e", 5, "N1", "LGA")])).await;
    for origin in ["JFK", "LGA"] {
        assert_eq!(queue.take_where(9, &from(origin)).await, [""; 0]);
    }
    // A new head, a head that leaves, one that falls behind, each under its lock.
    queue.put([flight("urgent", 0, "N1", "JFK")]).await;
    queue.cancel(no_lease("b"), "").await.expect("a pending message");
    queue.reprioritize("d", 9).await.expect("a pending message");
    assert_eq!(queue.take_where(9, &from("JFK")).await, [""; 0]);
    for (origin, next) in [("JFK", "urgent"), ("LGA", "e"), ("JFK", "c"), ("LGA", "d")] {
        queue.complete(to(&holder)).await.expect("a live lease");
        let filters = from(origin).to_vec();
        let wanted = tallystone_model::store::DequeueRequest { filters, ..request(9) };
        let leases = queue.try_take(wanted).await.expect("an open queue");
        assert_eq!(tallystone_tests::queue::ids(&leases), [next]);
        holder = leases.into_iter().next().expect("one");
        for origin in ["JFK", "LGA"] {
            assert_eq!(queue.take_where(9, &from(origin)).await, [""; 0]);
        }
    }
}

/// A queue with this number of messages from JFK, in order, all locked.
async fn locked<S: Probe>(stage: &Stage<S>, many: usize) -> TestQueue<S> {
    let queue = stage.queue(exclusive()).await;
    queue.depth_of(&from("JFK")[0]).await;
    let tail = |n: usize| format!("N{n}");
    queue.put((0..many).map(|n| flight(&format!("holds {n}"), 0, &tail(n), "EWR"))).await;
    assert_eq!(queue.take(many).await.len(), many);
    queue.put((0..many).map(|n| flight(&format!("locked {n:04}"), n as i64, &tail(n), "JFK"))).await;
    queue
}

async fn q8_many_locked_heads_before_a_free_one<S: Probe>(stage: &Stage<S>) {
    let many = 2 * SWEEP_ITEMS_MAX + 50;
    let queue = locked(stage, many).await;
    queue.put([flight("free", i64::MAX, "free", "JFK")]).await;
    assert_eq!(queue.take_where(9, &from("JFK")).await, ["free"], "past all that are locked");
    assert_eq!(queue.take_where(9, &from("JFK")).await, [""; 0]);
    stage.clock.advance(30_000);
    let back = queue.take_where(many + 1, &from("JFK")).await;
    let expected: Vec<String> = (0..many).map(|n| format!("locked {n:04}")).chain(["free".to_owned()]).collect();
    assert_eq!(back, expected, "each comes back when its value is free");
}

/// A request that has got some already continues past them, and a repeated one answers all of it.
async fn q8_many_locked_heads_between_free_ones<S: Probe>(stage: &Stage<S>) {
    let many = 2 * SWEEP_ITEMS_MAX + 50;
    for request_id in ["", "r"] {
        let queue = locked(stage, many).await;
        let free: Vec<String> = (0..6).map(|n| format!("free {n}")).collect();
        let priorities = [-1, -1, 300, 300, i64::MAX, i64::MAX];
        queue.put(free.iter().zip(priorities).map(|(id, priority)| flight(id, priority, id, "JFK"))).await;
        let wanted = DequeueRequest { filters: from("JFK").to_vec(), request_id: request_id.to_owned(), ..request(5) };
        let answer = queue.dequeue(vec![wanted.clone(), wanted.clone()]).await.expect("an open queue");
        let got: Vec<_> = answer.leases.iter().map(|leases| ids(leases.as_ref().expect("leases"))).collect();
        assert_eq!((got[0].as_slice(), answer.cut_short), (&free[..5], false));
        if request_id.is_empty() {
            assert_eq!(got[1], free[5..], "the next request takes what is left");
        } else {
            let again = queue.try_take(wanted).await.expect("an open queue");
            assert_eq!(ids(&again), free[..5]);
        }
        queue.assert_sound().await;
    }
}

/// More lists wait under one value than one call restores.
async fn q8_many_lists_parked_under_one_value<S: Probe>(stage: &Stage<S>) {
    let many = 2 * SWEEP_ITEMS_MAX + 50;
    let queue = stage.queue(exclusive()).await;
    queue.put([flight("holds", 0, "N1", "none")]).await;
    let holder = queue.take_one().await;
    queue.put((0..many).map(|n| flight(&format!("m{n:04}"), n as i64, "N1", &format!("o{n}")))).await;
    // Sixteen filters a call, as the wire allows.
    let origins: Vec<Filter> = (0..many).map(|n| filter(&[("origin", &format!("o{n}"))])).collect();
    for filters in origins.chunks(16) {
        assert_eq!(queue.take_where(9, filters).await, [""; 0]);
    }
    queue.complete(to(&holder)).await.expect("a live lease");
    for turn in [many - 1, 0, many / 2] {
        let next = queue.take_where(9, &from(&format!("o{turn}"))).await;
        assert_eq!(next, [format!("m{turn:04}")], "the value is free, whichever list is read first");
        let fencing_token = queue.get(&next[0]).await.fencing_token;
        queue.complete(lease_ref(&next[0], fencing_token)).await.expect("a live lease");
    }
    assert_eq!(queue.take_ids(9).await, ["m0001"]);
}

async fn q4_locked_values_do_not_stand_in_the_way_of_free_ones<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put((0..300).map(|n| keyed(&format!("holds {n}"), 0, &format!("k{n}")))).await;
    assert_eq!(queue.take(300).await.len(), 300);
    for _ in 0..3 {
        let batch = queue.depth().await.pending;
        queue.put((0..300).map(|n| keyed(&format!("waits {batch}/{n}"), 1, &format!("k{n}")))).await;
    }
    queue.put([keyed("free", i64::MAX, "free")]).await;
    let answer = queue.dequeue(vec![request(9)]).await.expect("an open queue");
    assert_eq!(
        answer.leases[0].as_ref().map(|leases| tallystone_tests::queue::ids(leases)),
        Ok(vec!["free".to_owned()])
    );
    assert_eq!(answer.outlook.ready, 0);
}
