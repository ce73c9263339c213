//! Redis commands per second while many workers wait on many empty queues, and while there are many more queues (Q18): in
//! minutes 2 to 5, so that what a server does once a minute is counted.

use super::plan::QueuePlan;
use super::work::StreamWorker;
use crate::ours::{Ours, simple_queue};
use crate::profile::commands_between;
use crate::report::{Goal, Row, grouped};
use crate::rig::Rig;
use anyhow::{Result, bail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tallystone_proto::queue::v1::CreateQueueRequest;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Workers per connection: below the number of streams that HTTP/2 servers allow.
const PER_CONNECTION: usize = 50;
/// A long poll that outlasts the figure: the longest there is.
const WAIT_MS: i64 = 300_000;

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    Ok(vec![waiting(plan, rig).await?, unused(plan, rig).await?])
}

async fn waiting(plan: &QueuePlan, rig: &Rig) -> Result<Row> {
    let sizes = &plan.sizes;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    let finished = CancellationToken::new();
    let mut waiting = JoinSet::new();
    let per_queue = sizes.idle_workers.div_ceil(sizes.idle_queues);
    let connections = sizes.idle_workers.div_ceil(PER_CONNECTION);
    let mut workers = ours.clients("", sizes.idle_workers, connections).await?;
    for number in 0..sizes.idle_queues {
        let queue = format!("idle-{number}");
        ours.create_queue(&queue, simple_queue()).await?;
        for (n, mut client) in workers.drain(..per_queue.min(workers.len())).enumerate() {
            client.queue = queue.clone();
            let finished = finished.clone();
            // Half of the workers wait on a stream, half in a long poll.
            if n % 2 == 0 {
                let mut worker = StreamWorker::open(client, 1).await?;
                waiting.spawn(async move { worker.next(&finished).await.map(|response| response.is_some()) });
            } else {
                let request = tallystone_proto::queue::v1::DequeueRequest { wait_ms: WAIT_MS, ..client.request(1) };
                waiting.spawn(async move {
                    tokio::select! {
                        answer = client.lease(request) => answer.map(|_| true).map_err(Into::into),
                        () = finished.cancelled() => Ok(false),
                    }
                });
            }
        }
    }
    let spent = spent_idle(plan, rig).await?;
    let waiters = waiting.len();
    finished.cancel();
    while let Some(ended) = waiting.join_next().await {
        if ended?? {
            bail!("a worker got a response, although every queue is empty");
        }
    }
    ours.stop().await?;

    let what = format!("Redis commands with {} idle workers on {} queues", grouped(waiters as u64), sizes.idle_queues);
    Ok(row(plan, what, spent, Goal::Below(10.0)))
}

/// Queues without workers.
async fn unused(plan: &QueuePlan, rig: &Rig) -> Result<Row> {
    let queues = plan.sizes.unused_queues;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    let mut admin = QueueAdminClient::new(ours.channel().await?);
    for number in 0..queues {
        let request = CreateQueueRequest { name: format!("unused-{number}"), config: Some(simple_queue()) };
        admin.create_queue(request).await?;
    }
    let spent = spent_idle(plan, rig).await?;
    ours.stop().await?;
    let what = format!("Redis commands with {} empty queues", grouped(queues as u64));
    Ok(row(plan, what, spent, Goal::Below(50.0)))
}

/// The commands of the time that is measured, by name.
async fn spent_idle(plan: &QueuePlan, rig: &Rig) -> Result<BTreeMap<String, u64>> {
    tokio::time::sleep(plan.sizes.settle).await;
    let before = rig.commands().await?;
    tokio::time::sleep(plan.sizes.idle).await;
    let spent = commands_between(&before, &rig.commands().await?);
    // The bench itself called INFO.
    let spent = spent.into_iter().filter(|(name, _)| name != "info");
    Ok(spent.map(|(name, cost)| (name, cost.calls)).collect())
}

fn row(plan: &QueuePlan, what: String, spent: BTreeMap<String, u64>, goal: Goal) -> Row {
    let seconds = plan.sizes.idle.as_secs_f64();
    let per_s = spent.values().sum::<u64>() as f64 / seconds;
    let by_name: Map<String, Value> = spent.into_iter().map(|(name, calls)| (name, calls.into())).collect();
    Row::once(what, "/s", per_s, goal).with("seconds", seconds).with("commands", by_name)
}
