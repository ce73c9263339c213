//! Redis commands per second while many workers wait on many empty queues (Q18).

use super::plan::QueuePlan;
use super::work::StreamWorker;
use crate::ours::{Ours, simple_queue};
use crate::profile::commands_between;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Result, bail};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Workers per connection: below the number of streams that HTTP/2 servers allow.
const PER_CONNECTION: usize = 50;
/// A long poll that outlasts the figure.
const WAIT_MS: i64 = 120_000;
/// The time for the commands that the arrival of the workers causes.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
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
    tokio::time::sleep(SETTLE).await;
    let before = rig.commands().await?;
    tokio::time::sleep(sizes.idle).await;
    let mut spent = commands_between(&before, &rig.commands().await?);
    // The bench itself called INFO.
    spent.retain(|(name, _)| name != "info");

    let waiters = waiting.len();
    finished.cancel();
    while let Some(ended) = waiting.join_next().await {
        if ended?? {
            bail!("a worker got a response, although every queue is empty");
        }
    }
    ours.stop().await?;

    let seconds = sizes.idle.as_secs_f64();
    let mut samples = Samples::new();
    let calls: u64 = spent.iter().map(|(_, cost)| cost.calls).sum();
    samples.push(Sample { value: calls as f64 / seconds, ..Sample::default() });
    let by_name: Map<String, Value> = spent.into_iter().map(|(name, cost)| (name, cost.calls.into())).collect();
    let what = format!("Redis commands with {} idle workers on {} queues", grouped(waiters as u64), sizes.idle_queues);
    let row = Row::new(what, "/s", &samples, Reference::None, Goal::Below(10.0));
    Ok(vec![row.with("seconds", seconds).with("commands", by_name)])
}
