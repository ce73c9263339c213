//! What the calls other than Dequeues do when a shard does not answer (X3, X4).

use super::{PATIENCE, RETRY, SHARDS, World, ids};
use crate::sharded::Sharded;
use crate::testing::{TestStore, shard_of};
use std::collections::BTreeMap;
use tallystone_model::store::{Cancellation, Items, MessagePatch, Transition};
use tallystone_model::{
    Applied, Change, ChangeRequest, MessageId, Metadata, NewMessage, QueueConfig, QueueType, Refusal, Selection, Shard,
    State, Store, fencing,
};
use tokio::time::{Instant, sleep, timeout};

const KEY: &str = "tail";
const HUNG: u16 = 2;

/// An exclusivity value of this shard.
fn name_in(number: u16) -> String {
    let is_there = |name: &String| number_of(name) == number;
    (0..).map(|n| format!("n{n}")).find(is_there).unwrap()
}

/// The id of a message of this shard of a simple queue.
fn simple_id_in(number: u16) -> MessageId {
    let is_there = |name: &String| Shard::number_of(SHARDS, None, &id(name)) == number;
    id(&(0..).map(|n| format!("m{n}")).find(is_there).unwrap())
}

fn number_of(name: &str) -> u16 {
    Shard::number_of(SHARDS, Some(name), &id(name))
}

fn id(name: &str) -> MessageId {
    MessageId::parse("id", name.to_owned()).unwrap()
}

/// An exclusive queue with a message in each shard, whose id is its value.
async fn exclusive() -> World {
    let (store, shard) = (TestStore::new(), shard_of("q"));
    let queue = Sharded::new(store.clone());
    let queue_type = QueueType::Exclusive { key: KEY.to_owned() };
    let config = QueueConfig { shards: SHARDS, queue_type, ..QueueConfig::default() };
    queue.create_queue(&shard.queue, config).await.unwrap();
    let message = |number| {
        let name = name_in(number);
        let metadata = Metadata::parse([(KEY.to_owned(), name.clone())].into()).unwrap();
        NewMessage { metadata, ..NewMessage::new(id(&name), 1) }
    };
    for sent in queue.enqueue(&shard, (0..SHARDS).map(message).collect()).await.unwrap() {
        sent.unwrap();
    }
    World { store, queue, shard }
}

/// The fencing tokens of the messages of [`exclusive`], by their shards.
async fn lease_all(world: &World) -> BTreeMap<u16, u64> {
    let (mut tokens, mut number) = (BTreeMap::new(), 0);
    while tokens.len() < usize::from(SHARDS) {
        number += 2;
        let found = world.first_try(&[4], number).await.unwrap();
        assert!(!ids(&found).is_empty());
        for lease in found.leases.into_iter().flatten().flatten() {
            tokens.insert(number_of(lease.id.as_str()), lease.fencing_token);
        }
    }
    tokens
}

fn cancellation(name: &str, fencing_token: u64, force: bool) -> Cancellation {
    Cancellation { id: id(name), fencing_token, force, reason: String::new() }
}

/// Whether the item was certainly not sent.
fn is_not_sent<T>(result: &Result<T, Refusal>) -> bool {
    matches!(result, Err(Refusal::Unavailable { applied: Applied::No, .. }))
}

#[tokio::test(start_paused = true)]
async fn x4_an_id_that_a_hung_shard_may_have_refuses_no_other_item_of_its_call() {
    let world = exclusive().await;
    let tokens = lease_all(&world).await;
    world.store.hung_shards.send_replace(1 << HUNG);
    let cancellations = vec![
        cancellation("none", 0, true),
        cancellation("none", fencing::token(SHARDS, 1), false),
        cancellation(&name_in(0), 0, true),
        cancellation(&name_in(1), tokens[&1], false),
        cancellation(&name_in(3), tokens[&3], false),
        cancellation(&name_in(HUNG), tokens[&HUNG], false),
    ];
    let began = Instant::now();
    let canceled: Items<Transition> =
        timeout(3 * PATIENCE, world.queue.cancel(&world.shard, cancellations)).await.expect("it waits once");
    let canceled = canceled.expect("some shards answer");
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    let not_sent: Vec<bool> = canceled.iter().map(is_not_sent).collect();
    assert_eq!(not_sent, [true, true, false, false, false, true], "{canceled:?}");
    assert!(canceled[2..5].iter().all(Result::is_ok), "{canceled:?}");
    world.store.hung_shards.send_replace(0);
    sleep(2 * RETRY).await;
    let rest = vec![cancellation("none", 0, true), cancellation(&name_in(HUNG), 0, true)];
    let rest = world.queue.cancel(&world.shard, rest).await.unwrap();
    assert!(matches!(rest[0], Err(Refusal::MessageNotFound { .. })) && rest[1].is_ok(), "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn x4_a_shard_that_hangs_holds_up_reads_and_operators_once() {
    let world = World::new(3).await;
    let (queue, shard) = (&world.queue, &world.shard);
    let there = simple_id_in(HUNG);
    let cursor = format!("{HUNG}/");
    let patch = || MessagePatch { priority: Some(7), ..MessagePatch::default() };
    let selection = Selection { states: [State::Pending].into(), ..Selection::default() };
    let change = ChangeRequest { selection, change: Change::Cancel { reason: String::new() }, dry_run: true };
    world.store.hung_shards.send_replace(1 << HUNG);
    let began = Instant::now();
    let calls = async {
        for round in 0..10 {
            let refused = [
                queue.depth(shard, None).await.err(),
                queue.ages(shard).await.err(),
                queue.explain(shard, &there).await.err(),
                queue.list_messages(shard, State::Pending, "", 100).await.err(),
                queue.check(shard, &cursor).await.err(),
                queue.purge(shard, true, &cursor).await.err(),
                queue.update_message(shard, &there, patch()).await.err(),
                queue.change_messages(shard, &change, &cursor, 10).await.err(),
            ];
            for refusal in refused.into_iter().skip(usize::from(round == 0)) {
                assert!(is_not_sent(&refusal.map_or(Ok(()), Err)), "round {round}");
            }
        }
    };
    timeout(3 * PATIENCE, calls).await.expect("they wait once");
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    // The others answer.
    assert!(queue.check(shard, "1/").await.is_ok() && queue.purge(shard, true, "1/").await.is_ok());
    world.store.hung_shards.send_replace(0);
    sleep(2 * RETRY).await;
    assert_eq!(queue.depth(shard, None).await.unwrap().pending, u64::from(SHARDS - 1) * 3);
}

#[tokio::test(start_paused = true)]
async fn x3_a_write_that_was_not_sent_to_a_silent_shard_says_so() {
    let world = World::new(1).await;
    let there = simple_id_in(HUNG);
    let update = async || {
        let patch = MessagePatch { priority: Some(7), ..MessagePatch::default() };
        let updated = world.queue.update_message(&world.shard, &there, patch);
        timeout(3 * PATIENCE, updated).await.expect("it waits once")
    };
    world.store.hung_shards.send_replace(1 << HUNG);
    let sent = update().await;
    assert!(matches!(sent, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{sent:?}");
    assert!(is_not_sent(&update().await));
    world.store.hung_shards.send_replace(0);
    sleep(2 * RETRY).await;
    assert!(update().await.is_ok());
    // Also if a Dequeue may have got leases there.
    world.store.hung_shards.send_replace(1 << HUNG);
    world.first_try(&[4], 2).await.unwrap();
    assert!(is_not_sent(&update().await));
}
