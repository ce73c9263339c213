//! 64 workers on Work streams, each holding one message: one request completes it and fetches the next. References:
//! BullMQ's Worker at concurrency 64, and beanstalkd's reserve + delete by 64 connections. And the same work by one
//! `Worker` of tallystone-client at concurrency 64, which uses one stream.

use super::plan::QueuePlan;
use crate::load::{Traffic, drain, enqueue_all, race};
use crate::ours::{OurClient, Ours, simple_queue, succeeded};
use crate::peers::beanstalkd::Beanstalkd;
use crate::peers::bullmq::{BullMq, Measure};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{CallStats, Sample, Samples};
use crate::shape::{BATCH, CALLERS, CLIENTS, CONNECTIONS, time_limit};
use anyhow::{Context, Result, ensure};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tallystone_client::Worker;
use tallystone_proto::queue::v1::{Lease, LeaseRef, WorkRequest, WorkResponse, WorkStart};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

const QUEUE: &str = "bench";

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let bullmq = BullMq::find(plan.peers_dir()).await;
    let beanstalkd_name = Beanstalkd::start().await?.map(|beanstalkd| beanstalkd.name());
    let [mut ours, mut runtimes, mut bullmqs, mut beanstalkds] = [const { Samples::new() }; 4];
    for _ in 0..plan.runs {
        ours.push(streams(plan, rig).await?);
        runtimes.push(runtime(plan, rig).await?);
        if let Some(bullmq) = &bullmq {
            bullmqs.push(bullmq.sample(rig, Measure::Work, plan.sizes.messages).await?);
        }
        if let Some(beanstalkd) = Beanstalkd::start().await? {
            beanstalkds.push(beanstalkd_sample(plan, &beanstalkd).await?);
        }
    }
    let bullmq_name = bullmq.map_or("BullMQ Worker".to_owned(), |bullmq| format!("{} Worker", bullmq.name()));
    let beanstalkd_name = beanstalkd_name.unwrap_or("beanstalkd".to_owned());
    let row = |what: &str, ours: &Samples, name: &str, theirs: &Samples, goal| {
        let reference = Reference::peer(name, theirs);
        Row::new(what, "/s", ours, reference, goal).with("messages", plan.sizes.messages)
    };
    let what = format!("Work stream, {CALLERS} workers holding one message each");
    let runtime_what = format!("client's Worker, concurrency {CALLERS}, one stream");
    let beanstalkd_name = format!("{beanstalkd_name} reserve + delete");
    Ok(vec![
        row(&what, &ours, &bullmq_name, &bullmqs, Goal::RatioAtLeast(3.0)).with("connections", CONNECTIONS),
        row(&what, &ours, &beanstalkd_name, &beanstalkds, Goal::None).with("connections", CONNECTIONS),
        row(&runtime_what, &runtimes, &bullmq_name, &bullmqs, Goal::None).with("connections", 1),
    ])
}

/// A server with a queue that holds all messages of a sample.
async fn filled(plan: &QueuePlan, rig: &Rig) -> Result<Ours> {
    rig.flush().await?;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    ours.create_queue(QUEUE, simple_queue()).await?;
    let clients = ours.clients(QUEUE, CLIENTS, CLIENTS).await?;
    enqueue_all(clients, 0..plan.sizes.messages, BATCH, &Traffic::plain()).await?;
    Ok(ours)
}

async fn streams(plan: &QueuePlan, rig: &Rig) -> Result<Sample> {
    let messages = plan.sizes.messages;
    let ours = filled(plan, rig).await?;
    let mut workers = Vec::new();
    for client in ours.clients(QUEUE, CALLERS, CONNECTIONS).await? {
        workers.push(StreamWorker::open(client, 0).await?);
    }
    let left = Arc::new(AtomicU64::new(messages));
    let finished = CancellationToken::new();
    let race = race(workers, messages, |_, worker| worker.work_off(1, left.clone(), finished.clone()));
    let (_, total) = plan.profiled(rig, "ours, Work streams", race).await?;
    ours.stop().await?;
    Ok(total.rate())
}

