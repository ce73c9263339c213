//! Dequeue repeated by the server itself, whose callers gave no request id: Q10.

use super::{named, queues};
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{ids, to};
use tallystone_tests::*;

over_each_store!(
    q10_a_repeated_ticket_gets_what_the_lost_reply_gave_and_changes_nothing,
    q10_neighbours_with_like_leases_each_get_their_own_again,
    q10_a_reply_that_is_lost_twice_is_collected,
    q10_a_ticket_that_gave_nothing_acts_as_new_in_its_repeat,
    q10_a_ticket_is_remembered_until_the_next_one_of_its_slot,
    q10_a_try_that_comes_after_a_later_one_changes_nothing,
    q10_a_repeat_is_answered_while_the_queue_is_paused,
    q10_a_repeat_gives_only_leases_that_live,
);

/// The first try of a ticket.
fn first(number: u64) -> Ticket {
    Ticket { server: 7, slot: 0, first: number, number }
}

/// A repeat of a ticket.
fn again(first: u64, number: u64) -> Ticket {
    Ticket { server: 7, slot: 0, first, number }
}

fn all_ids(leases: &[Vec<Lease>]) -> Vec<Vec<String>> {
    leases.iter().map(|leases| ids(leases)).collect()
}

async fn q10_a_repeated_ticket_gets_what_the_lost_reply_gave_and_changes_nothing<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let filtered = DequeueRequest { filters: vec![filter(&[(KEY, "k4")])], ..request(1) };
        queue.depth_of(&filtered.filters[0]).await;
        let requests = [request(2), filtered, named("r", 1), request(9), request(1)];
        let given = queue.take_with(first(1), &requests).await.expect("an open queue");
        let expected: [&[&str]; 5] = [&["m0", "m1"], &["m4"], &["m2"], &["m3", "m5"], &[]];
        assert_eq!(all_ids(&given), expected);
        let before = queue.snapshot().await;
        stage.clock.advance(100);
        assert_eq!(queue.take_with(again(1, 2), &requests).await, Ok(given.clone()));
        assert_eq!(queue.snapshot().await, before);
        // The limit of a caller that is gone is 0: only its leases come back.
        let gone = requests.map(|request| DequeueRequest { limit: 0, ..request });
        assert_eq!(queue.take_with(again(1, 3), &gone).await, Ok(given));
        assert_eq!(queue.snapshot().await, before);
    }
}

/// The record of a ticket has one entry for neighbours whose leases are alike (decision 0026).
async fn q10_neighbours_with_like_leases_each_get_their_own_again<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let lease_ms = [None, None, None, None, None, None, Some(5_000), Some(5_000), Some(7_000), None, None];
    let put = |(number, lease_ms)| NewMessage { lease_ms, ..message(&format!("m{number:02}"), number) };
    queue.put((0..).zip(lease_ms).map(put)).await;
    let requests =
        [request(1), request(1), request(1), named("r", 1), request(1), request(4), request(1), request(1), request(1)];
    let given = queue.take_with(first(1), &requests).await.expect("an open queue");
    let numbers: [&[u32]; 9] = [&[0], &[1], &[2], &[3], &[4], &[5, 6, 7, 8], &[9], &[10], &[]];
    assert_eq!(all_ids(&given), numbers.map(|of_one| of_one.iter().map(|n| format!("m{n:02}")).collect::<Vec<_>>()));
    assert_eq!(queue.take_with(again(1, 2), &requests).await, Ok(given));
}

async fn q10_a_reply_that_is_lost_twice_is_collected<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let requests = [request(4), request(4)];
        let lost = queue.take_with(first(1), &requests).await.expect("an open queue");
        assert_eq!(all_ids(&lost), [&["m0", "m1", "m2", "m3"][..], &["m4", "m5"]]);
        // The second request's leases end; the repeat gives it others, and is lost too.
        for lease in &lost[1] {
            queue.complete(to(lease)).await.expect("a live lease");
        }
        queue.put([keyed("n0", 1, "n0"), keyed("n1", 1, "n1")]).await;
        let lost = queue.take_with(again(1, 2), &requests).await.expect("an open queue");
        assert_eq!(all_ids(&lost), [&["m0", "m1", "m2", "m3"][..], &["n0", "n1"]]);
        let found = queue.take_with(again(1, 3), &requests).await;
        assert_eq!(found, Ok(lost));
    }
}

