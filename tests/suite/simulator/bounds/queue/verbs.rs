//! What workers and operators do to messages.

use crate::simulator::bounds::budget::{Case, Scope};
use crate::simulator::bounds::stage::*;
use tallystone_lua::Script;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::{Change, ChangeRequest, Lease, QueueConfig, Selection, State};

const ALL: usize = BATCH_ITEMS_MAX;

/// A Release after which the message is errored.
pub(super) fn failure(lease: &Lease) -> Release {
    Release { lease: to(lease), delay_ms: Some(0), reason: reason(), verdict: Verdict::Error }
}

fn cancellation(number: usize, force: bool) -> Cancellation {
    Cancellation { id: id(number), fencing_token: 0, force, reason: reason() }
}

fn nobodys(number: usize) -> LeaseRef {
    LeaseRef { id: id(number), fencing_token: 1 }
}

/// A queue with `leased` messages that run and have failed before, and others that wait.
async fn leased(config: QueueConfig, leased: usize, payload: usize, size: usize) -> (Stage, Vec<Lease>) {
    let stage = Stage::new(config).await;
    stage.put(messages(0..leased, payload)).await;
    stage.put((0..200 * size).map(|n| message(2 * ALL + n, SMALL, n, n % FILTERS_MAX))).await;
    let leases = stage.take(leased).await;
    stage.fill_attempts((0..leased).map(id));
    (stage, leases)
}

/// A queue whose messages wait.
async fn waiting(payload: usize, size: usize) -> Stage {
    let stage = Stage::new(exclusive(0)).await;
    stage.put(messages(0..ALL, payload)).await;
    stage.put((0..200 * size).map(|n| message(2 * ALL + n, SMALL, n, 0))).await;
    stage
}

pub(super) async fn complete(size: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, indexes) in [("with results", 0), ("with results, all indexes", ALL_INDEXES)] {
        let (stage, leases) = leased(exclusive(indexes), ALL, SMALL, size).await;
        let scope = Scope { items: ALL, indexes, ..Scope::default() };
        cases.push(completed(&stage, what, size, scope, &leases).await);
    }
    const VALUES: usize = 64;
    let (stage, leases) = leased(exclusive(1), VALUES, SMALL, size).await;
    for number in 0..VALUES {
        stage.park(number, 300 * size);
    }
    let scope = Scope { items: VALUES, moved: SWEEP_ITEMS_MAX, indexes: 1 };
    cases.push(completed(&stage, "parked heads", size, scope, &leases).await);
    cases
}

async fn completed(stage: &Stage, what: &'static str, size: usize, scope: Scope, leases: &[Lease]) -> Case {
    let result = vec![b'o'; RESULT_BYTES_MAX];
    let items = leases.iter().map(|lease| Completion { lease: to(lease), result: result.clone().into() }).collect();
    let calls = stage.metered(Script::Complete, stage.store.complete(&stage.shard, items)).await;
    Case::new("complete", what, size, scope, calls)
}

pub(super) async fn extend(size: usize) -> Vec<Case> {
    let scope = Scope { items: ALL, ..Scope::default() };
    let extension = |lease| Extension { lease, lease_ms: None, request_id: request_id(1) };
    let (stage, leases) = leased(simple(), ALL, SMALL, size).await;
    let items = leases.iter().map(|lease| extension(to(lease))).collect();
    let calls = stage.metered(Script::ExtendLease, stage.store.extend_lease(&stage.shard, items)).await;
    let live = Case::new("extend_lease", "live", size, scope, calls);
    let stage = waiting(PAYLOAD_BYTES_MAX, size).await;
    let items = (0..ALL).map(|number| extension(nobodys(number))).collect();
    let calls = stage.metered(Script::ExtendLease, stage.store.extend_lease(&stage.shard, items)).await;
    vec![live, Case::new("extend_lease", "never leased", size, scope, calls)]
}

pub(super) async fn release(size: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, payload, indexes) in
        [("errored, the largest", PAYLOAD_BYTES_MAX, 0), ("errored, all indexes", SMALL, ALL_INDEXES)]
    {
        let (stage, leases) = leased(exclusive(indexes), ALL, payload, size).await;
        let items = leases.iter().map(failure).collect();
        let calls = stage.metered(Script::Release, stage.store.release(&stage.shard, items)).await;
        cases.push(Case::new("release", what, size, Scope { items: ALL, indexes, ..Scope::default() }, calls));
    }
    let stage = waiting(PAYLOAD_BYTES_MAX, size).await;
    let release =
        |number| Release { lease: nobodys(number), delay_ms: None, reason: reason(), verdict: Verdict::Retry };
    let items = (0..ALL).map(release).collect();
    let calls = stage.metered(Script::Release, stage.store.release(&stage.shard, items)).await;
    cases.push(Case::new("release", "never leased", size, Scope { items: ALL, ..Scope::default() }, calls));
    const VALUES: usize = 64;
    let (stage, leases) = leased(exclusive(1), VALUES, SMALL, size).await;
    for number in 0..VALUES {
        stage.park(number, 300 * size);
    }
    let items = leases.iter().map(failure).collect();
    let calls = stage.metered(Script::Release, stage.store.release(&stage.shard, items)).await;
    let scope = Scope { items: VALUES, moved: SWEEP_ITEMS_MAX, indexes: 1 };
    cases.push(Case::new("release", "parked heads", size, scope, calls));
    cases
}

