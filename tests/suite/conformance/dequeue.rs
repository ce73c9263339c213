//! Dequeue without filters: order, limits, leases, what it returns with them: Q5, Q8.

use super::bring;
use bytes::Bytes;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{ids, no_lease};
use tallystone_tests::*;

over_each_store!(
    q8_the_most_urgent_first_and_no_more_than_the_limit,
    q8_requests_of_one_call_act_in_order,
    q8_the_requests_own_lease_goes_before_all,
    q8_the_outlook_says_what_is_left_and_when_to_call_again,
    q8_large_messages_come_in_parts_and_none_is_lost,
    q8_an_answer_ends_where_its_payloads_are_large_enough,
    q5_a_dequeue_sees_what_fell_due_this_moment,
    q5_a_dequeue_moves_hundreds_that_are_due,
    q5_windows_move_before_leases,
    q11_tokens_rise_with_every_lease_of_the_queue,
);

async fn q8_the_most_urgent_first_and_no_more_than_the_limit<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("c", 3), message("a", 1), message("d", 4), message("b", 2)]).await;
    assert_eq!(queue.take_ids(2).await, ["a", "b"]);
    queue.put([message("urgent", -1)]).await;
    assert_eq!(queue.take_ids(9).await, ["urgent", "c", "d"]);
    assert_eq!(queue.take_ids(9).await, [""; 0]);
    let running = queue.get("a").await;
    assert_eq!((running.state, running.version, running.attempts), (State::Running, 2, 1));
    assert_eq!((running.worker.as_str(), running.state_since_ms), ("w", stage.clock.now_ms()));
}

async fn q8_requests_of_one_call_act_in_order<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put((0..7).map(|n| keyed(&format!("m{n}"), n, &format!("k{}", n % 6)))).await;
    let by = |worker: &str, limit, lease_ms| DequeueRequest { worker: worker.to_owned(), lease_ms, ..request(limit) };
    let narrow = DequeueRequest { filters: vec![filter(&[(KEY, "k4")])], ..by("c", 5, None) };
    queue.depth_of(&filter(&[(KEY, "k4")])).await;
    let requests = vec![by("a", 1, None), by("b", 2, Some(5_000)), narrow, by("d", 5, None), by("e", 1, None)];
    let answer = queue.dequeue(requests).await.expect("an open queue");
    let leases: Vec<Vec<Lease>> = answer.leases.into_iter().map(|leases| leases.expect("leases")).collect();
    let got: Vec<Vec<String>> = leases.iter().map(|leases| ids(leases)).collect();
    assert_eq!(got, [vec!["m0"], vec!["m1", "m2"], vec!["m4"], vec!["m3", "m5"], vec![]]);
    for (leases, worker) in leases.iter().zip(["a", "b", "c", "d"]) {
        for lease in leases {
            assert_eq!(queue.get(lease.id.as_str()).await.worker, worker);
            let lease_ms = if worker == "b" { 5_000 } else { 30_000 };
            assert_eq!(lease.expires_at_ms, stage.clock.now_ms() + lease_ms);
        }
    }
}

async fn q8_the_requests_own_lease_goes_before_all<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { lease_ms: 10_000, ..simple() }).await;
    let own = NewMessage { lease_ms: Some(20_000), ..tagged("own", 1, &[("k", "v")]) };
    queue.put([own, tagged("default", 2, &[("k", "v")])]).await;
    let length = |lease: &Lease| lease.expires_at_ms - lease.leased_at_ms;
    for filters in [vec![], vec![filter(&[("k", "v")])]] {
        for (requested_ms, lengths) in [(Some(LEASE_MS_MAX), [LEASE_MS_MAX; 2]), (None, [20_000, 10_000])] {
            let wanted = DequeueRequest { lease_ms: requested_ms, filters: filters.clone(), ..request(2) };
            let leases = queue.try_take(wanted).await.expect("an open queue");
            assert_eq!(leases.iter().map(length).collect::<Vec<_>>(), lengths);
            for lease in leases {
                queue.release(tallystone_tests::queue::to(&lease), Some(0), "").await.expect("a live lease");
            }
        }
    }
}

