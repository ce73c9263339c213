//! Exclusive queues: one running message per value, its most urgent first: Q4.

use super::bring;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, no_lease, to};
use tallystone_tests::*;

over_each_store!(
    q4_one_of_a_value_runs_the_others_wait_however_urgent,
    q4_every_way_out_of_running_frees_the_value,
    q4_the_most_urgent_heads_of_the_free_values_run,
    q4_two_requests_of_one_call_share_no_value,
    q4_a_more_urgent_arrival_goes_to_the_front_of_its_value,
    q4_the_head_leaves_without_running_and_the_next_comes_forward,
    q4_an_invisible_message_holds_no_value,
    q4_values_are_distinct_whatever_their_bytes,
    q4_deep_backlogs_behind_locked_values_are_run_to_the_end,
    q4_a_value_is_one_through_every_index_and_none,
);

async fn q4_one_of_a_value_runs_the_others_wait_however_urgent<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("a", 5, "k"), keyed("b", 6, "k"), keyed("free", 99, "other")]).await;
    let a = queue.take_one().await;
    queue.put([keyed("urgent", i64::MIN, "k")]).await;
    assert_eq!(queue.take_ids(9).await, ["free"]);
    queue.complete(to(&a)).await.expect("a live lease");
    assert_eq!(queue.take_ids(9).await, ["urgent"]);
    queue.complete(lease_ref("urgent", queue.get("urgent").await.fencing_token)).await.expect("a live lease");
    assert_eq!(queue.take_ids(9).await, ["b"]);
}

async fn q4_every_way_out_of_running_frees_the_value<S: Probe>(stage: &Stage<S>) {
    for way in
        ["complete", "release", "release later", "error", "cancel", "forced cancel", "lapse", "lapse unseen", "purge"]
    {
        let queue = stage.queue(exclusive()).await;
        let max_attempts = if way == "error" { Some(1) } else { None };
        queue.put([NewMessage { max_attempts, ..keyed("a", 1, "k") }, keyed("b", 2, "k")]).await;
        let lease = queue.take_one().await;
        assert_eq!(queue.take_ids(9).await, [""; 0], "{way}");
        let freed = match way {
            "complete" => queue.complete(to(&lease)).await.map(drop),
            "release" => queue.release(to(&lease), Some(0), "").await.map(drop),
            "release later" => queue.release(to(&lease), Some(9), "").await.map(drop),
            "error" => queue.release(to(&lease), None, "").await.map(drop),
            "cancel" => queue.cancel(to(&lease), "").await.map(drop),
            "forced cancel" => queue.cancel_as(no_lease("a"), true, "").await.map(drop),
            "lapse" => {
                queue.pass(30_000).await;
                Ok(())
            }
            "lapse unseen" => {
                stage.clock.advance(30_000);
                Ok(())
            }
            _ => {
                // A purge takes all that is there, so b comes after it.
                queue.purge(true).await;
                queue.try_put(keyed("b", 2, "k")).await.map(drop)
            }
        };
        freed.expect(way);
        let next = if matches!(way, "release" | "lapse" | "lapse unseen") { "a" } else { "b" };
        assert_eq!(queue.take_ids(9).await, [next], "{way}");
    }
}

async fn q4_the_most_urgent_heads_of_the_free_values_run<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    // m00 m01 … by urgency, of values 0 1 2 0 1 2 …
    queue.put((0..12).rev().map(|n| keyed(&format!("m{n:02}"), n, &format!("k{}", n % 3)))).await;
    let leases = queue.take(9).await;
    assert_eq!(tallystone_tests::queue::ids(&leases), ["m00", "m01", "m02"]);
    queue.complete(to(&leases[1])).await.expect("a live lease");
    assert_eq!(queue.take_ids(9).await, ["m04"]);
    queue.complete(to(&leases[2])).await.expect("a live lease");
    queue.complete(to(&leases[0])).await.expect("a live lease");
    assert_eq!(queue.take_ids(1).await, ["m03"]);
    assert_eq!(queue.take_ids(9).await, ["m05"]);
}

async fn q4_two_requests_of_one_call_share_no_value<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("a", 1, "k"), keyed("b", 2, "k"), keyed("c", 3, "l"), keyed("d", 4, "l")]).await;
    let one = filter(&[(KEY, "k")]);
    queue.depth_of(&one).await;
    let filtered = DequeueRequest { filters: vec![one], ..request(2) };
    let answer = queue.dequeue(vec![request(1), filtered, request(5)]).await.expect("an open queue");
    let got: Vec<usize> = answer.leases.iter().map(|leases| leases.as_ref().map_or(0, Vec::len)).collect();
    assert_eq!(got, [1, 0, 1]);
}

async fn q4_a_more_urgent_arrival_goes_to_the_front_of_its_value<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("c", 3, "k")]).await;
    queue.put([keyed("d", 4, "k"), keyed("b", 2, "k"), keyed("x", 1, "l"), keyed("a", 1, "k")]).await;
    queue.put([keyed("e", 1, "k")]).await;
    assert_eq!(queue.list(State::Pending).await, ["x", "a", "e", "b", "c", "d"]);
    for next in ["x", "a", "e", "b", "c", "d"] {
        let lease = queue.take_one().await;
        assert_eq!(lease.id, id(next));
        queue.complete(to(&lease)).await.expect("a live lease");
    }
}

