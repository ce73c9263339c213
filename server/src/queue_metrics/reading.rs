//! Reads depths and ages in the background. Queues at rest cost nothing but their share of one walk a minute.
//!
//! Each partition of the store is read separately, and one that does not answer holds up no other for long. The walk also
//! finds out whether a partition answers that no call needs.

use super::board::{Board, Reading};
use super::source::{QueueState, QueueStates};
use crate::health::StoreHealth;
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::store::{Ages, Depth};
use tallystone_model::{Applied, QueueName, Refusal, Shard};
use tokio::time::{Instant, timeout};

/// Between two readings of the queues that are in use.
const EVERY: Duration = Duration::from_secs(10);
/// Readings between two walks over all queues.
const READINGS_A_WALK: u32 = 6;
/// Ages that are requested from the store at once.
const AT_ONCE: usize = 32;
/// The longest time for one reading of a partition.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The queues of a partition with their messages.
type Depths = BTreeMap<QueueName, Depth>;

/// Reads until the task is dropped.
pub(crate) async fn read_often<S: QueueStates>(store: Arc<S>, board: Arc<Board>, health: StoreHealth) {
    for reading in 0_u32.. {
        if reading.is_multiple_of(READINGS_A_WALK) {
            let walks = board.partitions().map(|number| within_timeout(&health, number, walk(&*store, number)));
            let walked = join_all(walks).await;
            let answered = board.partitions().zip(&walked).filter(|(_, walked)| walked.is_ok());
            answered.for_each(|(number, _)| board.has_read(number, Instant::now()));
            board.rank(&walked.into_iter().map(Result::ok).collect::<Vec<_>>());
        }
        // A partition of which nothing is read says nothing of whether it answers.
        let queues = (0..).zip(board.to_read()).filter(|(_, queues)| !queues.is_empty());
        join_all(queues.map(async |(number, queues)| {
            if within_timeout(&health, number, read(&*store, &board, queues)).await.is_ok() {
                board.has_read(number, Instant::now());
            }
        }))
        .await;
        tokio::time::sleep(EVERY).await;
    }
}

/// A reading of one partition, which ends in time whether the partition answers or not.
async fn within_timeout<T>(
    health: &StoreHealth,
    partition: u16,
    reading: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let late = || Refusal::Unavailable { applied: Applied::No, why: "Redis did not answer a reading".to_owned() };
    let read = timeout(TIMEOUT, reading).await.unwrap_or_else(|_| Err(late()));
    health.saw_partition(partition, &read);
    if let Err(refusal) = &read {
        tracing::debug!(partition, %refusal, "the depths of queues were not read");
    }
    read
}

async fn walk<S: QueueStates>(store: &S, partition: u16) -> Result<Depths, Refusal> {
    let (mut stored, mut cursor) = (Depths::new(), String::new());
    loop {
        let page = store.queue_depths(partition, &cursor).await?;
        stored.extend(page.items);
        if page.next_cursor.is_empty() {
            return Ok(stored);
        }
        cursor = page.next_cursor;
    }
}

/// Reads these queues, all of one partition; each with its last reading.
async fn read<S: QueueStates>(
    store: &S,
    board: &Board,
    queues: Vec<(QueueName, Option<Reading>)>,
) -> Result<(), Refusal> {
    let (names, last): (Vec<QueueName>, Vec<Option<Reading>>) = queues.into_iter().unzip();
    let states = store.queue_states(&names).await?;
    let read = names.into_iter().zip(last).zip(states).map(async |((queue, last), state)| {
        let reading = match state {
            Some(state) => reading(store, &queue, last, state).await,
            None => None,
        };
        board.has_reading(&queue, reading);
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
