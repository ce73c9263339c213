//! The rate of dequeues alone, at a depth that stays: rounds of dequeues that are measured, each followed by
//! completing what was dequeued and enqueuing as many, which is not.

use crate::load::{Client, Traffic, enqueue_all, take};
use crate::ours::Ours;
use crate::sample::Sample;
use crate::shape::{BATCH, CLIENTS};
use anyhow::Result;
use futures::future::try_join_all;

/// Messages of one call that fills a queue: not measured, so as large as is handy.
const FILL_BATCH: usize = 500;

/// Puts so many messages into the queue.
pub(super) async fn fill(ours: &Ours, queue: &str, messages: u64, traffic: &Traffic) -> Result<()> {
    /// Filled step by step, so that it can be seen to go on.
    const STEP: u64 = 1_000_000;
    let mut clients = ours.clients(queue, CLIENTS, CLIENTS).await?;
    let mut filled = 0;
    while filled < messages {
        let end = messages.min(filled + STEP);
        (clients, _) = enqueue_all(clients, filled..end, FILL_BATCH, traffic).await?;
        filled = end;
        if messages > STEP {
            eprintln!("bench: {filled} of {messages} messages are in {queue}");
        }
    }
    Ok(())
}

/// Dequeues `messages` in all, in rounds of half of what is pending at most; then waits until what was completed is
/// collected, which would be charged to the next sample.
pub(super) async fn dequeue_rate(
    ours: &Ours,
    queue: &str,
    messages: u64,
    pending: u64,
    traffic: &Traffic,
) -> Result<Sample> {
    let round = (pending / 2).min(messages).max(1);
    let mut clients = ours.clients(queue, CLIENTS, CLIENTS).await?;
    let mut sum = None;
    for number in 0..messages.div_ceil(round) {
        let (hands, total) = take(clients, round, BATCH).await?;
        clients = try_join_all(hands.into_iter().map(|(client, hand)| complete(client, hand))).await?;
        (clients, _) = enqueue_all(clients, number * round..(number + 1) * round, BATCH, traffic).await?;
        match &mut sum {
            None => sum = Some(total),
            Some(sum) => sum.add(&total),
        }
    }
    ours.collected(queue).await?;
    Ok(sum.map(|sum| sum.rate()).unwrap_or_default())
}

async fn complete<C: Client>(mut client: C, mut hand: Vec<C::Held>) -> Result<C> {
    while !hand.is_empty() {
        let rest = hand.split_off(hand.len().min(BATCH));
        client.complete(std::mem::replace(&mut hand, rest)).await?;
    }
    Ok(client)
}
