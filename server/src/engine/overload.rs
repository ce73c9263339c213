//! New messages that wait for a store that hangs (O8).

use super::tests::{Rig, id_of, queue};
use super::*;
use crate::testing::shard_of;
use std::time::Duration;
use tokio::task::JoinHandle;

/// More than half of what may wait.
const MOST: usize = 100 * 1_024 * 1_024;

impl Rig {
    fn adds(&self, id: &str, bytes: usize) -> JoinHandle<Items<Enqueued>> {
        let (engine, message) = (self.engine.clone(), NewMessage::new(id_of(id), 0));
        tokio::spawn(async move { engine.enqueue(&queue("q"), vec![message], bytes, true).await })
    }
}

/// Lets all tasks run: this clock does not advance while one can.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
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
    leaves.abort();
    settled().await;
    let stays = rig.adds("stays", MOST);
    settled().await;
    assert!(!stays.is_finished());
    rig.store.gate.send_replace(true);
    for call in [first, second, stays] {
        call.await.unwrap().unwrap();
    }
    assert_eq!(rig.store.oracle.depth(&shard_of("q"), None).await.unwrap().pending, 3, "what was left is not sent");
}
