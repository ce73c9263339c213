//! Dequeue.

use crate::simulator::bounds::budget::{Case, Scope};
use crate::simulator::bounds::stage::*;
use tallystone_lua::Script;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::{Filter, NewMessage, QueueConfig, Store};

/// Requests of one call: what the engine combines.
const REQUESTS: usize = 128;
const ALL: usize = BATCH_ITEMS_MAX;
/// What one script call leases at most: it ends after the request that exceeds its bound.
const LEASES: usize = 2_048 + ALL;
/// Remembered requests that one script call examines.
const EXAMINED: usize = 2 * REQUESTS;

pub(super) async fn cases(size: usize) -> Vec<Case> {
    vec![
        thousands(size).await,
        largest(size).await,
        due(size).await,
        replayed(size).await,
        forgetting("forgets the living", size, true).await,
        forgetting("forgets the dead", size, false).await,
        filtered(size).await,
        many_filters(size).await,
        all_indexes(size).await,
        locked(size).await,
        repeated(size).await,
    ]
}

async fn measured(
    stage: &Stage,
    what: &'static str,
    size: usize,
    scope: Scope,
    requests: &[DequeueRequest],
    ticket: Option<Ticket>,
) -> (Case, Vec<usize>) {
    let mut found = Vec::new();
    let call = async {
        let answer = stage.store.dequeue(&stage.shard, requests, true, ticket).await.expect("an open queue");
        found = answer.leases.into_iter().map(|leases| leases.expect("leases").len()).collect();
    };
    let calls = stage.metered(Script::Dequeue, call).await;
    (Case::new("dequeue", what, size, scope, calls), found)
}

/// Several requests of a thousand leases.
async fn thousands(size: usize) -> Case {
    let stage = Stage::new(exclusive(0)).await;
    stage.put(messages(0..4 * ALL + 100 * size, SMALL)).await;
    let requests: Vec<_> = (0..4).map(|number| request(ALL, request_id(number))).collect();
    let scope = Scope { items: LEASES, ..Scope::default() };
    let (case, found) = measured(&stage, "thousands of leases", size, scope, &requests, None).await;
    assert_eq!(found, [ALL; 4]);
    case
}

async fn largest(size: usize) -> Case {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..300 * size, PAYLOAD_BYTES_MAX / size.min(4))).await;
    let requests: Vec<_> = (0..REQUESTS).map(|number| request(ALL / REQUESTS, request_id(number))).collect();
    let scope = Scope { items: ALL, ..Scope::default() };
    measured(&stage, "the largest payloads", size, scope, &requests, None).await.0
}

/// Windows and leases that have ended; the leases leave errored messages.
async fn due(size: usize) -> Case {
    let due = (SWEEP_ITEMS_MAX + 4) * size;
    let stage = Stage::new(QueueConfig { max_attempts: 1, ..exclusive(0) }).await;
    stage.put(messages(0..due, PAYLOAD_BYTES_MAX)).await;
    stage.take(due).await;
    stage.fill_attempts((0..due).map(id));
    let hidden = |new| NewMessage { invisibility_ms: Some(1_000), ..new };
    stage.put(messages(due..2 * due, SMALL).map(hidden)).await;
    stage.put(messages(2 * due..2 * due + ALL, SMALL)).await;
    stage.advance(2 * LEASE_MS);
    let scope = Scope { items: ALL, moved: 2 * SWEEP_ITEMS_MAX, ..Scope::default() };
    measured(&stage, "windows and leases that ended", size, scope, &[request(ALL, request_id(1))], None).await.0
}

/// Every request is remembered with a thousand leases that live.
async fn replayed(size: usize) -> Case {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..ALL + 100 * size, SMALL)).await;
    let leases: Vec<_> = stage.take(ALL).await.iter().map(to).collect();
    for number in 0..REQUESTS {
        stage.remember(&request_id(number), &leases);
    }
    let requests: Vec<_> = (0..REQUESTS).map(|number| request(ALL, request_id(number))).collect();
    let scope = Scope { items: LEASES, moved: EXAMINED, ..Scope::default() };
    let (case, found) = measured(&stage, "replays", size, scope, &requests, None).await;
    assert_eq!(found, [ALL; REQUESTS]);
    case
}

/// The memory has many requests of a thousand leases that are to be examined.
async fn forgetting(what: &'static str, size: usize, lives: bool) -> Case {
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..ALL + 2 * REQUESTS, SMALL)).await;
    let mut leases: Vec<_> = stage.take(ALL).await.iter().map(to).collect();
    for lease in &mut leases {
        lease.fencing_token -= u64::from(!lives);
    }
    for number in 0..100 * size {
        stage.remember(&request_id(1_000_000 + number), &leases);
    }
    stage.advance(1);
    let requests: Vec<_> = (0..REQUESTS).map(|number| request(1, request_id(number))).collect();
    let scope = Scope { items: REQUESTS, moved: EXAMINED, ..Scope::default() };
    measured(&stage, what, size, scope, &requests, None).await.0
}

