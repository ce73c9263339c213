//! Reads depths and ages in the background. Queues at rest cost nothing but their share of one walk a minute.

use super::board::{Board, Reading};
use super::source::{QueueState, QueueStates};
use futures::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::store::Ages;
use tallystone_model::{QueueName, Refusal, Shard};
use tokio::time::Instant;

/// Between two readings of the queues that are in use.
const EVERY: Duration = Duration::from_secs(10);
/// Readings between two walks over all queues.
const READINGS_A_WALK: u32 = 6;
/// Ages that are requested from the store at once.
const AT_ONCE: usize = 32;

/// Reads until the task is dropped.
pub(crate) async fn read_often<S: QueueStates>(store: Arc<S>, board: Arc<Board>) {
    for reading in 0_u32.. {
        let read = async {
            if reading.is_multiple_of(READINGS_A_WALK) {
                walk(&*store, &board).await?;
            }
            read(&*store, &board).await
        };
        match read.await {
            Ok(()) => board.has_read_all(Instant::now()),
            Err(refusal) => tracing::debug!(%refusal, "the depths of queues were not read"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn walk<S: QueueStates>(store: &S, board: &Board) -> Result<(), Refusal> {
    let (mut stored, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = store.queue_depths(&cursor).await?;
        stored.extend(page.items);
        if page.next_cursor.is_empty() {
            board.rank(&stored);
            return Ok(());
        }
        cursor = page.next_cursor;
    }
}

async fn read<S: QueueStates>(store: &S, board: &Board) -> Result<(), Refusal> {
    let (names, last): (Vec<QueueName>, Vec<Option<Reading>>) = board.to_read().into_iter().unzip();
    if names.is_empty() {
        return Ok(());
    }
    let states = store.queue_states(&names).await?;
    let read = names.into_iter().zip(last).zip(states).map(async |((queue, last), state)| {
        let reading = match state {
            Some(state) => reading(store, &queue, last, state).await,
            None => None,
        };
        board.has_read(&queue, reading);
    });
    stream::iter(read).for_each_concurrent(AT_ONCE, |read| read).await;
    Ok(())
}

/// `None`: the queue was deleted.
async fn reading<S: QueueStates>(
    store: &S,
    queue: &QueueName,
    last: Option<Reading>,
    state: QueueState,
) -> Option<Reading> {
    let QueueState { depth, mark } = state;
    let is_at_rest = |last: &Reading| !mark.is_empty() && last.mark == mark;
    if last.as_ref().is_some_and(is_at_rest) {
        return last;
    }
    let at = Instant::now();
    if depth.pending + depth.running == 0 {
        return Some(Reading { depth, ages: Ages::default(), at, mark });
    }
    match store.ages(&Shard::first(queue)).await {
        Ok(ages) => Some(Reading { depth, ages, at, mark }),
        Err(Refusal::QueueNotFound { .. }) => None,
        Err(_) => Some(Reading::without_ages(depth, last)),
    }
}
