//! The dequeue rate of an exclusive queue with many locked keys. Messages wait for each of them, all more urgent than the
//! messages that can run. Reference: a queue without locked keys in the same Redis.

use super::plan::QueuePlan;
use super::rounds::{dequeue_rate, fill};
use crate::load::{Traffic, pair, priority};
use crate::ours::{Ours, exclusive_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::Samples;
use crate::shape::{BATCH, CLIENTS};
use anyhow::{Result, ensure};
use rand::Rng;

const KEY: &str = "key";
const LOCKED: &str = "locked";
const FREE: &str = "free";
/// The longest lease there is, so that the locks outlast the figure.
const LEASE_MS: i64 = 12 * 3_600 * 1_000;
/// Messages per call of the preparation.
const LEASE_BATCH: u64 = 1_000;
/// Keys of the messages that can run, far more than are leased at any time.
const FREE_KEYS: u64 = 1_000_000;

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let sizes = &plan.sizes;
    let traffic = Traffic::new(|_, rng| {
        let key = FREE_KEYS + rng.random_range(0..FREE_KEYS);
        (priority(rng), pair(KEY, key))
    });
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    for queue in [LOCKED, FREE] {
        ours.create_queue(queue, exclusive_queue(KEY)).await?;
    }
    lock(&ours, sizes.locked_keys, sizes.behind).await?;
    let [mut locked, mut free] = [const { Samples::new() }; 2];
    for queue in [LOCKED, FREE] {
        fill(&ours, queue, sizes.shallow, &traffic).await?;
    }
    for _ in 0..plan.runs {
        for (queue, samples) in [(LOCKED, &mut locked), (FREE, &mut free)] {
            let work = dequeue_rate(&ours, queue, sizes.messages, sizes.shallow, &traffic);
            samples.push(plan.profiled(rig, &format!("ours, {queue}"), work).await?);
        }
    }
    ours.stop().await?;
    let what = format!(
        "exclusive dequeue with {} locked keys, {} waiting behind each, {CLIENTS} clients, batches of {BATCH}",
        grouped(sizes.locked_keys),
        sizes.behind
    );
    let reference = Reference::Measured("ours with none locked", &free);
    let row = Row::new(what, "/s", &locked, reference, Goal::RatioAtLeast(0.8));
    Ok(vec![row.with("messages", sizes.messages).with("runnable", sizes.shallow)])
}

/// Leases one message of each key for the whole figure and enqueues more urgent ones with the same keys.
async fn lock(ours: &Ours, keys: u64, behind: u64) -> Result<()> {
    let urgent = Traffic::new(move |number, rng| (rng.random_range(0..1_000_000), pair(KEY, number % keys)));
    fill(ours, LOCKED, keys, &urgent).await?;
    let mut clients = ours.clients(LOCKED, 1, 1).await?;
    let client = &mut clients[0];
    let mut leased = 0;
    while leased < keys {
        let limit = LEASE_BATCH.min(keys - leased) as usize;
        let mut request = client.request(limit);
        request.lease_ms = Some(LEASE_MS);
        let leases = client.lease(request).await?;
        ensure!(!leases.is_empty(), "{leased} of {keys} keys are locked, and nothing is left to dequeue");
        leased += leases.len() as u64;
    }
    fill(ours, LOCKED, keys * behind, &urgent).await
}
