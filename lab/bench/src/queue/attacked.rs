//! What attacks within the bounds cost others (S1): the latency of an innocent queue during each attack, against its latency
//! right before, and the memory that the server takes. The attacker runs on this machine, too, and takes its cores.

use super::attacks::{Attack, POOL, pool_traffic};
use super::innocent::{INNOCENT, PER_S, Schedule};
use super::plan::QueuePlan;
use super::rounds::fill_at;
use crate::ours::{channel_to, simple_queue};
use crate::program::Program;
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::time::{Duration, Instant};
use tallystone_proto::queue::v1::CreateQueueRequest;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;

/// The attack stands when its schedule begins.
const LEAD: Duration = Duration::from_secs(1);
const RATIO_MAX: f64 = 5.0;
const GROWTH_MIB_MAX: f64 = 100.0;

#[derive(Default)]
struct Measured {
    before: Samples,
    during: Samples,
    growth_mib: Vec<f64>,
    redis_growth_mib: Vec<f64>,
}

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut growth_mib: f64 = 0.0;
    for attack in Attack::ALL {
        let mut measured = Measured::default();
        for _ in 0..plan.runs {
            sample(plan, rig, attack, &mut measured).await?;
        }
        let Measured { before, during, growth_mib: grown, redis_growth_mib } = &measured;
        let (grown, of_redis) = (crate::sample::median(grown), crate::sample::median(redis_growth_mib));
        growth_mib = growth_mib.max(grown);
        let what = format!("innocent queue during {}: p99", attack.name());
        let reference = Reference::Measured("before the attack", before);
        let row = Row::new(what, "ms", during, reference, Goal::RatioAtMost(RATIO_MAX));
        rows.push(row.with("per_s", PER_S).with("growth_mib", grown).with("redis_growth_mib", of_redis));
    }
    let what = "growth of the server's memory, by the worst of these attacks";
    rows.push(Row::once(what, "MiB", growth_mib, Goal::AtMost(GROWTH_MIB_MAX)));
    Ok(rows)
}

async fn sample(plan: &QueuePlan, rig: &Rig, attack: Attack, measured: &mut Measured) -> Result<()> {
    let dir = tempfile::tempdir()?;
    rig.flush().await?;
    let (mut program, url) = Program::serve(None, dir.path(), &["server", "--redis-url", &rig.url()]).await?;
    for queue in [INNOCENT, POOL] {
        let request = CreateQueueRequest { name: queue.to_owned(), config: Some(simple_queue()) };
        QueueAdminClient::new(channel_to(&url).await?).create_queue(request).await?;
    }
    if attack.needs_pool() {
        fill_at(&url, POOL, plan.messages, &pool_traffic()).await?;
    }
    measured.before.push(p99(plan, &url, Instant::now()).await?);
    let (resident, redis) = (program.resident()?.now_mib, rig.info_number("memory", "used_memory").await?);
    let attacking = attack.start(&url, LEAD + plan.sizes.fair).await?;
    measured.during.push(p99(plan, &url, Instant::now() + LEAD).await?);
    measured.growth_mib.push((program.resident()?.now_mib - resident).max(0.0));
    let redis_bytes = rig.info_number("memory", "used_memory").await? - redis;
    measured.redis_growth_mib.push(redis_bytes.max(0.0) / f64::from(1 << 20));
    drop(attacking);
    program.stop().await
}

async fn p99(plan: &QueuePlan, url: &str, begins: Instant) -> Result<Sample> {
    let rounds = Schedule { begins, lasts: plan.sizes.fair }.run(url).await?;
    Ok(rounds.sample(rounds.quantile_ms(0.99).unwrap_or_default()))
}
