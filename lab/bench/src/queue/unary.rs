//! Enqueue of one message per call by 64 callers; references: BullMQ's add and beanstalkd's put.

use super::plan::QueuePlan;
use crate::load::{LoadClient, Traffic, enqueue_all};
use crate::ours::{Ours, simple_queue};
use crate::peers::beanstalkd::Beanstalkd;
use crate::peers::bullmq::{BullMq, Measure};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{CALLERS, CONNECTIONS};
use anyhow::Result;

const QUEUE: &str = "bench";

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let bullmq = BullMq::find(plan.peers_dir()).await;
    let beanstalkd_name = Beanstalkd::start().await?.map(|beanstalkd| beanstalkd.name());
    let [mut ours, mut adds, mut puts] = [const { Samples::new() }; 3];
    for _ in 0..plan.runs {
        ours.push(our_sample(plan, rig).await?);
        if let Some(bullmq) = &bullmq {
            adds.push(bullmq.sample(rig, Measure::Add, plan.sizes.messages).await?);
        }
        // A fresh one for each sample, so that the log of one does not slow the next.
        if let Some(beanstalkd) = Beanstalkd::start().await? {
            puts.push(calls(plan, beanstalkd.clients(CALLERS).await?).await?);
        }
    }
    let bullmq_name = bullmq.map_or("BullMQ add".to_owned(), |bullmq| format!("{} add", bullmq.name()));
    let beanstalkd_name = beanstalkd_name.map_or("beanstalkd put".to_owned(), |name| format!("{name} put"));
    let row = |name: &str, theirs: &Samples, goal| {
        let what = format!("Enqueue, one message per call, {CALLERS} callers");
        let reference = Reference::peer(name, theirs);
        Row::new(what, "/s", &ours, reference, goal)
            .with("messages", plan.sizes.messages)
            .with("connections", CONNECTIONS)
    };
    Ok(vec![row(&bullmq_name, &adds, Goal::RatioAtLeast(1.0)), row(&beanstalkd_name, &puts, Goal::None)])
}

async fn our_sample(plan: &QueuePlan, rig: &Rig) -> Result<Sample> {
    rig.flush().await?;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    ours.create_queue(QUEUE, simple_queue()).await?;
    let clients = ours.clients(QUEUE, CALLERS, CONNECTIONS).await?;
    let sample = plan.profiled(rig, "ours, unary enqueue", calls(plan, clients)).await?;
    ours.stop().await?;
    Ok(sample)
}

async fn calls<C: LoadClient>(plan: &QueuePlan, clients: Vec<C>) -> Result<Sample> {
    let (_, total) = enqueue_all(clients, 0..plan.sizes.messages, 1, &Traffic::plain()).await?;
    Ok(total.rate())
}
