//! What messages that fall due together cost others: the latency of calls on their queue while they are moved (X5).
//!
//! The schedule is open: a call counts from its scheduled time until its answer.

use super::plan::QueuePlan;
use crate::load::{Draft, Source, Traffic};
use crate::ours::{OurClient, Ours, new_message, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{CallStats, Samples};
use crate::shape::{BATCH, CLIENTS, CONNECTIONS};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tallystone_proto::queue::v1::{EnqueueRequest, ExtendLeaseRequest, LeaseExtension};
use tokio::task::JoinSet;

const QUEUE: &str = "due";
/// Of each call.
const PER_S: u32 = 100;
/// The calls begin before the messages fall due.
const LEAD: Duration = Duration::from_millis(500);
/// How many messages can be enqueued in a second at least.
const FILLED_PER_S: u64 = 10_000;
/// The longest lease.
const LEASE_MS: i64 = 3_600_000;
const GOAL_MS: f64 = 50.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Dequeue,
    Enqueue,
    ExtendLease,
}

const CALLS: [(Call, &str); 3] =
    [(Call::Dequeue, "Dequeue"), (Call::Enqueue, "Enqueue"), (Call::ExtendLease, "ExtendLease")];

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let mut latencies = CALLS.map(|_| Samples::new());
    for _ in 0..plan.runs {
        rig.flush().await?;
        let ours = Ours::start(rig, plan.args.server_threads).await?;
        ours.create_queue(QUEUE, simple_queue()).await?;
        let stats = plan.profiled(rig, "while they fall due", sample(plan, &ours)).await?;
        for (samples, stats) in latencies.iter_mut().zip(stats) {
            samples.push(stats.sample(stats.quantile_ms(0.99).unwrap_or_default()));
        }
        ours.stop().await?;
    }
    let messages = grouped(plan.sizes.due);
    let row = |(samples, (_, name)): (&Samples, (Call, &str))| {
        let what = format!("{name} while {messages} messages fall due: p99");
        Row::new(what, "ms", samples, Reference::None, Goal::AtMost(GOAL_MS)).with("per_s", PER_S)
    };
    Ok(latencies.iter().zip(CALLS).map(row).collect())
}

/// Fills the queue, and makes the calls while its messages fall due.
async fn sample(plan: &QueuePlan, ours: &Ours) -> Result<[CallStats; 3]> {
    let due_ms = now_ms() + 2_000 + plan.sizes.due * 1_000 / FILLED_PER_S;
    fill(plan, ours, due_ms).await?;
    let mut clients = ours.clients(QUEUE, CONNECTIONS, CONNECTIONS).await?;
    let held = hold(&mut clients[0]).await?;
    let left_ms = due_ms.checked_sub(now_ms()).context("the messages fell due before all were enqueued")?;
    let begins = Instant::now() + Duration::from_millis(left_ms).saturating_sub(LEAD);
    let ends = begins + LEAD + plan.sizes.falling_due;
    let mut source = Traffic::plain().source(u64::MAX);
    let (mut calls, mut due, mut number) = (JoinSet::new(), begins, 0_u64);
    while due < ends {
        tokio::time::sleep_until(due.into()).await;
        for (at, (call, _)) in CALLS.into_iter().enumerate() {
            let client = &clients[number as usize % clients.len()];
            let client =
                OurClient { calls: client.calls.clone(), queue: client.queue.clone(), worker: client.worker.clone() };
            let (held, draft) = (held.clone(), source.draft(number));
            calls.spawn(async move {
                make(call, client, held, draft).await?;
                anyhow::Ok((at, due.elapsed()))
            });
            number += 1;
        }
        due += Duration::from_secs(1) / PER_S;
    }
    let mut stats = CALLS.map(|_| CallStats::new());
    while let Some(done) = calls.join_next().await {
        let (at, latency) = done??;
        stats[at].note(1, latency);
    }
    Ok(stats)
}

/// Enqueues messages that all fall due at this time.
async fn fill(plan: &QueuePlan, ours: &Ours, due_ms: u64) -> Result<()> {
    let clients = ours.clients(QUEUE, CLIENTS, CONNECTIONS).await?;
    let share = plan.sizes.due / clients.len() as u64;
    let filling = clients.into_iter().enumerate().map(|(n, client)| {
        let source = Traffic::plain().source(n as u64);
        fill_share(client, source, share, due_ms)
    });
    futures::future::try_join_all(filling).await.map(drop)
}

async fn fill_share(mut client: OurClient, mut source: Source, share: u64, due_ms: u64) -> Result<()> {
    let mut number = 0;
    while number < share {
        let end = share.min(number + BATCH as u64);
        let invisibility_ms = i64::try_from(due_ms.saturating_sub(now_ms()))?;
        let drafts = (number..end).map(|number| source.draft(number));
        let hidden = |draft: Draft| {
            let mut message = new_message(draft);
            message.invisibility_ms = Some(invisibility_ms);
            message
        };
        let messages = drafts.map(hidden).collect();
        client.calls.enqueue(EnqueueRequest { queue: client.queue.clone(), messages }).await?;
        number = end;
    }
    Ok(())
}

/// A lease that lasts.
async fn hold(client: &mut OurClient) -> Result<LeaseExtension> {
    let message = new_message(Traffic::plain().source(u64::MAX - 1).draft(0));
    client.calls.enqueue(EnqueueRequest { queue: client.queue.clone(), messages: vec![message] }).await?;
    let mut request = client.request(1);
    request.lease_ms = Some(LEASE_MS);
    let lease = client.lease(request).await?.pop().context("the message to hold")?;
    Ok(LeaseExtension { id: lease.id, fencing_token: lease.fencing_token, lease_ms: Some(LEASE_MS) })
}

async fn make(call: Call, mut client: OurClient, held: LeaseExtension, draft: Draft) -> Result<()> {
    let queue = client.queue.clone();
    match call {
        Call::Dequeue => drop(client.lease(client.request(1)).await?),
        Call::Enqueue => {
            drop(client.calls.enqueue(EnqueueRequest { queue, messages: vec![new_message(draft)] }).await?)
        }
        Call::ExtendLease => {
            let request = ExtendLeaseRequest { queue, extensions: vec![held], request_id: String::new() };
            let results = client.calls.extend_lease(request).await?.into_inner().results;
            ensure!(results.len() == 1, "the lease was not extended");
        }
    }
    Ok(())
}
