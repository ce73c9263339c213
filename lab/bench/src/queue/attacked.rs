//! What attacks within the bounds cost others (S1): the latency of an innocent caller during each attack, against its
//! latency right before, and the memory that the server and Redis take. The attacker runs on this machine, too, and takes cores.

use super::attack_cost::{Footprint, LEAD, Measured};
use super::attacks::{Attack, POOL, pool_traffic};
use super::http_attacks::{self, HttpAttack};
use super::innocent::{INNOCENT, Schedule};
use super::plan::QueuePlan;
use super::rounds::fill_at;
use crate::ours::{channel_to, simple_queue};
use crate::program::Program;
use crate::report::{Goal, Row};
use crate::rig::Rig;
use crate::sample::Sample;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Instant;
use tallystone_proto::queue::v1::CreateQueueRequest;
use tallystone_proto::queue::v1::queue_admin_client::QueueAdminClient;

const GROWTH_MIB_MAX: f64 = 100.0;

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    // Of the server, and of Redis.
    let mut worst_mib = [0.0_f64; 2];
    let mut note = |measured: &Measured| {
        for (worst_mib, growth_mib) in worst_mib.iter_mut().zip(measured.growths_mib()) {
            *worst_mib = (*worst_mib).max(growth_mib);
        }
    };
    for attack in Attack::ALL {
        let mut measured = Measured::default();
        for _ in 0..plan.runs {
            sample(plan, rig, attack, &mut measured).await?;
        }
        note(&measured);
        rows.push(measured.row(format!("innocent queue during {}: p99", attack.name())));
    }
    for attack in HttpAttack::ALL {
        let mut measured = Measured::default();
        for _ in 0..plan.runs {
            http_attacks::sample(plan, rig, attack, &mut measured).await?;
        }
        note(&measured);
        rows.push(measured.row(format!("innocent counter during {}: p99", attack.name())));
    }
    for (whose, worst_mib) in ["the server", "Redis"].into_iter().zip(worst_mib) {
        let what = format!("growth of the memory of {whose}, by the worst of these attacks");
        rows.push(Row::once(what, "MiB", worst_mib, Goal::AtMost(GROWTH_MIB_MAX)));
    }
    Ok(rows)
}

async fn sample(plan: &QueuePlan, rig: &Rig, attack: Attack, measured: &mut Measured) -> Result<()> {
    let dir = tempfile::tempdir()?;
    rig.flush().await?;
    let (mut program, url) = serve(dir.path(), rig, attack.files_max()).await?;
    for queue in [INNOCENT, POOL] {
        let request = CreateQueueRequest { name: queue.to_owned(), config: Some(simple_queue()) };
        QueueAdminClient::new(channel_to(&url).await?).create_queue(request).await?;
    }
    if attack.needs_pool() {
        fill_at(&url, POOL, plan.messages, &pool_traffic()).await?;
    }
    measured.before.push(p99(plan, &url, Instant::now()).await?);
    let footprint = Footprint::before(&mut program, rig).await?;
    let attacking = attack.start(&url, LEAD + plan.sizes.fair).await?;
    measured.during.push(p99(plan, &url, Instant::now() + LEAD).await?);
    measured.note(&footprint, &Footprint::read(&mut program, rig).await?);
    drop(attacking);
    program.stop().await
}

/// Starts the server. It may open `files_max` files, or as many as this process.
async fn serve(dir: &Path, rig: &Rig, files_max: Option<u32>) -> Result<(Program, String)> {
    let redis = rig.url();
    let server = ["server", "--redis-url", redis.as_str()];
    let Some(files_max) = files_max else {
        return Program::serve(None, dir, &server).await;
    };
    let (own, limit) = (std::env::current_exe()?, format!("--nofile={files_max}"));
    let own = own.to_str().context("the path of this program")?;
    Program::serve(Some(Path::new("prlimit")), dir, &[&[limit.as_str(), own], &server[..]].concat()).await
}

async fn p99(plan: &QueuePlan, url: &str, begins: Instant) -> Result<Sample> {
    let rounds = Schedule { begins, lasts: plan.sizes.fair }.run(url).await?;
    Ok(rounds.sample(rounds.quantile_ms(0.99).unwrap_or_default()))
}
