//! The rate of dequeues alone, at a constant depth: rounds of dequeues are measured; after each round the messages are
//! completed and replaced, which is not measured.

use crate::load::{LoadClient, Traffic, enqueue_all, take};
use crate::ours::{Ours, clients_of};
use crate::sample::Sample;
use crate::shape::{BATCH, CLIENTS};
use anyhow::Result;
use futures::future::try_join_all;

/// Messages per call when filling a queue, which is not measured.
const FILL_BATCH: usize = 500;

/// Enqueues this many messages.
pub(super) async fn fill(ours: &Ours, queue: &str, messages: u64, traffic: &Traffic) -> Result<()> {
    fill_at(&ours.url(), queue, messages, traffic).await
}

/// The same through the server at this URL.
pub(super) async fn fill_at(url: &str, queue: &str, messages: u64, traffic: &Traffic) -> Result<()> {
    /// Messages between two lines of progress.
    const STEP: u64 = 1_000_000;
    let mut clients = clients_of(url, queue, CLIENTS, CLIENTS).await?;
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

/// Dequeues `messages` messages in rounds of at most half of the pending ones. Then waits until the completed messages
/// are collected, which would otherwise slow the next sample.
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

async fn complete<C: LoadClient>(mut client: C, mut hand: Vec<C::Held>) -> Result<C> {
    while !hand.is_empty() {
        let rest = hand.split_off(hand.len().min(BATCH));
        client.complete(std::mem::replace(&mut hand, rest)).await?;
    }
    Ok(client)
}
