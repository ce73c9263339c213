//! What the shards of a queue cost on one Redis, where they make nothing faster: the life cycle of `batches` on a queue with
//! several shards, and the time until a worker that waits on an empty one has a message; reference: on one with a single shard.

use super::batches::{KEY, QUEUE, life_cycle};
use super::latency;
use super::plan::QueuePlan;
use crate::load::Traffic;
use crate::ours::{Ours, exclusive_queue, simple_queue};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{BATCH, CLIENTS};
use anyhow::Result;
use tallystone_proto::queue::v1::QueueConfig;

const SHARDS: i32 = 8;
const GOAL: f64 = 0.85;
/// Messages to waiting workers, at a rate so low that the queue is empty before each.
const WAITED_PER_S: u64 = 200;
const WAITED_GOAL: f64 = 1.5;

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let keyed = Traffic::keyed(KEY, plan.sizes.keys);
    let mut rows = of_kind(plan, rig, "simple", simple_queue(), Traffic::plain()).await?;
    rows.extend(of_kind(plan, rig, "exclusive", exclusive_queue(KEY), keyed).await?);
    rows.push(waited(plan, rig).await?);
    Ok(rows)
}

fn sharded(config: &QueueConfig) -> QueueConfig {
    QueueConfig { shards: Some(SHARDS), ..config.clone() }
}

async fn waited(plan: &QueuePlan, rig: &Rig) -> Result<Row> {
    let [mut several, mut one] = [const { Samples::new() }; 2];
    for _ in 0..plan.runs {
        several.push(latency::sample(plan, rig, sharded(&simple_queue()), WAITED_PER_S).await?);
        one.push(latency::sample(plan, rig, simple_queue(), WAITED_PER_S).await?);
    }
    let what = format!("enqueue on an empty queue of {SHARDS} shards → delivery to a waiting worker: p99");
    let reference = Reference::Measured("one shard", &one);
    Ok(Row::new(what, "ms", &several, reference, Goal::RatioAtMost(WAITED_GOAL)).with("per_s", WAITED_PER_S))
}

async fn of_kind(plan: &QueuePlan, rig: &Rig, kind: &str, config: QueueConfig, traffic: Traffic) -> Result<Vec<Row>> {
    let [mut enqueue, mut drain, mut one_enqueue, mut one_drain] = [const { Samples::new() }; 4];
    for _ in 0..plan.runs {
        let (enqueued, drained) = side(plan, rig, sharded(&config), &traffic).await?;
        enqueue.push(enqueued);
        drain.push(drained);
        let (enqueued, drained) = side(plan, rig, config.clone(), &traffic).await?;
        one_enqueue.push(enqueued);
        one_drain.push(drained);
    }
    let row = |what: &str, several: &Samples, one: &Samples| {
        let what = format!("{kind} queue of {SHARDS} shards, {CLIENTS} clients, batches of {BATCH}: {what}");
        let reference = Reference::Measured("one shard", one);
        Row::new(what, "/s", several, reference, Goal::RatioAtLeast(GOAL)).with("messages", plan.sizes.messages)
    };
    Ok(vec![row("enqueue", &enqueue, &one_enqueue), row("dequeue + complete", &drain, &one_drain)])
}

async fn side(plan: &QueuePlan, rig: &Rig, config: QueueConfig, traffic: &Traffic) -> Result<(Sample, Sample)> {
    rig.flush().await?;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    let label = format!("{} shards", config.shards.unwrap_or(1));
    ours.create_queue(QUEUE, config).await?;
    let clients = ours.clients(QUEUE, CLIENTS, CLIENTS).await?;
    let rates = life_cycle(plan, rig, &label, clients, traffic).await?;
    ours.stop().await?;
    Ok(rates)
}