async fn q10_a_ticket_that_gave_nothing_acts_as_new_in_its_repeat<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    assert_eq!(queue.take_with(first(1), &[request(1)]).await, Ok(vec![vec![]]));
    queue.put([message("a", 1), message("b", 1)]).await;
    let leases = queue.take_with(again(1, 2), &[request(1)]).await.expect("an open queue");
    assert_eq!(all_ids(&leases), [["a"]]);
    stage.clock.advance(30_000);
    let leases = queue.take_with(again(1, 3), &[request(1)]).await.expect("an open queue");
    assert_eq!((all_ids(&leases), leases[0][0].attempt), (vec![vec!["a".to_owned()]], 2), "its first lease is over");
}

async fn q10_a_ticket_is_remembered_until_the_next_one_of_its_slot<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let tickets = [first(1), Ticket { slot: 1, ..first(2) }, Ticket { server: 8, ..first(1) }];
        for (at, ticket) in tickets.into_iter().enumerate() {
            let leases = queue.take_with(ticket, &[request(1)]).await.expect("an open queue");
            assert_eq!(all_ids(&leases), [[format!("m{at}")]]);
        }
        for (at, ticket) in tickets.into_iter().enumerate() {
            let leases = queue.take_with(Ticket { number: 9, ..ticket }, &[request(1)]).await.expect("an open queue");
            assert_eq!(all_ids(&leases), [[format!("m{at}")]]);
        }
        let next = queue.take_with(first(10), &[request(1)]).await.expect("an open queue");
        assert_eq!(all_ids(&next), [["m3"]], "a new ticket, and new leases");
        let leases = queue.take_with(again(10, 11), &[request(1)]).await;
        assert_eq!(leases, Ok(next));
    }
}

/// A request that Redis finds in its socket after it has answered the repeat: the server has given it up long ago.
async fn q10_a_try_that_comes_after_a_later_one_changes_nothing<S: Probe>(stage: &Stage<S>) {
    for queue in [stage.queue(simple()).await, stage.queue(exclusive()).await] {
        assert_eq!(queue.take_with(again(1, 2), &[request(1)]).await, Ok(vec![vec![]]), "the repeat comes first");
        queue.put([keyed("a", 1, "k")]).await;
        let before = queue.snapshot().await;
        let late = queue.take_with(first(1), &[request(1)]).await;
        assert!(matches!(late, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{late:?}");
        assert_eq!(queue.snapshot().await, before);
        let next = queue.take_with(first(3), &[request(1)]).await.expect("an open queue");
        assert_eq!(all_ids(&next), [["a"]]);
    }
}

async fn q10_a_repeat_is_answered_while_the_queue_is_paused<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let filtered = DequeueRequest { filters: vec![filter(&[(KEY, "k5")])], ..request(1) };
        queue.depth_of(&filtered.filters[0]).await;
        let requests = [request(2), named("r", 1), filtered, request(1)];
        let given = queue.take_with(first(1), &requests[..3]).await.expect("an open queue");
        queue.reconfigure(QueuePatch { dequeue_blocked: Some(true), ..QueuePatch::default() }).await;
        let blocked = Refusal::DequeueBlocked { queue: queue.name().to_string() };
        assert_eq!(queue.take_with(first(2), &requests).await, Err(blocked.clone()), "what is new is refused");
        for store in [&stage.store, &stage.other] {
            let queue = queue.through(store);
            let answer = queue.store.dequeue(&queue.shard, &requests, true, Some(again(1, 3))).await;
            let mut expected: Vec<_> = given.iter().cloned().map(Ok).collect();
            expected.push(Err(blocked.clone()));
            assert_eq!(answer.expect("an answer to each").leases, expected);
        }
    }
}

async fn q10_a_repeat_gives_only_leases_that_live<S: Probe>(stage: &Stage<S>) {
    for queue in queues(stage).await {
        let given = queue.take_with(first(1), &[request(3)]).await.expect("an open queue").remove(0);
        queue.cancel_as(to(&given[0]), true, "").await.expect("by force");
        queue.release(to(&given[2]), Some(0), "").await.expect("a live lease");
        assert_eq!(queue.take_ids(1).await, ["m2"], "leased to another");
        let again = queue.take_with(again(1, 2), &[request(3)]).await;
        assert_eq!(again, Ok(vec![vec![given[1].clone()]]));
    }
}
