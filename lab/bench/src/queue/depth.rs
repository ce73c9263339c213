//! The dequeue rate of a deep simple queue; reference: a shallow queue in the same Redis.

use super::plan::QueuePlan;
use super::rounds::{dequeue_rate, fill};
use crate::load::Traffic;
use crate::ours::{Ours, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::Samples;
use crate::shape::{BATCH, CLIENTS};
use anyhow::Result;

const DEEP: &str = "deep";
const SHALLOW: &str = "shallow";

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let (sizes, traffic) = (&plan.sizes, Traffic::plain());
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    for (queue, pending) in [(SHALLOW, sizes.shallow), (DEEP, sizes.deep)] {
        ours.create_queue(queue, simple_queue()).await?;
        fill(&ours, queue, pending, &traffic).await?;
    }
    rig.finish_growing().await?;
    let [mut deep, mut shallow] = [const { Samples::new() }; 2];
    for _ in 0..plan.runs {
        // Rounds of the same size in both queues: the shallow one limits it.
        for (queue, samples) in [(DEEP, &mut deep), (SHALLOW, &mut shallow)] {
            let work = dequeue_rate(&ours, queue, sizes.messages, sizes.shallow, &traffic);
            samples.push(plan.profiled(rig, &format!("ours, {queue}"), work).await?);
        }
    }
    ours.stop().await?;
    let what = format!("dequeue with {} pending, {CLIENTS} clients, batches of {BATCH}", grouped(sizes.deep));
    let name = format!("ours with {} pending", grouped(sizes.shallow));
    let reference = Reference::Measured(&name, &shallow);
    let row = Row::new(what, "/s", &deep, reference, Goal::RatioAtLeast(0.8));
    Ok(vec![
        row.with("messages", sizes.messages).with("redis_used_memory", rig.info_number("memory", "used_memory").await?),
    ])
}
