//! Queues as a whole, and the work in the background.

use super::dequeue::build as build_index;
use super::verbs::failure;
use crate::simulator::bounds::budget::{Case, Scope};
use crate::simulator::bounds::stage::*;
use std::collections::HashSet;
use std::time::Duration;
use tallystone_lua::Script;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::{NewMessage, QueueConfig, QueuePatch, Shard};

const ALL: usize = BATCH_ITEMS_MAX;

/// Collects everything.
async fn purge_all(stage: &Stage) {
    let mut cursor = String::new();
    loop {
        cursor = stage.store.purge(&stage.shard, true, &cursor).await.expect("a step").next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
}

/// The queue of this name had been deleted, and its outbox is left.
pub(super) async fn create(size: usize) -> Vec<Case> {
    let stage = Stage::with_payloads(simple(), PAYLOAD_BYTES_MAX as u16).await;
    stage.put(messages(0..100 * size, PAYLOAD_BYTES_MAX)).await;
    purge_all(&stage).await;
    stage.store.delete_queue(&stage.shard.queue).await.expect("an empty queue");
    let calls = stage.metered(Script::CreateQueue, stage.create(simple())).await;
    vec![Case::new("create_queue", "again, an outbox is left", size, Scope::default(), calls)]
}

pub(super) async fn update(size: usize) -> Vec<Case> {
    let config = QueueConfig { id_window_ms: DELAY_MS_MAX, ..exclusive(ALL_INDEXES) };
    let stage = Stage::new(config).await;
    stage.put((0..200 * size).map(|number| message(number, SMALL, number, number))).await;
    (0..ALL * size).for_each(|number| stage.remember_id(number, stage.now_ms() + 1_000));
    let patch = QueuePatch { indexes: Some(Vec::new()), id_window_ms: Some(0), ..QueuePatch::default() };
    let call = async { stage.store.update_queue(&stage.shard.queue, patch).await.expect("a valid patch") };
    let calls = stage.metered(Script::UpdateQueue, call).await;
    let scope = Scope { indexes: ALL_INDEXES, items: 1, ..Scope::default() };
    vec![Case::new("update_queue", "drops all indexes and ids", size, scope, calls)]
}

pub(super) async fn delete(size: usize) -> Vec<Case> {
    let stage = Stage::new(QueueConfig { id_window_ms: DELAY_MS_MAX, ..exclusive(ALL_INDEXES) }).await;
    stage.put((0..100 * size).map(|number| message(number, SMALL, number, number))).await;
    purge_all(&stage).await;
    (0..ALL * size).for_each(|number| stage.remember_id(number, stage.now_ms() + 1_000));
    stage.park(1, 1_000 * size);
    let call = async { stage.store.delete_queue(&stage.shard.queue).await.expect("an empty queue") };
    let calls = stage.metered(Script::DeleteQueue, call).await;
    vec![Case::new("delete_queue", "ids, parked heads, an outbox", size, Scope::default(), calls)]
}

pub(super) async fn build(size: usize) -> Vec<Case> {
    const CHUNKS: usize = 4;
    const CHUNK: usize = 250;
    let mut cases = Vec::new();
    for (what, config, payload) in [
        ("the largest, simple", simple(), PAYLOAD_BYTES_MAX),
        ("the largest, exclusive", exclusive(0), PAYLOAD_BYTES_MAX),
        ("small, simple", simple(), SMALL),
    ] {
        let stage = Stage::new(config).await;
        stage.put((0..500 * size).map(|number| message(number, payload, number, number))).await;
        stage.take(100 * size).await;
        let calls = stage.metered(Script::BuildIndex, build_index(&stage, &filter([(1, 1), (2, 1), (3, 1)]))).await;
        cases.push(Case::new("build_index", what, size, Scope { items: CHUNKS * CHUNK, ..Scope::default() }, calls));
    }
    cases
}

/// Everything that a sweep moves, more than one call may.
pub(super) async fn sweep(size: usize) -> Vec<Case> {
    const MOVED: usize = SWEEP_ITEMS_MAX;
    let mut cases = Vec::new();
    for (what, payload, indexes) in
        [("all is due, the largest", PAYLOAD_BYTES_MAX, 0), ("all is due, all indexes", SMALL, ALL_INDEXES)]
    {
        let due = if indexes > 0 { MOVED + 4 } else { (MOVED + 4) * size };
        let config = QueueConfig {
            id_window_ms: DELAY_MS_MAX,
            terminal_retention_ms: 1_000,
            max_attempts: 1,
            max_errored: 1,
            ..exclusive(indexes)
        };
        let stage = Stage::new(config).await;
        let mut next = 0;
        let mut some = |count| {
            next += count;
            messages(next - count..next, payload)
        };
        stage.put(some(due)).await;
        let leases = stage.take(due).await;
        for leases in leases.chunks(100) {
            stage.store.release(&stage.shard, leases.iter().map(failure).collect()).await.expect("an open queue");
        }
        stage.put(some(due)).await;
        let leases = stage.take(due).await;
        super::reads::complete(&stage, &leases).await;
        stage.put(some(due)).await;
        let leases: Vec<_> = stage.take(due).await.iter().map(to).collect();
        stage.fill_attempts(leases.iter().map(|lease| lease.id.clone()));
        let hidden = |new| NewMessage { invisibility_ms: Some(1_000), ..new };
        stage.put(messages(100_000..100_000 + due, SMALL).map(hidden)).await;
        (0..due).for_each(|number| stage.remember_id(200_000 + number, stage.now_ms() + 1_000));
        let leases: Vec<_> = leases.iter().cycle().take(ALL).cloned().collect();
        for number in 0..100 * size {
            stage.remember(&request_id(number), &leases);
        }
        stage.advance(2 * LEASE_MS);
        let calls = stage.metered(Script::Sweep, stage.store.sweep(&stage.shard)).await;
        // Windows, leases, errored and other ended messages, requests, slots, ids, parked heads.
        let scope = Scope { moved: 8 * MOVED, indexes, ..Scope::default() };
        cases.push(Case::new("sweep", what, size, scope, calls));
    }
    cases.push(forgetting(size).await);
    cases
}

/// Nothing but the memory of requests, each of a thousand leases.
async fn forgetting(size: usize) -> Case {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..ALL, SMALL)).await;
    let leases: Vec<_> = stage.take(ALL).await.iter().map(to).collect();
    for number in 0..100 * size {
        stage.remember(&request_id(number), &leases);
    }
    stage.advance(1);
    let calls = stage.metered(Script::Sweep, stage.store.sweep(&stage.shard)).await;
    Case::new("sweep", "remembered requests", size, Scope { moved: SWEEP_ITEMS_MAX, ..Scope::default() }, calls)
}

