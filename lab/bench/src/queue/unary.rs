//! Enqueue of one message per call by 64 callers; references: BullMQ's add and beanstalkd's put. And the same calls by one
//! `Client` of tallystone-client, which sends them on a stream; reference: the unary calls.

use super::plan::QueuePlan;
use crate::load::{Draft, LoadClient, Traffic, enqueue_all};
use crate::ours::{Ours, simple_queue};
use crate::peers::beanstalkd::Beanstalkd;
use crate::peers::bullmq::{BullMq, Measure};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{CALLERS, CONNECTIONS};
use anyhow::{Result, bail};
use tallystone_client::{Client, NewMessage};

const QUEUE: &str = "bench";

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let bullmq = BullMq::find(plan.peers_dir()).await;
    let beanstalkd_name = Beanstalkd::start().await?.map(|beanstalkd| beanstalkd.name());
    let [mut ours, mut streamed, mut adds, mut puts] = [const { Samples::new() }; 4];
    for _ in 0..plan.runs {
        ours.push(our_sample(plan, rig).await?);
        streamed.push(streamed_sample(plan, rig).await?);
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
    let what = format!("Client::enqueue, one message per call, {CALLERS} callers on a stream");
    let reference = Reference::Measured("ours, unary calls", &ours);
    let by_stream = Row::new(what, "/s", &streamed, reference, Goal::RatioAtLeast(2.0))
        .with("messages", plan.sizes.messages)
        .with("connections", 1);
    Ok(vec![row(&bullmq_name, &adds, Goal::RatioAtLeast(1.0)), row(&beanstalkd_name, &puts, Goal::None), by_stream])
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

async fn streamed_sample(plan: &QueuePlan, rig: &Rig) -> Result<Sample> {
    rig.flush().await?;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    ours.create_queue(QUEUE, simple_queue()).await?;
    let client = Client::connect(ours.url()).await?;
    let callers = vec![Caller(client); CALLERS];
    let sample = plan.profiled(rig, "ours, streamed enqueue", calls(plan, callers)).await?;
    ours.stop().await?;
    Ok(sample)
}

/// A caller of a client that others use too. It only enqueues.
#[derive(Clone)]
struct Caller(Client);

impl LoadClient for Caller {
    type Held = ();

    async fn enqueue(&mut self, drafts: Vec<Draft>) -> Result<()> {
        let message = |Draft { id, payload, priority, metadata }| {
            let message = NewMessage::new(id, payload).priority(priority);
            metadata.into_iter().fold(message, |message, (key, value)| message.metadata(key, value))
        };
        let enqueued = self.0.enqueue(QUEUE, drafts.into_iter().map(message).collect()).await?;
        enqueued.into_iter().try_for_each(|message| message.map(drop))?;
        Ok(())
    }

    async fn dequeue(&mut self, _: usize) -> Result<Vec<()>> {
        bail!("it only enqueues")
    }

    async fn complete(&mut self, _: Vec<()>) -> Result<()> {
        bail!("it only enqueues")
    }
}

async fn calls<C: LoadClient>(plan: &QueuePlan, clients: Vec<C>) -> Result<Sample> {
    let (_, total) = enqueue_all(clients, 0..plan.sizes.messages, 1, &Traffic::plain()).await?;
    Ok(total.rate())
}
