//! What messages that fall due together cost others: the latency of calls on their queue while they are moved (X5).
//!
//! The schedule is open: a call counts from its scheduled time until its answer.

use super::innocent::{PER_S, Schedule};
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

const QUEUE: &str = "due";
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

/// Each run has another Redis: a server that was stopped still watches the one that it had.
pub(super) async fn measure(plan: &QueuePlan) -> Result<Vec<Row>> {
    let mut latencies = CALLS.map(|_| Samples::new());
    for _ in 0..plan.runs {
        let stats = Rig::with_another(async |rig| run(plan, rig).await).await?;
        for (samples, stats) in latencies.iter_mut().zip(stats) {
            samples.push(stats.sample(stats.quantile_ms(0.99).unwrap_or_default()));
        }
    }
    let messages = grouped(plan.sizes.due);
    let row = |(samples, (_, name)): (&Samples, (Call, &str))| {
        let what = format!("{name} while {messages} messages fall due: p99");
        Row::new(what, "ms", samples, Reference::None, Goal::AtMost(GOAL_MS)).with("per_s", PER_S)
    };
    Ok(latencies.iter().zip(CALLS).map(row).collect())
}

async fn run(plan: &QueuePlan, rig: &Rig) -> Result<Vec<CallStats>> {
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    ours.create_queue(QUEUE, simple_queue()).await?;
    let stats = plan.profiled(rig, "while they fall due", sample(plan, &ours)).await?;
    ours.stop().await?;
    Ok(stats)
}

/// Fills the queue, and makes the calls while its messages fall due. Of each call its times.
async fn sample(plan: &QueuePlan, ours: &Ours) -> Result<Vec<CallStats>> {
    let due_ms = now_ms() + 2_000 + plan.sizes.due * 1_000 / FILLED_PER_S;
    fill(plan, ours, due_ms).await?;
    let mut clients = ours.clients(QUEUE, CONNECTIONS, CONNECTIONS).await?;
    let held = hold(&mut clients[0]).await?;
    let left_ms = due_ms.checked_sub(now_ms()).context("the messages fell due before all were enqueued")?;
    let begins = Instant::now() + Duration::from_millis(left_ms).saturating_sub(LEAD);
    let schedule = Schedule { begins, lasts: LEAD + plan.sizes.falling_due };
    let (clients, held) = (&clients, &held);
    let calls = CALLS.into_iter().enumerate().map(|(at, (call, _))| {
        let mut source = Traffic::plain().source(u64::MAX - at as u64);
        schedule.calls(move |number| {
            make(call, clients[number as usize % clients.len()].clone(), held.clone(), source.draft(number))
        })
    });
    futures::future::try_join_all(calls).await
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
    let message = new_message(Traffic::plain().source(u64::MAX - CALLS.len() as u64).draft(0));
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
