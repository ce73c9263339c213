//! What calls do while the number of shards is being changed and a shard does not answer (Q17, X4).

use super::{PATIENCE, RETRY, SHARDS, World, ids};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{Completion, LeaseRef};
use tallystone_model::{Applied, MessageId, NewMessage, QueuePatch, Refusal, Shard, State, Store};
use tokio::time::{Instant, sleep};

/// How many shards take new messages: those from number [`SHARDS`] on.
const NEW: u16 = 3;

/// A queue with this number of messages in each of its earlier shards, whose number of shards was just changed.
async fn draining(each: usize) -> World {
    let world = World::new(each).await;
    world.change_shards().await;
    world
}

/// The id of a message whose earlier shard and new shard have these numbers.
fn id_in(old: u16, new: u16) -> MessageId {
    let ids = (0..).map(|n| MessageId::parse("id", format!("x{n}")).unwrap());
    let is_it =
        |id: &MessageId| (Shard::number_of(SHARDS, None, id), SHARDS + Shard::number_of(NEW, None, id)) == (old, new);
    ids.into_iter().find(is_it).unwrap()
}

fn messages(round: usize) -> Vec<NewMessage> {
    (0..40).map(|n| NewMessage::new(MessageId::parse("id", format!("{round}-{n}")).unwrap(), 1)).collect()
}

impl World {
    async fn change_shards(&self) {
        let patch = QueuePatch { shards: Some(NEW), ..QueuePatch::default() };
        self.queue.update_queue(&self.shard.queue, patch).await.unwrap();
    }

    async fn put(&self, message: NewMessage) -> Result<Enqueued, Refusal> {
        self.queue.enqueue(&self.shard, vec![message]).await?.remove(0)
    }
}

#[tokio::test(start_paused = true)]
async fn x4_a_message_whose_earlier_shard_does_not_answer_is_sent_to_no_new_one() {
    let world = draining(0).await;
    world.store.hung_shards.send_replace(0b10);
    let began = Instant::now();
    for round in 0..20 {
        let sent = world.queue.enqueue(&world.shard, messages(round)).await.unwrap();
        for (message, sent) in messages(round).iter().zip(sent) {
            let is_hung = Shard::number_of(SHARDS, None, &message.id) == 1;
            assert_eq!(sent.is_err(), is_hung, "{:?}: {sent:?}", message.id);
        }
    }
    assert!(began.elapsed() < 2 * PATIENCE, "{:?}", began.elapsed());
    world.store.hung_shards.send_replace(0);
    sleep(2 * RETRY).await;
    // Repeated, each is one message.
    for round in 0..20 {
        assert!(world.queue.enqueue(&world.shard, messages(round)).await.unwrap().iter().all(Result::is_ok));
    }
    assert_eq!(world.queue.depth(&world.shard, None).await.unwrap().pending, 20 * 40);
}

#[tokio::test(start_paused = true)]
async fn x4_a_message_whose_new_shard_does_not_answer_may_be_there() {
    let world = draining(1).await;
    world.store.hung_shards.send_replace(1 << SHARDS);
    let late = world.put(NewMessage::new(id_in(2, SHARDS), 1)).await;
    assert!(matches!(late, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{late:?}");
    // From now on the shard is not called: a message for it is refused, certainly without effect.
    let other = (0..).map(|n| MessageId::parse("id", format!("y{n}")).unwrap());
    let other = other.into_iter().find(|id| Shard::number_of(NEW, None, id) == 0).unwrap();
    let refused = world.put(NewMessage::new(other, 1)).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{refused:?}");
    // But not if the earlier shard may have collected the message of its id.
    let coalesced = world.put(NewMessage { coalesce: true, ..NewMessage::new(id_in(3, SHARDS), 1) }).await;
    assert!(matches!(coalesced, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{coalesced:?}");
    world.store.hung_shards.send_replace(0);
    sleep(2 * RETRY).await;
    world.put(NewMessage::new(id_in(2, SHARDS), 1)).await.unwrap();
    assert_eq!(world.queue.depth(&world.shard, None).await.unwrap().pending, 5);
}

#[tokio::test(start_paused = true)]
async fn x4_a_change_of_the_number_does_not_forget_which_shards_are_silent() {
    let world = World::new(1).await;
    world.store.hung_shards.send_replace(0b10);
    let first = world.first_try(&[4], 2).await.unwrap();
    assert_eq!((ids(&first).len(), world.running().await), (3, 4), "one has given a lease without an answer");
    world.change_shards().await;
    let began = Instant::now();
    // What it has given is not known, and no call goes there.
    let empty = world.first_try(&[4], 4).await.unwrap();
    assert!(matches!(empty.leases[0], Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{empty:?}");
    let refused = world.put(NewMessage::new(id_in(1, SHARDS), 1)).await;
    assert!(matches!(refused, Err(Refusal::Unavailable { applied: Applied::No, .. })), "{refused:?}");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    world.store.hung_shards.send_replace(0);
    sleep(Duration::from_millis(1)).await;
    // The task that began before the change has found the lease, and calls of the new layout go to the shard at once.
    let found = world.first_try(&[4], 6).await.unwrap();
    let attempts: Vec<u32> = found.leases.iter().flatten().flatten().map(|lease| lease.attempt).collect();
    assert_eq!((attempts, world.running().await), (vec![1], 4), "a worker gets what it has given");
    world.put(NewMessage::new(id_in(1, SHARDS), 1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn q18_a_worker_of_the_sending_server_is_notified_of_each_shard_that_takes_a_message() {
    let world = draining(1).await;
    let notified: Arc<Mutex<BTreeSet<u16>>> = Arc::default();
    let sink = notified.clone();
    world.queue.on_ready(Box::new(move |shard| {
        sink.lock().unwrap().insert(shard.number);
    }));
    let leased = world.first_try(&[9], 2).await.unwrap();
    assert_eq!(ids(&leased).len(), 4);
    for new in SHARDS..SHARDS + NEW {
        notified.lock().unwrap().clear();
        world.put(NewMessage::new(id_in(1, new), 1)).await.unwrap();
        assert!(notified.lock().unwrap().contains(&new), "{new}");
    }
    // What an earlier shard answers by itself notifies no caller.
    notified.lock().unwrap().clear();
    let known = leased.leases[0].as_ref().unwrap()[0].clone();
    world.put(NewMessage { payload: known.payload.clone(), ..NewMessage::new(known.id.clone(), 1) }).await.unwrap();
    assert!(notified.lock().unwrap().is_disjoint(&(SHARDS..SHARDS + NEW).collect()));
    // The token names the earlier shard: no search for the id, and a silent new shard does not matter.
    world.store.hung_shards.send_replace(0b111 << SHARDS);
    let lease = LeaseRef { id: known.id, fencing_token: known.fencing_token };
    let completed = world.queue.complete(&world.shard, vec![Completion::from(lease)]).await.unwrap().remove(0);
    assert_eq!(completed.unwrap().state, State::Completed);
}
