//! Batches of 32 by 8 clients: enqueue everything, then dequeue and complete everything. Ours on a simple or an exclusive
//! queue; reference: the raw-Redis floor, which is a simple queue in both cases.

use super::plan::QueuePlan;
use crate::floor::Floor;
use crate::load::{LoadClient, Traffic, drain, enqueue_all};
use crate::ours::{Ours, exclusive_queue, simple_queue};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{BATCH, CLIENTS};
use anyhow::Result;
use tallystone_proto::queue::v1::QueueConfig;

pub(super) const QUEUE: &str = "bench";
pub(super) const KEY: &str = "key";

pub(super) async fn simple(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    measure(plan, rig, "simple", simple_queue(), Traffic::plain(), [1.25, 1.35]).await
}

pub(super) async fn exclusive(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let keys = plan.sizes.keys;
    let rows = measure(plan, rig, "exclusive", exclusive_queue(KEY), Traffic::keyed(KEY, keys), [1.0, 1.0]).await?;
    Ok(rows.into_iter().map(|row| row.with("keys", keys)).collect())
}

async fn measure(
    plan: &QueuePlan,
    rig: &Rig,
    kind: &str,
    config: QueueConfig,
    traffic: Traffic,
    [enqueue_goal, drain_goal]: [f64; 2],
) -> Result<Vec<Row>> {
    let [mut our_enqueue, mut our_drain, mut floor_enqueue, mut floor_drain] = [const { Samples::new() }; 4];
    for _ in 0..plan.runs {
        rig.flush().await?;
        let ours = Ours::start(rig, plan.args.server_threads).await?;
        ours.create_queue(QUEUE, config.clone()).await?;
        let clients = ours.clients(QUEUE, CLIENTS, CLIENTS).await?;
        let (enqueue, drain) = life_cycle(plan, rig, "ours", clients, &traffic).await?;
        ours.stop().await?;
        our_enqueue.push(enqueue);
        our_drain.push(drain);

        rig.flush().await?;
        let clients = Floor::clients(rig, CLIENTS).await?;
        let (enqueue, drain) = life_cycle(plan, rig, "floor", clients, &Traffic::plain()).await?;
        floor_enqueue.push(enqueue);
        floor_drain.push(drain);
    }
    let row = |what: &str, ours: &Samples, floor: &Samples, goal| {
        let what = format!("{} queue, {CLIENTS} clients, batches of {BATCH}: {what}", kind);
        let reference = Reference::Measured("raw-Redis floor", floor);
        Row::new(what, "/s", ours, reference, Goal::RatioAtLeast(goal)).with("messages", plan.sizes.messages)
    };
    Ok(vec![
        row("enqueue", &our_enqueue, &floor_enqueue, enqueue_goal),
        row("dequeue + complete", &our_drain, &floor_drain, drain_goal),
    ])
}

/// The rates of enqueuing all messages, and of dequeuing and completing them.
pub(super) async fn life_cycle<C: LoadClient>(
    plan: &QueuePlan,
    rig: &Rig,
    side: &str,
    clients: Vec<C>,
    traffic: &Traffic,
) -> Result<(Sample, Sample)> {
    let messages = plan.sizes.messages;
    let filling = enqueue_all(clients, 0..messages, BATCH, traffic);
    let (clients, enqueued) = plan.profiled(rig, &format!("{side}, enqueue"), filling).await?;
    let draining = drain(clients, messages, BATCH);
    let (_, drained) = plan.profiled(rig, &format!("{side}, dequeue + complete"), draining).await?;
    Ok((enqueued.rate(), drained.rate()))
}