pub(super) async fn purge(size: usize) -> Vec<Case> {
    const STEP: usize = 100;
    let mut cases = Vec::new();
    for (what, payload, indexes) in
        [("running too, the largest", PAYLOAD_BYTES_MAX, 0), ("running too, all indexes", SMALL, ALL_INDEXES)]
    {
        let stage = Stage::new(exclusive(indexes)).await;
        stage.put((0..300 * size).map(|number| message(number, payload, number / 2, number % 9))).await;
        stage.take(150 * size).await;
        let calls = stage.metered(Script::Purge, purge_all(&stage)).await;
        cases.push(Case::new("purge", what, size, Scope { moved: STEP, indexes, ..Scope::default() }, calls));
    }
    cases
}

pub(super) async fn ack(size: usize) -> Vec<Case> {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..2 * ALL * size, SMALL)).await;
    let call = async {
        let mut reader = stage.store.outbox_reader();
        reader.watch(stage.shard.clone()).await.expect("a shard");
        let all: HashSet<Shard> = [stage.shard.clone()].into();
        while reader.read(Duration::from_millis(1)).await.expect("a read").more {
            reader.ack(&all).await.expect("an acknowledgement");
        }
        reader.ack(&all).await.expect("an acknowledgement");
    };
    let calls = stage.metered(Script::AckOutbox, call).await;
    vec![Case::new("ack_outbox", "what a relay has read", size, Scope::default(), calls)]
}

pub(super) async fn lead(size: usize) -> Vec<Case> {
    let stage = Stage::new(simple()).await;
    let call = stage.store.acquire_leader_lease("job", "owner", 1_000);
    let calls = stage.metered(Script::AcquireLeaderLease, call).await;
    vec![Case::new("acquire_leader_lease", "new", size, Scope::default(), calls)]
}
