//! Calls that wait for a store that hangs (O8).

use super::tests::{Rig, id_of, queue, request};
use super::*;
use crate::config::{CreateOnEnqueue, QueueTemplates, TenantConfig, TenantConfigs};
use crate::testing::{SOON, TestStore, shard_of};
use std::time::Duration;
use tallystone_model::store::LeaseRef;
use tokio::task::JoinHandle;

/// More than half of what may wait.
const MOST: usize = 100 * 1_024 * 1_024;

impl Rig {
    fn adds(&self, id: &str, bytes: usize) -> JoinHandle<Items<Enqueued>> {
        let (engine, message) = (self.engine.clone(), NewMessage::new(id_of(id), 0));
        tokio::spawn(async move { engine.enqueue(&queue("q"), vec![message], bytes, true).await })
    }

    /// A call of another verb, of this size.
    fn calls(&self, verb: Verb, bytes: usize) -> JoinHandle<Result<(), Refusal>> {
        let (engine, queue) = (self.engine.clone(), queue("q"));
        let lease = LeaseRef { id: id_of("m"), fencing_token: 1 };
        tokio::spawn(async move {
            match verb {
                Verb::Complete => engine.complete(&queue, vec![lease.into()], bytes).await.map(drop),
                Verb::Release => engine.release(&queue, vec![Release::undelivered(lease, "")], bytes).await.map(drop),
                Verb::Extend => {
                    let extension = Extension { lease, lease_ms: None, request_id: String::new() };
                    engine.extend_lease(&queue, vec![extension], bytes).await.map(drop)
                }
                Verb::Cancel => {
                    let reason = String::new();
                    let cancellation = Cancellation { id: lease.id, fencing_token: 0, force: false, reason };
                    engine.cancel(&queue, vec![cancellation], bytes).await.map(drop)
                }
                Verb::Redrive => engine.redrive(&queue, vec![lease.id], bytes).await.map(drop),
                Verb::Dequeue => engine.dequeue(&queue, request(1), bytes, Instant::now()).await.map(drop),
                Verb::Enqueue => unreachable!("see adds"),
            }
        })
    }
}

/// Lets all tasks run: this clock does not advance while one can.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// An Enqueue that finds room once another one has left.
async fn takes_the_room_of(rig: &Rig, leaves: JoinHandle<Items<Enqueued>>) -> JoinHandle<Items<Enqueued>> {
    leaves.abort();
    settled().await;
    let stays = rig.adds("stays", MOST);
    settled().await;
    assert!(!stays.is_finished());
    stays
}

#[tokio::test(start_paused = true)]
async fn o8_a_caller_that_leaves_gives_its_room_to_the_next_while_the_store_stands_still() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.store.gate.send_replace(false);
    let first = rig.adds("first", 0);
    rig.store.called("enqueue", 1).await;
    let second = rig.adds("second", 0);
    rig.store.called("enqueue", 2).await;
    let leaves = rig.adds("leaves", MOST);
    settled().await;
    let refused = rig.adds("refused", MOST).await.unwrap();
    assert!(matches!(refused, Err(Refusal::Overloaded { retry_after }) if !retry_after.is_zero()), "{refused:?}");
    let stays = takes_the_room_of(&rig, leaves).await;
    rig.store.gate.send_replace(true);
    for call in [first, second, stays] {
        call.await.unwrap().unwrap();
    }
    assert_eq!(rig.store.oracle.depth(&shard_of("q"), None).await.unwrap().pending, 3, "what was left is not sent");
}

#[tokio::test(start_paused = true)]
async fn o8_an_enqueue_that_waits_for_a_reading_of_its_tenant_has_a_place() {
    let (name, prefix, messages_max) = ("t".to_owned(), "q".to_owned(), Some(10));
    let tenant = TenantConfig { name, prefix, messages_max, ..TenantConfig::default() };
    let tenants = TenantConfigs(vec![tenant]);
    let rig = Rig::with(&TestStore::new(), CreateOnEnqueue::Always, QueueTemplates::default(), tenants);
    rig.store.gate.send_replace(false);
    let leaves = rig.adds("leaves", MOST);
    rig.store.called("list_queues", 1).await;
    let refused = tokio::time::timeout(SOON, rig.adds("refused", MOST)).await.expect("no wait").unwrap();
    assert!(matches!(refused, Err(Refusal::Overloaded { .. })), "{refused:?}");
    let stays = takes_the_room_of(&rig, leaves).await;
    rig.store.gate.send_replace(true);
    stays.await.unwrap().unwrap()[0].as_ref().unwrap();
    assert_eq!(rig.store.oracle.depth(&shard_of("q"), None).await.unwrap().pending, 1);
}

#[tokio::test(start_paused = true)]
async fn o8_calls_of_every_verb_wait_within_bounds_and_give_their_room_back_when_their_callers_leave() {
    for (verb, name) in [
        (Verb::Complete, "complete"),
        (Verb::Release, "release"),
        (Verb::Extend, "extend_lease"),
        (Verb::Cancel, "cancel"),
        (Verb::Dequeue, "dequeue"),
        (Verb::Redrive, "redrive"),
    ] {
        let rig = Rig::with_queues(&["q"]).await;
        rig.store.gate.send_replace(false);
        let mut sent = Vec::new();
        for number in 1..=2 {
            sent.push(rig.calls(verb, 0));
            rig.store.called(name, number).await;
        }
        let leaves = rig.calls(verb, MOST);
        settled().await;
        let refused = rig.calls(verb, MOST).await.unwrap();
        assert!(matches!(refused, Err(Refusal::Overloaded { .. })), "{verb:?}: {refused:?}");
        leaves.abort();
        settled().await;
        let stays = rig.calls(verb, MOST);
        settled().await;
        assert!(!stays.is_finished(), "{verb:?}");
        rig.store.gate.send_replace(true);
        for call in sent.into_iter().chain([stays]) {
            call.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn o8_a_flood_of_one_kind_takes_no_place_of_another() {
    let rig = Rig::with_queues(&["q"]).await;
    rig.store.gate.send_replace(false);
    let flood = [rig.adds("a", 0), rig.adds("b", MOST)];
    settled().await;
    assert!(matches!(rig.adds("c", MOST).await.unwrap(), Err(Refusal::Overloaded { .. })));
    let others = [rig.calls(Verb::Cancel, 0), rig.calls(Verb::Dequeue, MOST)];
    settled().await;
    assert!(matches!(rig.calls(Verb::Cancel, MOST).await.unwrap(), Err(Refusal::Overloaded { .. })));
    let work_is_done = [rig.calls(Verb::Complete, 0), rig.calls(Verb::Release, MOST)];
    settled().await;
    assert!(others.iter().chain(&work_is_done).all(|call| !call.is_finished()));
    rig.store.gate.send_replace(true);
    for call in flood {
        call.await.unwrap().unwrap();
    }
    for call in others.into_iter().chain(work_is_done) {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn o8_a_dequeue_that_waits_for_messages_gives_its_room_to_others() {
    let rig = Rig::with_queues(&["q"]).await;
    let engine = rig.engine.clone();
    let until = Instant::now() + Duration::from_secs(60);
    let waits = tokio::spawn(async move { engine.dequeue(&queue("q"), request(1), MOST, until).await });
    settled().await;
    assert!(!waits.is_finished());
    rig.calls(Verb::Cancel, MOST).await.unwrap().unwrap();
    waits.abort();
}