/// The handler does nothing; the time is from the start of the worker to the last confirmed completion.
async fn runtime(plan: &QueuePlan, rig: &Rig) -> Result<Sample> {
    let messages = plan.sizes.messages;
    let ours = filled(plan, rig).await?;
    let client = tallystone_client::Client::connect(&ours.url()).await?;
    let finished = CancellationToken::new();
    let (completed, all) = (AtomicU64::new(0), finished.clone());
    let worker = Worker::new(client, QUEUE).concurrency(CALLERS as u32).on_outcome(move |_, _| {
        if completed.fetch_add(1, Ordering::Relaxed) + 1 == messages {
            all.cancel();
        }
    });
    let began = Instant::now();
    let work = worker.run_until(finished.cancelled(), |_lease: tallystone_client::Lease| async { Ok(()) });
    let work = tokio::time::timeout(time_limit(messages), work);
    let stats = plan.profiled(rig, "ours, Worker runtime", async { Ok(work.await??) }).await?;
    let elapsed = began.elapsed();
    ours.stop().await?;
    ensure!(stats.completed == messages, "the worker completed {} of {messages} messages", stats.completed);
    Ok(Sample { value: messages as f64 / elapsed.as_secs_f64(), ..Sample::default() })
}

async fn beanstalkd_sample(plan: &QueuePlan, beanstalkd: &Beanstalkd) -> Result<Sample> {
    let messages = plan.sizes.messages;
    let (clients, _) = enqueue_all(beanstalkd.clients(CALLERS).await?, 0..messages, 1, &Traffic::plain()).await?;
    Ok(drain(clients, messages, 1).await?.1.rate())
}

/// One worker with its own stream.
pub(super) struct StreamWorker {
    requests: mpsc::Sender<WorkRequest>,
    responses: Streaming<WorkResponse>,
}

impl StreamWorker {
    /// Opens the stream and grants `credits` credits.
    pub(super) async fn open(mut client: OurClient, credits: u32) -> Result<StreamWorker> {
        let (requests, outgoing) = mpsc::channel(1_024);
        let start = WorkStart { queue: client.queue, worker: client.worker, ..WorkStart::default() };
        requests.send(WorkRequest { start: Some(start), credits, ..WorkRequest::default() }).await?;
        let responses = client.calls.work(ReceiverStream::new(outgoing)).await?.into_inner();
        Ok(StreamWorker { requests, responses })
    }

    /// Completes what it gets, holding at most `credits` messages, until all workers together have completed the messages
    /// that were `left`. The latency is that from a completion to its acknowledgement.
    async fn work_off(
        mut self,
        credits: u32,
        left: Arc<AtomicU64>,
        finished: CancellationToken,
    ) -> Result<(StreamWorker, CallStats)> {
        let mut stats = CallStats::new();
        let mut under_way = VecDeque::new();
        self.requests.send(WorkRequest { credits, ..WorkRequest::default() }).await?;
        while let Some(response) = self.next(&finished).await? {
            for result in &response.completed {
                succeeded(result)?;
                let sent: Instant = under_way.pop_front().context("an acknowledgement without a completion")?;
                stats.note(1, sent.elapsed());
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    finished.cancel();
                }
            }
            for lease in &response.leases {
                under_way.push_back(Instant::now());
                self.complete(lease).await?;
            }
        }
        Ok((self, stats))
    }

    /// The next response of the server; `None` once `finished` is cancelled.
    pub(super) async fn next(&mut self, finished: &CancellationToken) -> Result<Option<WorkResponse>> {
        tokio::select! {
            response = self.responses.message() => Ok(Some(response?.context("the server closed a Work stream")?)),
            () = finished.cancelled() => Ok(None),
        }
    }

    /// Completes the message and grants a credit for the next.
    pub(super) async fn complete(&self, lease: &Lease) -> Result<()> {
        let done = LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token, ..Default::default() };
        Ok(self.requests.send(WorkRequest { credits: 1, complete: vec![done], ..WorkRequest::default() }).await?)
    }
}
