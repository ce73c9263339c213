//! The queue under overload: Enqueue with one message per call, and Work streams that hold one message each, by ever more
//! callers.

use super::plan::QueuePlan;
use super::work::StreamWorker;
use crate::curve::{self, CALLERS, CONNECTIONS, CallOutcome, Caller, DEADLINE, Point};
use crate::load::{Source, Traffic, enqueue_all};
use crate::ours::{OurClient, channel_to, clients_of, new_message, simple_queue};
use crate::program::Program;
use crate::report::Row;
use crate::rig::Rig;
use crate::shape::{BATCH, CLIENTS};
use anyhow::{Context, Result, ensure};
use std::time::Instant;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::{CreateQueueRequest, EnqueueRequest, Lease, enqueue_result};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tonic::Request;

const QUEUE: &str = "bench";

/// A server in its own process, on the rig's Redis, with a queue.
struct Served {
    program: Program,
    url: String,
    idle_mib: f64,
    _dir: TempDir,
}

impl Served {
    async fn start(rig: &Rig) -> Result<Served> {
        rig.flush().await?;
        let (redis_url, dir) = (rig.url(), tempfile::tempdir()?);
        let (mut program, url) = Program::serve(None, dir.path(), &["server", "--redis-url", &redis_url]).await?;
        let request = CreateQueueRequest { name: QUEUE.to_owned(), config: Some(simple_queue()) };
        QueueAdminClient::new(channel_to(&url).await?).create_queue(request).await?;
        let idle_mib = program.resident()?.now_mib;
        Ok(Served { program, url, idle_mib, _dir: dir })
    }

    async fn clients(&self, count: usize) -> Result<Vec<OurClient>> {
        clients_of(&self.url, QUEUE, count, CONNECTIONS).await
    }
}

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let (mut enqueues, mut works) = (Vec::new(), Vec::new());
    for callers in CALLERS {
        enqueues.push(enqueue(plan, rig, callers).await?);
    }
    for workers in CALLERS {
        works.push(work(plan, rig, workers).await?);
    }
    let mut rows = curve::rows("Enqueue, one message per call", "/s", &enqueues);
    rows.extend(curve::rows("Work streams, one message each", "/s", &works));
    Ok(rows)
}

async fn enqueue(plan: &QueuePlan, rig: &Rig, count: usize) -> Result<Point> {
    let mut served = Served::start(rig).await?;
    let traffic = Traffic::plain();
    let callers = served.clients(count).await?.into_iter().enumerate();
    let callers = callers.map(|(number, client)| Producer { client, source: traffic.source(number as u64), number: 0 });
    let until = Instant::now() + plan.sizes.overload;
    let point = Point::measure(&mut served.program, served.idle_mib, callers.collect(), until);
    let point = plan.profiled(rig, &format!("{count} producers"), point).await?;
    served.program.stop().await?;
    Ok(point)
}

async fn work(plan: &QueuePlan, rig: &Rig, count: usize) -> Result<Point> {
    let mut served = Served::start(rig).await?;
    let clients = clients_of(&served.url, QUEUE, CLIENTS, CLIENTS).await?;
    enqueue_all(clients, 0..plan.sizes.messages, BATCH, &Traffic::plain()).await?;
    let mut workers = Vec::new();
    for client in served.clients(count).await? {
        workers.push(OneAtATime { worker: StreamWorker::open(client, 1).await?, held: None });
    }
    let until = Instant::now() + plan.sizes.overload;
    let point = Point::measure(&mut served.program, served.idle_mib, workers, until);
    let point = plan.profiled(rig, &format!("{count} workers"), point).await?;
    served.program.stop().await?;
    Ok(point)
}

/// Enqueues one message per call.
struct Producer {
    client: OurClient,
    source: Source,
    number: u64,
}

impl Caller for Producer {
    async fn call(&mut self) -> Result<CallOutcome> {
        self.number += 1;
        let messages = vec![new_message(self.source.draft(self.number))];
        let mut request = Request::new(EnqueueRequest { queue: self.client.queue.clone(), messages });
        request.set_timeout(DEADLINE);
        match self.client.calls.enqueue(request).await {
            Ok(answer) => {
                let outcome = answer.into_inner().results.pop().and_then(|result| result.outcome);
                ensure!(matches!(outcome, Some(enqueue_result::Outcome::Ok(_))), "enqueue refused: {outcome:?}");
                Ok(CallOutcome::Done(1))
            }
            Err(status) => Ok(curve::failed(&status)),
        }
    }
}

/// Completes the message that it holds, and gets the next: one request.
struct OneAtATime {
    worker: StreamWorker,
    held: Option<Lease>,
}

impl Caller for OneAtATime {
    async fn call(&mut self) -> Result<CallOutcome> {
        if let Some(held) = self.held.take() {
            self.worker.complete(&held).await?;
        }
        let forever = CancellationToken::new();
        while self.held.is_none() {
            let response = self.worker.next(&forever).await?.context("nothing cancels the wait")?;
            self.held = response.leases.into_iter().next();
        }
        Ok(CallOutcome::Done(1))
    }
}