async fn q8_the_outlook_says_what_is_left_and_when_to_call_again<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let outlook = async |limit| queue.dequeue(vec![request(limit)]).await.expect("an open queue").outlook;
    let now_ms = stage.clock.now_ms();
    assert_eq!(outlook(1).await, Outlook { ready: 0, next_due_ms: None, now_ms, head: None });
    queue.put([keyed("a", 1, "k"), keyed("b", 2, "k"), keyed("c", 3, "l"), keyed("d", 4, "m")]).await;
    // One head of each free key is runnable; b waits behind a.
    assert_eq!(outlook(1).await, Outlook { ready: 2, next_due_ms: Some(now_ms + 30_000), now_ms, head: None });
    queue.put([NewMessage { invisibility_ms: Some(9), ..keyed("e", 0, "n") }]).await;
    assert_eq!(outlook(1).await, Outlook { ready: 1, next_due_ms: Some(now_ms + 9), now_ms, head: None });
    stage.clock.advance(9);
    let now_ms = stage.clock.now_ms();
    assert_eq!(
        outlook(1).await,
        Outlook { ready: 1, next_due_ms: Some(now_ms + 29_991), now_ms, head: None },
        "e runs"
    );
    queue.cancel(no_lease("d"), "").await.expect("a pending message");
    assert_eq!(outlook(1).await.ready, 0);
}

/// What is left is for the next request, and the answer says that there is more.
async fn q8_an_answer_ends_where_its_payloads_are_large_enough<S: Probe>(stage: &Stage<S>) {
    for (filters, exclusive_queue) in [(vec![], false), (vec![filter(&[("k", "v")])], false), (vec![], true)] {
        let queue = stage.queue(if exclusive_queue { exclusive() } else { simple() }).await;
        let full = DEQUEUE_PAYLOAD_BYTES / PAYLOAD_BYTES_MAX;
        let payload = Bytes::from(vec![7; PAYLOAD_BYTES_MAX]);
        let names: Vec<String> = (0..2 * full + 9).map(|n| format!("m{n:03}")).collect();
        for part in names.chunks(100) {
            let large = |name: &String| NewMessage {
                payload: payload.clone(),
                ..tagged(name, 1, &[("k", "v"), (KEY, name.as_str())])
            };
            queue.put(part.iter().map(large)).await;
        }
        if let Some(filter) = filters.first() {
            queue.depth_of(filter).await;
        }
        let wanted = |limit| DequeueRequest { filters: filters.clone(), ..request(limit) };
        let answer = queue.dequeue(vec![wanted(BATCH_ITEMS_MAX)]).await.expect("an open queue");
        let first = ids(answer.leases[0].as_ref().expect("leases"));
        assert_eq!((first.as_slice(), answer.cut_short), (&names[..full], true));
        // The one who comes next in the same call gets the rest.
        let answer = queue.dequeue(vec![wanted(BATCH_ITEMS_MAX), wanted(9)]).await.expect("an open queue");
        let got: Vec<Vec<String>> = answer.leases.iter().map(|leases| ids(leases.as_ref().expect("leases"))).collect();
        assert_eq!((got[0].as_slice(), got[1].as_slice()), (&names[full..2 * full], &names[2 * full..]));
        assert!(answer.cut_short, "the first had to stop");
        let answer = queue.dequeue(vec![wanted(1)]).await.expect("an open queue");
        assert_eq!((answer.leases, answer.cut_short), (vec![Ok(vec![])], false));
    }
}

