//! What a Dequeue over several shards does when one of them does not answer; in `others` what the other calls do, in `request_ids` what
//! several tries of one request get, and in `resharding` what calls do while the number of shards is being changed.

use super::Sharded;
use crate::testing::{TestStore, shard_of};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::store::{Cancellation, DequeueRequest, Dequeued, Ticket};
use tallystone_model::{Applied, MessageId, NewMessage, QueueConfig, Refusal, Shard, State, Store};
use tokio::time::Instant;

mod others;
mod request_ids;
mod resharding;

const SHARDS: u16 = 4;

/// The longest time that a call waits for a shard.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longer than the time between two calls of a shard that does not answer.
const RETRY: Duration = Duration::from_secs(1);

struct World {
    store: Arc<TestStore>,
    queue: Sharded<TestStore>,
    shard: Shard,
}

impl World {
    /// Sends a message to this shard through a server.
    async fn send(&self, server: &Sharded<TestStore>, number: u16, name: &str) {
        let ids = (0..).map(|n| MessageId::parse("id", format!("{name}{n}")).unwrap());
        let id = ids.into_iter().find(|id| Shard::number_of(SHARDS, None, id) == number).unwrap();
        server.enqueue(&self.shard, vec![NewMessage::new(id, 1)]).await.unwrap();
    }

    /// A queue with so many messages in each shard.
    async fn new(each: usize) -> World {
        let (store, shard) = (TestStore::new(), shard_of("q"));
        let queue = Sharded::new(store.clone());
        let config = QueueConfig { shards: SHARDS, ..QueueConfig::default() };
        queue.create_queue(&shard.queue, config).await.unwrap();
        let mut missing = [each; SHARDS as usize];
        let mut messages = Vec::new();
        for number in 0.. {
            let id = MessageId::parse("id", format!("m{number}")).unwrap();
            let missing_there = &mut missing[usize::from(Shard::number_of(SHARDS, None, &id))];
            if *missing_there > 0 {
                *missing_there -= 1;
                messages.push(NewMessage::new(id, 1));
            }
            if missing.iter().sum::<usize>() == 0 {
                break;
            }
        }
        queue.enqueue(&shard, messages).await.unwrap();
        World { store, queue, shard }
    }

    async fn dequeue(&self, limits: &[usize], number: u64) -> Result<Dequeued, Refusal> {
        let ticket = Ticket { server: 1, slot: 0, first: 1, number };
        self.dequeue_as(limits, true, Some(ticket)).await
    }

    /// A Dequeue with a separate ticket.
    async fn first_try(&self, limits: &[usize], number: u64) -> Result<Dequeued, Refusal> {
        let ticket = Ticket { server: 1, slot: 0, first: number, number };
        self.dequeue_as(limits, true, Some(ticket)).await
    }

    async fn running(&self) -> u64 {
        let mut running = 0;
        for number in 0..SHARDS {
            running += self.store.oracle.depth(&self.shard.sibling(number), None).await.unwrap().running;
        }
        running
    }

    async fn dequeue_as(&self, limits: &[usize], wait: bool, ticket: Option<Ticket>) -> Result<Dequeued, Refusal> {
        let requests: Vec<DequeueRequest> = limits.iter().map(|limit| request(*limit)).collect();
        self.queue.dequeue(&self.shard, &requests, wait, ticket).await
    }
}

fn request(limit: usize) -> DequeueRequest {
    let (worker, filters, request_id) = ("w".to_owned(), Vec::new(), String::new());
    DequeueRequest { worker, limit, lease_ms: None, filters, request_id }
}

fn counts(dequeued: &Dequeued) -> Vec<usize> {
    dequeued.leases.iter().map(|leases| leases.as_ref().map_or(0, Vec::len)).collect()
}