/// Requests of a thousand leases with as many filters as there may be.
async fn filtered(size: usize) -> Case {
    let stage = Stage::new(exclusive(0)).await;
    stage.put(messages(0..2 * ALL + 100 * size, SMALL)).await;
    let filters: Vec<Filter> = (0..FILTERS_MAX).map(|group| filter([(1, group)])).collect();
    let requests: Vec<_> =
        (0..2).map(|number| DequeueRequest { filters: filters.clone(), ..request(ALL, request_id(number)) }).collect();
    build(&stage, &filters[0]).await;
    let scope = Scope { items: 2 * (ALL + FILTERS_MAX), indexes: 1, ..Scope::default() };
    let (case, found) = measured(&stage, "filters", size, scope, &requests, None).await;
    assert_eq!(found, [ALL; 2]);
    case
}

/// Many requests, each with other filters and one lease, of large messages.
async fn many_filters(size: usize) -> Case {
    const FILTERS: usize = REQUESTS * FILTERS_MAX;
    let stage = Stage::new(simple()).await;
    stage.put((0..FILTERS + 100 * size).map(|number| message(number, PAYLOAD_BYTES_MAX, number, number))).await;
    let filters = |number: usize| (number * FILTERS_MAX..(number + 1) * FILTERS_MAX).map(|group| filter([(1, group)]));
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| DequeueRequest { filters: filters(number).collect(), ..request(1, request_id(number)) })
        .collect();
    build(&stage, &requests[0].filters[0]).await;
    let scope = Scope { items: REQUESTS + FILTERS, indexes: 1, ..Scope::default() };
    let (case, found) = measured(&stage, "filters of many requests", size, scope, &requests, None).await;
    assert_eq!(found, [1; REQUESTS]);
    case
}

/// Each message passes filters of all indexes.
async fn all_indexes(size: usize) -> Case {
    let stage = Stage::new(exclusive(ALL_INDEXES)).await;
    stage.put((0..500 + 50 * size).map(|number| message(number, SMALL, number, 0))).await;
    let pairs = |bits: usize| (1..METADATA_PAIRS_MAX).filter(move |pair| bits >> pair & 1 == 1).map(|pair| (pair, 0));
    let filters: Vec<Filter> = (2..1 << METADATA_PAIRS_MAX).step_by(2).map(|bits| filter(pairs(bits))).collect();
    let wanted = DequeueRequest { filters, ..request(500, request_id(1)) };
    let scope = Scope { items: 500 + FILTERS_MAX, indexes: ALL_INDEXES, ..Scope::default() };
    let (case, found) = measured(&stage, "filters of all indexes", size, scope, &[wanted], None).await;
    assert_eq!(found, [500]);
    case
}

/// The most urgent messages under each filter are locked.
async fn locked(size: usize) -> Case {
    let stage = Stage::new(exclusive(0)).await;
    let count = 300 * size;
    stage.put((0..count).map(|number| message(number, SMALL, number, FILTERS_MAX))).await;
    stage.take(count).await;
    let behind = |number: usize| message(count + number, PAYLOAD_BYTES_MAX / size, number, number % FILTERS_MAX);
    stage.put((0..count).map(behind)).await;
    stage.put(messages(2 * count..2 * count + ALL, SMALL)).await;
    let filters: Vec<Filter> = (0..FILTERS_MAX).map(|group| filter([(1, group)])).collect();
    build(&stage, &filters[0]).await;
    let wanted = DequeueRequest { filters, ..request(ALL, request_id(1)) };
    let scope = Scope { items: ALL + FILTERS_MAX, moved: SWEEP_ITEMS_MAX, indexes: 1 };
    let (case, found) = measured(&stage, "locked heads under filters", size, scope, &[wanted], None).await;
    assert_eq!(found, [ALL]);
    case
}

/// A repeat, while other leases end at the same time: of so many it finds its own, and of more it reads no more.
async fn repeated(size: usize) -> Case {
    const READ: usize = 4_096;
    let others = if size == 1 { READ - REQUESTS } else { READ * size };
    let stage = Stage::new(simple()).await;
    stage.put(messages(0..REQUESTS + others, SMALL)).await;
    let ticket = |number| Some(Ticket { server: 1, slot: 1, first: 1, number });
    let requests: Vec<_> = (0..REQUESTS).map(|_| request(1, String::new())).collect();
    stage.store.dequeue(&stage.shard, &requests, false, ticket(1)).await.expect("an open queue");
    stage.take(others).await;
    let scope = Scope { items: REQUESTS, moved: READ, ..Scope::default() };
    let (case, found) = measured(&stage, "a repeat", size, scope, &requests, ticket(2)).await;
    assert!(size > 1 || found == [1; REQUESTS], "a repeat finds its leases");
    case
}

/// Builds the index of a filter.
pub(super) async fn build(stage: &Stage, filter: &Filter) {
    while stage.store.depth(&stage.shard, Some(filter)).await.is_err() {
        tokio::task::yield_now().await;
    }
}
