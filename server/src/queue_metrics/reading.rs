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
use tallystone_lua::keys::Keyspace;
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
            board.rank(&of_queues(walked.into_iter().map(Result::ok).collect()));
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
        for (queue, depth) in page.items {
            stored.entry(queue).or_default().add(&depth);
        }
        if page.next_cursor.is_empty() {
            return Ok(stored);
        }
        cursor = page.next_cursor;
    }
}

/// Adds the messages of the shards of each queue, which are in several partitions, where its first shard is.
fn of_queues(mut walked: Vec<Option<Depths>>) -> Vec<Option<Depths>> {
    let count = u16::try_from(walked.len()).unwrap_or(u16::MAX);
    for number in 0..walked.len() {
        let home = |queue: &QueueName| usize::from(Keyspace::number_of_queue(queue, count));
        let Some(depths) = walked[number].take() else { continue };
        let (here, elsewhere): (Depths, Depths) = depths.into_iter().partition(|(queue, _)| home(queue) == number);
        walked[number] = Some(here);
        for (queue, depth) in elsewhere {
            // A partition that was not read says nothing of its queues, and a queue without its first shard is deleted.
            if let Some(whole) = walked[home(&queue)].as_mut().and_then(|depths| depths.get_mut(&queue)) {
                whole.add(&depth);
            }
        }
    }
    walked
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_the_messages_of_all_shards_count_where_the_first_one_is() {
        let queue = QueueName::parse("queue", "123456789").unwrap();
        let depth = |pending| Depth { pending, ..Depth::default() };
        // By its name the queue is in partition 3 of 8.
        let mut walked: Vec<Option<Depths>> = (0..8).map(|_| Some(Depths::new())).collect();
        for (number, pending) in [(1, 7), (3, 1), (4, 2)] {
            walked[number] = Some([(queue.clone(), depth(pending))].into());
        }
        walked[6] = None;
        let found = of_queues(walked);
        assert_eq!(found[3], Some([(queue, depth(10))].into()));
        assert!(found[1] == Some(Depths::new()) && found[4] == Some(Depths::new()) && found[6].is_none());
    }
}
