//! From enqueue to delivery to a waiting worker, at a fixed rate. The schedule is open: slow messages do not delay later
//! ones, and the latency of a message counts from its scheduled time, not from the time at which it was sent.

use super::plan::QueuePlan;
use super::work::StreamWorker;
use crate::load::{Source, Traffic, race};
use crate::ours::{OurClient, Ours, new_message, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{CallStats, Sample, Samples};
use crate::shape::{CLIENTS, CONNECTIONS, PAYLOAD_BYTES};
use anyhow::{Context, Result};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tallystone_proto::queue::v1::{EnqueueRequest, QueueConfig};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

const QUEUE: &str = "bench";
/// Messages that a worker may hold: more than it ever does, so that a worker always waits.
const CREDITS: u32 = 64;
/// Time until the schedule begins: by then everything is connected.
const LEAD: Duration = Duration::from_millis(200);

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let mut samples = Samples::new();
    for _ in 0..plan.runs {
        samples.push(sample(plan, rig, simple_queue(), plan.sizes.latency_per_s).await?);
    }
    let what = format!("enqueue → delivery to a waiting worker at {}/s: p99", grouped(plan.sizes.latency_per_s));
    let row = Row::new(what, "ms", &samples, Reference::None, Goal::Below(5.0));
    Ok(vec![row.with("workers", CLIENTS).with("seconds", plan.sizes.latency_s)])
}

/// The p99 at a rate, on a queue of this kind.
pub(super) async fn sample(plan: &QueuePlan, rig: &Rig, config: QueueConfig, per_s: u64) -> Result<Sample> {
    rig.flush().await?;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    ours.create_queue(QUEUE, config).await?;
    let mut workers = Vec::new();
    for client in ours.clients(QUEUE, CLIENTS, CLIENTS).await? {
        workers.push(StreamWorker::open(client, CREDITS).await?);
    }
    let schedule = Schedule {
        began: Instant::now() + LEAD,
        interval: Duration::from_secs(1) / u32::try_from(per_s)?,
        messages: per_s * plan.sizes.latency_s,
    };
    let sender = schedule.run(ours.clients(QUEUE, CONNECTIONS, CONNECTIONS).await?);
    let left = Arc::new(AtomicU64::new(schedule.messages));
    let finished = CancellationToken::new();
    let race = race(workers, schedule.messages, |_, worker| receive(worker, schedule, left.clone(), finished.clone()));
    let (_, total) = plan.profiled(rig, "ours, latency", race).await?;
    sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
    ours.stop().await?;
    Ok(total.stats.sample(total.stats.quantile_ms(0.99).unwrap_or_default()))
}

/// When to send each message.
#[derive(Clone, Copy)]
struct Schedule {
    began: Instant,
    interval: Duration,
    messages: u64,
}

impl Schedule {
    fn due(&self, number: u64) -> Instant {
        self.began + self.interval.mul_f64(number as f64)
    }

    /// Sends on a dedicated thread: the runtime's timers are exact only to milliseconds.
    fn run(self, clients: Vec<OurClient>) -> std::thread::JoinHandle<()> {
        let runtime = Handle::current();
        let mut source = Traffic::plain().source(0);
        std::thread::spawn(move || {
            for number in 0..self.messages {
                std::thread::sleep(self.due(number).saturating_duration_since(Instant::now()));
                let client = &clients[number as usize % clients.len()];
                let (mut calls, request) = (client.calls.clone(), request(&client.queue, &mut source, number));
                runtime.spawn(async move {
                    // The receivers miss a lost message, and their time is bounded.
                    if let Err(status) = calls.enqueue(request).await {
                        eprintln!("bench: message {number} was not taken: {status}");
                    }
                });
            }
        })
    }
}

/// One message whose payload begins with its number.
fn request(queue: &str, source: &mut Source, number: u64) -> EnqueueRequest {
    let mut payload = vec![0; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    let message = new_message(crate::load::Draft { payload: Bytes::from(payload), ..source.draft(number) });
    EnqueueRequest { queue: queue.to_owned(), messages: vec![message] }
}

async fn receive(
    mut worker: StreamWorker,
    schedule: Schedule,
    left: Arc<AtomicU64>,
    finished: CancellationToken,
) -> Result<(StreamWorker, CallStats)> {
    let mut stats = CallStats::new();
    while let Some(response) = worker.next(&finished).await? {
        let now = Instant::now();
        for lease in &response.leases {
            let number = lease.payload.first_chunk().context("a payload that was not sent")?;
            stats.note(1, now.saturating_duration_since(schedule.due(u64::from_be_bytes(*number))));
            worker.complete(lease).await?;
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                finished.cancel();
            }
        }
    }
    Ok((worker, stats))
}
