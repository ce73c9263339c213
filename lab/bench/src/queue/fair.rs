//! What a flood costs others: the latency of an innocent queue while callers flood another one, through the flooded server
//! and through another server on the same Redis (S5). The reference is the same flood against a server and a Redis that
//! the innocent queue does not use, since it too takes the cores of this machine.

use super::innocent::{INNOCENT, PER_S, Schedule};
use super::plan::QueuePlan;
use crate::curve::{CallOutcome, Caller, call_until, failed};
use crate::load::{Source, Traffic};
use crate::ours::{OurClient, channel_to, clients_of, new_message, simple_queue};
use crate::program::Program;
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::time::{Duration, Instant};
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;
use tallystone_proto::queue::v1::{CreateQueueRequest, EnqueueRequest};
use tempfile::TempDir;

const FLOODERS: usize = 32;
const FLOOD_BATCH: usize = 100;
const FLOOD_CONNECTIONS: usize = 8;
/// The flood stands when the schedule begins.
const LEAD: Duration = Duration::from_secs(1);
const GOAL: f64 = 1.5;

/// Two servers on the rig's Redis, and an unrelated one.
struct Site {
    servers: [(Program, String); 3],
    _dirs: [TempDir; 3],
}

const FLOODED: usize = 0;
const OTHER: usize = 1;
const UNRELATED: usize = 2;

impl Site {
    async fn start(rig: &Rig, unrelated: &Rig) -> Result<Site> {
        let dirs = [tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?];
        let serve = async |rig: &Rig, dir: &TempDir| {
            Program::serve(None, dir.path(), &["server", "--redis-url", &rig.url()]).await
        };
        rig.flush().await?;
        unrelated.flush().await?;
        let servers = [serve(rig, &dirs[0]).await?, serve(rig, &dirs[1]).await?, serve(unrelated, &dirs[2]).await?];
        for (server, queue) in [(FLOODED, INNOCENT), (FLOODED, "flood"), (UNRELATED, "flood")] {
            let request = CreateQueueRequest { name: queue.to_owned(), config: Some(simple_queue()) };
            QueueAdminClient::new(channel_to(&servers[server].1).await?).create_queue(request).await?;
        }
        Ok(Site { servers, _dirs: dirs })
    }

    fn url(&self, server: usize) -> &str {
        &self.servers[server].1
    }

    async fn stop(self) -> Result<()> {
        for (program, _) in self.servers {
            program.stop().await?;
        }
        Ok(())
    }
}

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let redis = Rig::start().await?;
    let mut sides = [(FLOODED, UNRELATED), (FLOODED, FLOODED), (OTHER, FLOODED)].map(|side| (side, Samples::new()));
    let mut flood = Samples::new();
    for _ in 0..plan.runs {
        for ((innocent, flooded), samples) in &mut sides {
            let site = Site::start(rig, &redis).await?;
            let (latency, rate) = sample(plan, &site, *innocent, *flooded).await?;
            samples.push(latency);
            flood.push(rate);
            site.stop().await?;
        }
    }
    redis.stop().await;
    let [(_, unrelated), (_, through), (_, other)] = &sides;
    let row = |which: &str, samples: &Samples| {
        let reference = Reference::Measured("the same flood on an unrelated server and Redis", unrelated);
        let what = format!("innocent queue while {FLOODERS} callers flood another, through {which}: p99");
        Row::new(what, "ms", samples, reference, Goal::RatioAtMost(GOAL)).with("per_s", PER_S)
    };
    Ok(vec![
        row("the flooded server", through),
        row("another server", other),
        Row::new("messages of the flood", "/s", &flood, Reference::None, Goal::None),
    ])
}

async fn sample(plan: &QueuePlan, site: &Site, innocent: usize, flooded: usize) -> Result<(Sample, Sample)> {
    let clients = clients_of(site.url(flooded), "flood", FLOODERS, FLOOD_CONNECTIONS).await?;
    let traffic = Traffic::plain();
    let flooders = clients.into_iter().enumerate();
    let flooders = flooders.map(|(n, client)| Flooder { client, source: traffic.source(n as u64) }).collect();
    let schedule = Schedule { begins: Instant::now() + LEAD, lasts: plan.sizes.fair };
    let until = schedule.begins + schedule.lasts;
    let (rounds, flood) = futures::try_join!(schedule.run(site.url(innocent)), call_until(flooders, until))?;
    let rate = flood.stats.messages as f64 / (LEAD + schedule.lasts).as_secs_f64();
    let p99_ms = rounds.quantile_ms(0.99).unwrap_or_default();
    Ok((rounds.sample(p99_ms), flood.stats.sample(rate)))
}

/// Enqueues batches as fast as it can.
struct Flooder {
    client: OurClient,
    source: Source,
}

impl Caller for Flooder {
    async fn call(&mut self) -> Result<CallOutcome> {
        let messages = (0..FLOOD_BATCH as u64).map(|n| new_message(self.source.draft(n))).collect();
        let request = EnqueueRequest { queue: self.client.queue.clone(), messages };
        match self.client.calls.enqueue(request).await {
            Ok(_) => Ok(CallOutcome::Done(FLOOD_BATCH)),
            Err(status) => Ok(failed(&status)),
        }
    }
}
