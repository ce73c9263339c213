//! What only reads.

use crate::simulator::bounds::budget::{Case, Scope};
use crate::simulator::bounds::stage::*;
use tallystone_lua::Script;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::{Lease, State};

const ALL: usize = BATCH_ITEMS_MAX;

pub(super) async fn get(size: usize) -> Vec<Case> {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..ALL + 100 * size, PAYLOAD_BYTES_MAX / size)).await;
    stage.fill_attempts((0..ALL).map(id));
    let scope = Scope { items: ALL, ..Scope::default() };
    let ids = (0..ALL).map(id).collect();
    let calls = stage.metered(Script::GetMessages, stage.store.get_messages(&stage.shard, ids)).await;
    vec![Case::new("get_messages", "the largest", size, scope, calls)]
}

async fn all_pages(stage: &Stage, what: &'static str, size: usize, state: State) -> Case {
    let call = async {
        let mut cursor = String::new();
        loop {
            let page = stage.store.list_messages(&stage.shard, state, &cursor, PAGE_ITEMS_MAX).await.expect("a page");
            cursor = page.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
    };
    let calls = stage.metered(Script::ListMessages, call).await;
    Case::new("list_messages", what, size, Scope { items: PAGE_ITEMS_MAX, ..Scope::default() }, calls)
}

pub(super) async fn list(size: usize) -> Vec<Case> {
    let stage = Stage::new(exclusive(0)).await;
    stage.put((0..500 * size).map(|number| message(number, PAYLOAD_BYTES_MAX / size, number % 7, 0))).await;
    let pending = all_pages(&stage, "pending, the largest", size, State::Pending).await;
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..500 * size, SMALL)).await;
    let leases = stage.take(500 * size).await;
    let running = all_pages(&stage, "running", size, State::Running).await;
    complete(&stage, &leases).await;
    // Canceled messages are among the completed ones.
    stage.put(messages(10_000..10_000 + 500 * size, SMALL)).await;
    let cancel = |number| Cancellation { id: id(number), fencing_token: 0, force: false, reason: reason() };
    for number in 10_000..10_000 + 500 * size {
        stage.store.cancel(&stage.shard, vec![cancel(number)]).await.expect("an open queue");
    }
    vec![pending, running, all_pages(&stage, "canceled, behind completed", size, State::Canceled).await]
}

pub(super) async fn complete(stage: &Stage, leases: &[Lease]) {
    for leases in leases.chunks(100) {
        let result = vec![b'o'; RESULT_BYTES_MAX];
        let items = leases.iter().map(|lease| Completion { lease: to(lease), result: result.clone().into() }).collect();
        stage.store.complete(&stage.shard, items).await.expect("an open queue");
    }
}

pub(super) async fn explain(size: usize) -> Vec<Case> {
    let stage = Stage::new(exclusive(0)).await;
    stage.put((0..200 * size).map(|number| message(number, PAYLOAD_BYTES_MAX / size, 0, 0))).await;
    stage.take(1).await;
    let calls = stage.metered(Script::Explain, stage.store.explain(&stage.shard, &id(200 * size - 1))).await;
    vec![Case::new("explain", "behind a locked value", size, Scope { items: 1, ..Scope::default() }, calls)]
}

pub(super) async fn depth(size: usize) -> Vec<Case> {
    let stage = Stage::new(exclusive(ALL_INDEXES)).await;
    stage.put((0..200 * size).map(|number| message(number, SMALL, number % 7, number % 2))).await;
    let filter = filter([(1, 0), (2, 0), (3, 0)]);
    let call = async { stage.store.depth(&stage.shard, Some(&filter)).await.expect("a built index") };
    let calls = stage.metered(Script::Depth, call).await;
    vec![Case::new("depth", "by a filter", size, Scope { items: 1, ..Scope::default() }, calls)]
}

pub(super) async fn ages(size: usize) -> Vec<Case> {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..600 * size, PAYLOAD_BYTES_MAX / size)).await;
    stage.take(300 * size).await;
    let calls = stage.metered(Script::Ages, stage.store.ages(&stage.shard)).await;
    let scope = Scope { moved: AGE_PRIORITIES_MAX + AGE_LEASES_MAX, ..Scope::default() };
    vec![Case::new("ages", "many priorities and leases", size, scope, calls)]
}

pub(super) async fn check(size: usize) -> Vec<Case> {
    const STEP: usize = 100;
    let stage = Stage::new(exclusive(ALL_INDEXES)).await;
    stage.put((0..200 * size).map(|number| message(number, PAYLOAD_BYTES_MAX / size, number / 2, number % 9))).await;
    for leases in stage.take(50 * size).await.chunks(100) {
        let items = leases.iter().map(super::verbs::failure).collect();
        stage.store.release(&stage.shard, items).await.expect("an open queue");
    }
    stage.take(50 * size).await;
    let call = async {
        let mut cursor = String::new();
        loop {
            let (_, page) = stage.store.check(&stage.shard, &cursor).await.expect("a step");
            assert_eq!(page.items, []);
            cursor = page.next_cursor;
            if cursor.is_empty() {
                break;
            }
        }
    };
    let calls = stage.metered(Script::Check, call).await;
    vec![Case::new(
        "check",
        "every phase",
        size,
        Scope { moved: STEP, indexes: ALL_INDEXES, ..Scope::default() },
        calls,
    )]
}