pub(super) async fn cancel(size: usize) -> Vec<Case> {
    let scope = Scope { items: ALL, ..Scope::default() };
    let stage = waiting(PAYLOAD_BYTES_MAX, size).await;
    let items = (0..ALL).map(|number| cancellation(number, false)).collect();
    let calls = stage.metered(Script::Cancel, stage.store.cancel(&stage.shard, items)).await;
    let pending = Case::new("cancel", "pending, the largest", size, scope, calls);
    let (stage, _) = leased(exclusive(0), ALL, SMALL, size).await;
    let items = (0..ALL).map(|number| cancellation(number, true)).collect();
    let calls = stage.metered(Script::Cancel, stage.store.cancel(&stage.shard, items)).await;
    vec![pending, Case::new("cancel", "running, by force", size, scope, calls)]
}

/// A queue with errored messages.
async fn errored(config: QueueConfig, payload: usize, size: usize) -> Stage {
    let (stage, leases) = leased(config, ALL, payload, size).await;
    for leases in leases.chunks(100) {
        stage.store.release(&stage.shard, leases.iter().map(failure).collect()).await.expect("an open queue");
    }
    stage
}

pub(super) async fn redrive(size: usize) -> Vec<Case> {
    let scope = Scope { items: ALL, ..Scope::default() };
    let stage = errored(exclusive(0), PAYLOAD_BYTES_MAX, size).await;
    let ids = (0..ALL).map(id).collect();
    let calls = stage.metered(Script::Redrive, stage.store.redrive(&stage.shard, ids)).await;
    let errored = Case::new("redrive", "errored, the largest", size, scope, calls);
    let stage = waiting(PAYLOAD_BYTES_MAX, size).await;
    let ids = (0..ALL).map(id).collect();
    let calls = stage.metered(Script::Redrive, stage.store.redrive(&stage.shard, ids)).await;
    vec![errored, Case::new("redrive", "never leased", size, scope, calls)]
}

pub(super) async fn update(size: usize) -> Vec<Case> {
    let stage = Stage::new(exclusive(ALL_INDEXES)).await;
    // All wait for one value, and the last one becomes the most urgent.
    stage.put((0..200 * size).map(|number| message(number, PAYLOAD_BYTES_MAX / size, 0, number % FILTERS_MAX))).await;
    let patch = MessagePatch { priority: Some(-1), visible_at_ms: None };
    let call = async {
        stage.store.update_message(&stage.shard, &id(200 * size - 1), patch).await.expect("a pending message");
    };
    let calls = stage.metered(Script::UpdateMessage, call).await;
    let scope = Scope { items: 1, indexes: ALL_INDEXES, ..Scope::default() };
    vec![Case::new("update_message", "of a backlog, all indexes", size, scope, calls)]
}

pub(super) async fn change(size: usize) -> Vec<Case> {
    let scope = Scope { items: PAGE_ITEMS_MAX, ..Scope::default() };
    let changed = async |stage: &Stage, what, state: State, change| {
        let selection = Selection {
            states: [state].into(),
            filter: (state == State::Pending).then(|| filter([(1, 0)])),
            reason_contains: if state == State::Errored { "RRR".to_owned() } else { String::new() },
            ..Selection::default()
        };
        let request = ChangeRequest { selection, change, dry_run: false };
        let mut cursor = String::new();
        // Every page.
        let call = async {
            loop {
                let page = stage.store.change_messages(&stage.shard, &request, &cursor, PAGE_ITEMS_MAX).await;
                cursor = page.expect("a page").next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
        };
        Case::new("change_messages", what, size, scope, stage.metered(Script::ChangeMessages, call).await)
    };
    let backlog = |size: usize| {
        (0..500 * size).map(move |number| message(number, PAYLOAD_BYTES_MAX / size, number % 7, number % 2))
    };
    let stage = Stage::new(exclusive(0)).await;
    stage.put(backlog(size)).await;
    let patch = MessagePatch { priority: Some(-1), visible_at_ms: None };
    let updated = changed(&stage, "update of a backlog", State::Pending, Change::Update(patch)).await;
    let canceled = changed(&stage, "cancel of a backlog", State::Pending, Change::Cancel { reason: reason() }).await;
    let stage = errored(exclusive(0), SMALL, size).await;
    let redriven = changed(&stage, "redrive", State::Errored, Change::Redrive).await;
    let (stage, _) = leased(exclusive(0), ALL, SMALL, size).await;
    let revoked = changed(&stage, "cancel of running", State::Running, Change::Cancel { reason: reason() }).await;
    vec![updated, canceled, redriven, revoked]
}