async fn q8_large_messages_come_in_parts_and_none_is_lost<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES_MAX]);
    let names: Vec<String> = (0..250).map(|n| format!("m{n:03}")).collect();
    for part in names.chunks(125) {
        queue
            .put(part.iter().map(|name| NewMessage { payload: payload.clone(), ..tagged(name, 1, &[("k", "v")]) }))
            .await;
    }
    let (plain, filtered) = (request(100), DequeueRequest { filters: vec![filter(&[("k", "v")])], ..request(100) });
    assert_eq!(queue.list(State::Pending).await, names);
    let mut taken = Vec::new();
    for turn in 0.. {
        let wanted = if turn % 2 == 0 { plain.clone() } else { filtered.clone() };
        let leases = queue.try_take(wanted).await.expect("an open queue");
        if leases.is_empty() {
            break;
        }
        assert!(leases.iter().all(|lease| lease.payload == payload));
        taken.extend(ids(&leases));
    }
    assert_eq!(taken, names, "in order, none twice, none left out");
}

async fn q5_a_dequeue_sees_what_fell_due_this_moment<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { lease_ms: 2_000, ..simple() }).await;
    queue.put([NewMessage { invisibility_ms: Some(1_000), ..message("window", 1) }]).await;
    stage.clock.advance(999);
    assert_eq!(queue.take_ids(9).await, [""; 0]);
    stage.clock.advance(1);
    let first = queue.take_one().await;
    assert_eq!((first.id.as_str(), first.attempt), ("window", 1));
    stage.clock.advance(1_999);
    assert_eq!(queue.take_ids(9).await, [""; 0], "the lease lives");
    stage.clock.advance(1);
    let second = queue.take_one().await;
    assert_eq!((second.id.as_str(), second.attempt, second.version), ("window", 2, 5));
    assert!(second.fencing_token > first.fencing_token);
}

async fn q5_a_dequeue_moves_hundreds_that_are_due<S: Probe>(stage: &Stage<S>) {
    let some = 3 * SWEEP_ITEMS_MAX / 2;
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        queue.put((0..some).map(|n| keyed(&format!("lapses {n:04}"), 9, &format!("k{n}")))).await;
        assert_eq!(queue.take(some).await.len(), some);
        // The later it falls due, the more urgent it is.
        let hidden = |n: usize| NewMessage {
            invisibility_ms: Some(n as u64 + 1),
            ..keyed(&format!("hides {n:04}"), -(n as i64), &format!("k{n}"))
        };
        queue.put((0..some).map(hidden)).await;
        stage.clock.advance(30_000);
        let most_urgent = format!("hides {:04}", some - 1);
        assert_eq!(queue.take_ids(1).await, [most_urgent]);
        let all = 2 * some as u64;
        assert_eq!(queue.depth().await, Depth { pending: all - 1, running: 1, ..Depth::default() });
    }
}

async fn q5_windows_move_before_leases<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("lapses", 0), State::Running).await;
    queue
        .put([("b", 200), ("a", 100)].map(|(id, ms)| NewMessage { invisibility_ms: Some(ms), ..message(id, 1) }))
        .await;
    stage.clock.advance(30_000);
    queue.take(9).await;
    let moved: Vec<String> = queue.events().await[4..7].iter().map(|event| event.id.to_string()).collect();
    assert_eq!(moved, ["a", "b", "lapses"]);
}

async fn q11_tokens_rise_with_every_lease_of_the_queue<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put((0..6).map(|n| keyed(&format!("m{n}"), n, &format!("k{n}")))).await;
    let mut last = 0;
    for turn in 0..3 {
        let filters = if turn == 1 { vec![filter(&[(KEY, "k0")]), filter(&[(KEY, "k1")])] } else { vec![] };
        let wanted = DequeueRequest { filters, lease_ms: Some(1_000), ..request(6) };
        for lease in queue.through(&stage.other).try_take(wanted).await.expect("an open queue") {
            assert!(lease.fencing_token > last, "{} after {last}", lease.fencing_token);
            last = lease.fencing_token;
        }
        stage.clock.advance(1_000);
    }
}
