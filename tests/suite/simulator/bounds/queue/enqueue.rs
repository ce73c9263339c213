//! Enqueue.

use crate::simulator::bounds::budget::{Case, Scope};
use crate::simulator::bounds::stage::*;
use tallystone_lua::Script;
use tallystone_model::limits::*;
use tallystone_model::{NewMessage, QueueConfig, QueuePatch, Refusal, Store};

const ALL: usize = BATCH_ITEMS_MAX;

pub(super) async fn cases(size: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    cases.push(fresh("new", simple(), 0, SMALL, ALL, size).await);
    cases.push(fresh("new, the largest", exclusive(0), PAYLOAD_BYTES_MAX as u16, PAYLOAD_BYTES_MAX, 100, size).await);
    cases.push(fresh("new, all indexes", exclusive(ALL_INDEXES), 0, SMALL, ALL, size).await);
    cases.push(known("known, other content", simple(), size, |new| new).await);
    cases.push(known("known, coalesced", exclusive(0), size, |new| NewMessage { coalesce: true, ..new }).await);
    cases.push(ended(size).await);
    cases.push(remembered(size).await);
    cases.push(closed("of a closed shard", simple(), size).await);
    cases.push(closed("of a closed shard, exclusive", exclusive(0), size).await);
    cases
}

async fn measured(stage: &Stage, what: &'static str, size: usize, indexes: usize, new: Vec<NewMessage>) -> Case {
    let scope = Scope { items: new.len(), indexes, ..Scope::default() };
    let calls = stage
        .metered(Script::Enqueue, async {
            let results = stage.store.enqueue(&stage.shard, new).await.expect("an open queue");
            assert_eq!(results.len(), scope.items);
        })
        .await;
    Case::new("enqueue", what, size, scope, calls)
}

async fn fresh(
    what: &'static str,
    config: QueueConfig,
    payloads_kept: u16,
    payload: usize,
    items: usize,
    size: usize,
) -> Case {
    let indexes = config.indexes.len();
    let stage = Stage::with_payloads(config, payloads_kept).await;
    // Behind the same values, so that each finds a head that is less urgent.
    stage.put((0..200 * size).map(|n| message(ALL + n, SMALL, n, n % FILTERS_MAX))).await;
    measured(&stage, what, size, indexes, messages(0..items, payload).collect()).await
}

/// The queue has a large message under each id, and gets a small one.
async fn known(what: &'static str, config: QueueConfig, size: usize, change: fn(NewMessage) -> NewMessage) -> Case {
    let stage = Stage::new(config).await;
    stage.put(messages(0..ALL, PAYLOAD_BYTES_MAX).map(|new| NewMessage { priority: 1 << 40, ..new })).await;
    stage.put(messages(2 * ALL..2 * ALL + 100 * size, SMALL)).await;
    measured(&stage, what, size, 0, messages(0..ALL, SMALL).map(change).collect()).await
}

/// The message under each id has ended: it is collected, and the new one takes its place.
async fn ended(size: usize) -> Case {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..ALL, PAYLOAD_BYTES_MAX)).await;
    stage.put(messages(2 * ALL..2 * ALL + 100 * size, SMALL)).await;
    for leases in stage.take(ALL).await.chunks(100) {
        let releases = leases.iter().map(super::verbs::failure).collect();
        stage.store.release(&stage.shard, releases).await.expect("an open queue");
    }
    stage.fill_attempts((0..ALL).map(id));
    let new = messages(0..ALL, SMALL).map(|new| NewMessage { coalesce: true, ..new }).collect();
    measured(&stage, "ended, coalesced", size, 0, new).await
}

async fn remembered(size: usize) -> Case {
    let stage = Stage::new(QueueConfig { id_window_ms: DELAY_MS_MAX, ..simple() }).await;
    for number in 0..ALL * size {
        stage.remember_id(number, stage.now_ms() + DELAY_MS_MAX);
    }
    measured(&stage, "remembered", size, 0, messages(0..ALL, SMALL).collect()).await
}

/// The shard is closed. It collects the messages of the first half, whose values it keeps if it is exclusive, and forgets the ids of
/// the others.
async fn closed(what: &'static str, config: QueueConfig, size: usize) -> Case {
    let kept = config.queue_type.key().map_or(0, |_| ALL / 2);
    let stage = Stage::new(QueueConfig { id_window_ms: DELAY_MS_MAX, ..config }).await;
    stage.put(messages(0..ALL / 2, PAYLOAD_BYTES_MAX)).await;
    for leases in stage.take(ALL / 2).await.chunks(100) {
        let releases = leases.iter().map(super::verbs::failure).collect();
        stage.store.release(&stage.shard, releases).await.expect("an open queue");
    }
    stage.fill_attempts((0..ALL / 2).map(id));
    for number in ALL / 2..ALL * size {
        stage.remember_id(number, stage.now_ms() + DELAY_MS_MAX);
    }
    let change = QueuePatch { shards: Some(2), ..QueuePatch::default() };
    stage.store.update_queue(&stage.shard.queue, change).await.expect("a change");
    let new: Vec<NewMessage> = messages(0..ALL, SMALL).map(|new| NewMessage { coalesce: true, ..new }).collect();
    let case = measured(&stage, what, size, kept.min(1), new.clone()).await;
    let again = stage.store.enqueue(&stage.shard, new).await.expect("an open queue");
    assert!(again[..kept].iter().all(Result::is_ok));
    assert!(again[kept..].iter().all(|result| result.as_ref().is_err_and(Refusal::is_moved)));
    case
}