#[tokio::test(start_paused = true)]
async fn x3_a_shard_that_is_unavailable_leaves_the_others() {
    let world = World::new(10).await;
    world.store.away_shards.store(0b100, Ordering::SeqCst);
    let found = world.dequeue(&[8, 8, 8], 1).await.unwrap();
    // Each gets what the others give; the lane comes again for the rest.
    let given = counts(&found);
    assert!(given.iter().all(|count| (1..=8).contains(count)), "{found:?}");
    let rest = world.dequeue(&[9], 2).await;
    // The ticket is a repetition: it cannot be known what the shard gave.
    assert!(matches!(rest, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{rest:?}");
    world.store.away_shards.store(0, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(1)).await;
    let again = world.dequeue(&[8, 8, 8], 3).await.unwrap();
    assert_eq!(counts(&again), given, "the same leases");
    let depth = world.queue.depth(&world.shard, None).await.unwrap();
    let running = given.iter().sum::<usize>() as u64;
    assert_eq!((depth.running, depth.pending), (running, 40 - running));
}

/// The leases that have their workers, by their ids.
fn ids(dequeued: &Dequeued) -> Vec<String> {
    dequeued.leases.iter().flatten().flatten().map(|lease| lease.id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn q10_a_reply_that_one_shard_has_lost_is_found_by_the_next_call() {
    let world = World::new(10).await;
    world.store.lose.store(1, Ordering::SeqCst);
    let first = world.first_try(&[3, 3, 3, 3], 2).await.unwrap();
    assert_eq!(counts(&first), [3, 3, 3, 3], "the others have more");
    assert!(world.running().await > 12, "one has given leases without an answer");
    tokio::time::advance(RETRY).await;
    let rest = world.first_try(&[40], 4).await.unwrap();
    let leased: BTreeSet<String> = ids(&first).into_iter().chain(ids(&rest)).collect();
    assert_eq!((leased.len(), ids(&rest).len(), world.running().await), (40, 28, 40));
    let attempts: BTreeSet<u32> = rest.leases.iter().flatten().flatten().map(|lease| lease.attempt).collect();
    assert_eq!(attempts, [1].into(), "a worker gets what it has given");
}

#[tokio::test(start_paused = true)]
async fn q11_a_lease_that_waited_for_its_caller_says_what_is_left_of_it() {
    let world = World::new(10).await;
    world.store.lose.store(1, Ordering::SeqCst);
    let first = ids(&world.first_try(&[3, 3, 3, 3], 2).await.unwrap());
    let given = world.running().await as usize - first.len();
    assert!(given > 0, "one has given leases without an answer");
    // It is repeated at once. The store's clock stands still, the server's does not.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let rest = world.first_try(&[40], 4).await.unwrap();
    let left_ms = rest.leases.iter().flatten().flatten().map(|lease| lease.left_ms);
    let (waited, others): (Vec<u64>, Vec<u64>) = left_ms.partition(|left_ms| *left_ms < 30_000);
    assert_eq!((waited, others), (vec![29_300; given], vec![30_000; 28 - given]));
}

#[tokio::test(start_paused = true)]
async fn x4_a_shard_that_hangs_leaves_the_leases_of_the_others() {
    let world = World::new(10).await;
    let began = Instant::now();
    world.store.hung_shards.send_replace(0b100);
    let (mut leased, mut number) = (Vec::new(), 0);
    while leased.len() < 30 {
        number += 2;
        leased.extend(ids(&world.first_try(&[4], number).await.unwrap()));
        assert!(began.elapsed() < 2 * PATIENCE, "{} leases after {:?}", leased.len(), began.elapsed());
    }
    // What it may have given is not known, and no other Dequeue goes there.
    let empty = world.first_try(&[4], number + 2).await.unwrap();
    assert!(matches!(empty.leases[0], Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{empty:?}");
    let given = world.running().await - 30;
    assert!((1..=4).contains(&given), "it has given {given}");
    world.store.hung_shards.send_replace(0);
    tokio::time::advance(RETRY).await;
    while leased.len() < 40 {
        number += 4;
        let found = world.first_try(&[4], number).await.unwrap();
        let attempts: BTreeSet<u32> = found.leases.iter().flatten().flatten().map(|lease| lease.attempt).collect();
        assert_eq!(attempts, [1].into(), "a worker gets what it has given");
        leased.extend(ids(&found));
    }
    assert_eq!((leased.iter().collect::<BTreeSet<_>>().len(), world.running().await), (40, 40));
}

#[tokio::test(start_paused = true)]
async fn x4_what_a_shard_that_hung_has_given_is_released_if_no_caller_needs_it() {
    let world = World::new(1).await;
    world.store.hung_shards.send_replace(0b1111);
    let lost = world.first_try(&[4], 2).await.unwrap();
    assert!(matches!(lost.leases[0], Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{lost:?}");
    assert_eq!(world.running().await, 4);
    let notified: Arc<Mutex<BTreeSet<u16>>> = Arc::default();
    let sink = notified.clone();
    world.queue.on_ready(Box::new(move |shard| {
        sink.lock().unwrap().insert(shard.number);
    }));
    world.store.hung_shards.send_replace(0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.running().await, 0);
    // As a Dequeue after it gets them, too.
    assert_eq!(counts(&world.first_try(&[4], 4).await.unwrap()), [4]);
}

#[tokio::test(start_paused = true)]
async fn q23_what_a_shard_that_hung_has_given_is_not_given_to_a_caller_after_it_was_revoked() {
    let world = World::new(1).await;
    world.queue.on_revoked(Box::new(|_, _| {}));
    world.store.hung_shards.send_replace(0b1111);
    world.first_try(&[4], 2).await.unwrap();
    // The repetitions have found the leases, and their answers are under way.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (oracle, first) = (&world.store.oracle, world.shard.sibling(0));
    let id = oracle.list_messages(&first, State::Running, "", 1).await.unwrap().items.remove(0).id;
    let cancellation = Cancellation { id: id.clone(), fencing_token: 0, force: true, reason: String::new() };
    assert!(oracle.cancel(&first, vec![cancellation]).await.unwrap()[0].is_ok());
    world.store.hung_shards.send_replace(0);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let found = world.first_try(&[4], 4).await.unwrap();
    assert_eq!((counts(&found), ids(&found).contains(&id.to_string())), (vec![3], false));
    assert!(found.leases.iter().flatten().flatten().all(|lease| lease.attempt == 1), "found, not leased again");
}

#[tokio::test(start_paused = true)]
async fn x4_a_late_try_at_a_shard_that_hung_gives_nothing() {
    let world = World::new(10).await;
    world.store.hung_shards.send_replace(0b1111);
    world.first_try(&[4], 2).await.unwrap();
    world.store.hung_shards.send_replace(0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let shard = &world.shard;
    let ticket = Ticket { server: 1, slot: 0, first: 2, number: 2 };
    for number in 0..SHARDS {
        let late = world.store.dequeue(&shard.sibling(number), &[request(4)], false, Some(ticket)).await;
        assert_eq!(late, Err(Refusal::overtaken()), "shard {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn x4_a_shard_that_hangs_holds_up_each_write_once() {
    let world = World::new(0).await;
    world.store.hung_shards.send_replace(0b10);
    let began = Instant::now();
    for round in 0..20 {
        let messages = (0..40).map(|n| NewMessage::new(MessageId::parse("id", format!("{round}-{n}")).unwrap(), 1));
        let sent = world.queue.enqueue(&world.shard, messages.collect()).await.unwrap();
        let accepted = sent.iter().filter(|sent| sent.is_ok()).count();
        assert!((1..40).contains(&accepted), "{accepted} of 40");
    }
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    world.store.hung_shards.send_replace(0);
    tokio::time::sleep(2 * RETRY).await;
    world.send(&world.queue, 1, "again").await;
}

#[tokio::test(start_paused = true)]
async fn q18_a_request_that_gets_a_part_is_notified_of_what_comes_to_any_shard() {
    let world = World::new(1).await;
    let notified: Arc<Mutex<BTreeSet<u16>>> = Arc::default();
    let sink = notified.clone();
    world.queue.on_ready(Box::new(move |shard| {
        sink.lock().unwrap().insert(shard.number);
    }));
    // No caller waits: the server learns that nothing is left, and leaves no mark.
    assert_eq!(counts(&world.dequeue_as(&[9], false, None).await.unwrap()), [4]);
    world.send(&world.queue, 0, "first").await;
    assert_eq!(counts(&world.dequeue_as(&[9], true, None).await.unwrap()), [1]);
    let other = Sharded::new(world.store.clone());
    for number in 0..SHARDS {
        world.send(&other, number, "second").await;
    }
    assert_eq!(*notified.lock().unwrap(), (0..SHARDS).collect());
}

#[tokio::test(start_paused = true)]
async fn x3_the_layout_is_read_again_only_where_a_shard_has_another_one() {
    let world = World::new(1).await;
    world.store.away.store(true, Ordering::SeqCst);
    let before = world.store.calls("get_queue");
    let messages = (0..20).map(|n| NewMessage::new(MessageId::parse("id", format!("a{n}")).unwrap(), 1)).collect();
    let refused = world.queue.enqueue(&world.shard, messages).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{refused:?}");
    assert_eq!(world.store.calls("get_queue"), before);
}

/// A shard repeats to a second call under the same ticket what it gave to the first.
#[tokio::test(start_paused = true)]
async fn q17_a_large_limit_gets_each_lease_once() {
    let world = World::new(200).await;
    let found = world.first_try(&[400], 2).await.unwrap();
    let leased = ids(&found);
    assert!(leased.len() > 60, "{}", leased.len());
    assert_eq!(
        (leased.iter().collect::<BTreeSet<_>>().len(), world.running().await),
        (leased.len(), leased.len() as u64)
    );
}
