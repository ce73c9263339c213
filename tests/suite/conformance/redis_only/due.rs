//! Thousands of messages that fall due together do not hold up a Dequeue (X5). On the oracle all of them move at once.

use super::alone;
use tallystone_model::limits::SWEEP_ITEMS_MAX;
use tallystone_model::*;
use tallystone_tests::*;

/// More than 2,000 messages are still due after the first one.
const BATCHES: usize = 10;
const DELAY_MS: u64 = 1_000;

#[tokio::test]
async fn x5_a_dequeue_moves_one_batch_of_what_is_due_and_leases_then() {
    let (_redis, stage) = alone("due-together").await;
    let queue = stage.queue(simple()).await;
    let hidden = |n: usize| NewMessage { invisibility_ms: Some(DELAY_MS), ..message(&format!("m{n:05}"), n as i64) };
    queue.put((0..BATCHES * SWEEP_ITEMS_MAX).map(hidden)).await;
    stage.clock.advance(DELAY_MS);
    assert_eq!(queue.take(3).await.len(), 3);
    let depth = queue.depth().await;
    assert_eq!(depth.of(State::Invisible), ((BATCHES - 1) * SWEEP_ITEMS_MAX) as u64, "one batch has moved: {depth:?}");
    stage.assert_sound().await;
}

#[tokio::test]
async fn x5_a_dequeue_that_finds_nothing_moves_all_that_is_due() {
    let (_redis, stage) = alone("due-filtered").await;
    let queue = stage.queue(QueueConfig { indexes: vec![index(&[KEY])], ..simple() }).await;
    let last = BATCHES * SWEEP_ITEMS_MAX - 1;
    let hidden = |n: usize| {
        let value = if n == last { "wanted" } else { "other" };
        NewMessage { invisibility_ms: Some(DELAY_MS), ..keyed(&format!("m{n:05}"), n as i64, value) }
    };
    queue.put((0..=last).map(hidden)).await;
    stage.clock.advance(DELAY_MS);
    assert_eq!(queue.take_where(1, &[filter(&[(KEY, "wanted")])]).await, [format!("m{last:05}")]);
    assert_eq!(queue.depth().await.of(State::Invisible), 0);
    stage.assert_sound().await;
}