async fn q4_the_head_leaves_without_running_and_the_next_comes_forward<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put((0..6).map(|n| keyed(&format!("m{n}"), n, "k"))).await;
    queue.cancel(no_lease("m0"), "").await.expect("a pending message");
    assert_eq!(queue.list(State::Pending).await, ["m1", "m2", "m3", "m4", "m5"]);
    queue.reprioritize("m1", 9).await.expect("a pending message");
    queue.show_at("m2", stage.clock.now_ms() + 50).await.expect("a pending message");
    // Not the head: one from the middle, too.
    queue.cancel(no_lease("m4"), "").await.expect("a pending message");
    assert_eq!(queue.list(State::Pending).await, ["m3", "m5", "m1"]);
    queue.reprioritize("m1", -9).await.expect("a pending message");
    assert_eq!(queue.take_ids(9).await, ["m1"]);
    // Behind a lock all of it is the backlog's.
    queue.cancel(no_lease("m3"), "").await.expect("a pending message");
    queue.pass(50).await;
    assert_eq!(queue.list(State::Pending).await, ["m2", "m5"]);
    queue.redrive("m4").await.expect("a canceled message");
    queue.cancel_as(no_lease("m1"), true, "").await.expect("a running message");
    assert_eq!(queue.list(State::Pending).await, ["m2", "m4", "m5"]);
    assert_eq!(queue.take_ids(9).await, ["m2"]);
}

async fn q4_an_invisible_message_holds_no_value<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    bring(&queue, keyed("a", 1, "k"), State::Invisible).await;
    queue.put([keyed("b", 2, "k")]).await;
    let b = queue.take_one().await;
    assert_eq!(b.id, id("b"));
    stage.clock.advance(60_000);
    let a = queue.take_one().await;
    assert_eq!(a.id, id("a"), "b's lease has lapsed, too, but a is more urgent");
    assert_eq!(queue.take_ids(9).await, [""; 0]);
}

async fn q4_values_are_distinct_whatever_their_bytes<S: Probe>(stage: &Stage<S>) {
    // Each a prefix of another, or of what a length before it would be read as.
    let long = ["v".repeat(255), "v".repeat(254)];
    let values =
        ["a", "aa", "ab", "a:b", "a b", "ü", "\u{10ffff}", "1", "0", "*", "[", "(", long[0].as_str(), long[1].as_str()];
    let queue = stage.queue(exclusive()).await;
    for priority in 0..3 {
        let each = values.iter().enumerate();
        queue.put(each.map(|(n, value)| keyed(&format!("{priority}-{n:02}"), priority, value))).await;
    }
    for priority in 0..3 {
        let leases = queue.take(99).await;
        let expected: Vec<String> = (0..values.len()).map(|n| format!("{priority}-{n:02}")).collect();
        assert_eq!(tallystone_tests::queue::ids(&leases), expected);
        for lease in leases {
            queue.complete(to(&lease)).await.expect("a live lease");
        }
    }
}

async fn q4_deep_backlogs_behind_locked_values_are_run_to_the_end<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put((0..1_000).map(|n| keyed(&format!("m{n:03}"), (n * 7_919) % 1_009, &format!("k{}", n % 7)))).await;
    let mut last = std::collections::BTreeMap::new();
    let mut done = 0;
    while done < 1_000 {
        let leases = queue.take(5).await;
        assert!(!leases.is_empty() && leases.len() <= 5);
        let refs: Vec<LeaseRef> = leases.iter().map(to).collect();
        for lease in leases {
            let value = lease.metadata.get(KEY).expect("a key").to_owned();
            let before = last.insert(value, lease.priority);
            assert!(before.is_none_or(|before| before <= lease.priority), "each value's in order");
        }
        done += refs.len();
        let ends = queue
            .store
            .complete(&queue.shard, refs.into_iter().map(Completion::from).collect())
            .await
            .expect("a queue");
        assert!(ends.iter().all(Result::is_ok));
    }
    assert_eq!(queue.depth().await, Depth { completed: 1_000, ..Depth::default() });
}

async fn q4_a_value_is_one_through_every_index_and_none<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let of = |id: &str, priority, carrier| tagged(id, priority, &[(KEY, "k"), ("carrier", carrier), ("day", "1")]);
    queue.put([of("a", 1, "UA"), of("b", 2, "DL"), of("c", 3, "UA")]).await;
    let views: [&[Filter]; 4] = [
        &[],
        &[filter(&[("carrier", "DL")])],
        &[filter(&[("day", "1")])],
        &[filter(&[("carrier", "UA"), ("day", "1")])],
    ];
    for takes in views {
        let wanted = DequeueRequest { filters: takes.to_vec(), ..request(9) };
        let leases = queue.try_take(wanted).await.expect("filters with an index");
        assert_eq!(leases.len(), 1);
        for tries in views {
            assert_eq!(queue.take_where(9, tries).await, [""; 0], "taken by {takes:?}, tried by {tries:?}");
        }
        queue.release(to(&leases[0]), Some(0), "").await.expect("a live lease");
    }
}
