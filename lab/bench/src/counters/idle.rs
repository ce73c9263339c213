//! Many idle namespaces (Q18): what they cost Redis in commands and in its append-only file, and how much memory the
//! processes have. Each process is separate, as users run it. It is measured in minutes 2 to 5, so that what a process does
//! once a minute is counted.

use super::plan::CountersPlan;
use crate::profile::commands_between;
use crate::program::Program;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Result, ensure};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};
use tallystone_client::{CounterClient, NamespaceConfig};

const START_LIMIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(50);

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let (dir, redis_url) = (tempfile::tempdir()?, rig.url());
    let (queue, counters) = (free_address()?, free_address()?);
    let queue_url = format!("http://{queue}");
    let start = |arguments: &[&str]| Program::start(dir.path(), arguments, &[]);
    let mut server = start(&["server", "--listen", &queue, "--redis-url", &redis_url])?;
    let arguments = ["counters", "--listen", &counters, "--redis-url", &redis_url, "--server", &queue_url];
    let mut service = start(&arguments)?;
    let mut worker = start(&["rollup-worker", "--redis-url", &redis_url, "--server", &queue_url])?;
    let client = connected(&format!("http://{counters}")).await?;
    for number in 0..plan.sizes.idle_namespaces {
        client.put_namespace(&format!("idle-{number}"), NamespaceConfig::default()).await?;
    }
    tokio::time::sleep(plan.sizes.idle_settle).await;
    let (commands, bytes) = (rig.commands().await?, written(rig).await?);
    tokio::time::sleep(plan.sizes.idle).await;
    let spent = commands_between(&commands, &rig.commands().await?);
    let grown = written(rig).await? - bytes;
    let mib = [server.resident()?, worker.resident()?, service.resident()?].map(|memory| memory.now_mib);
    for program in [worker, service, server] {
        program.stop().await?;
    }

    // The bench itself called INFO.
    let calls: u64 = spent.iter().filter(|(name, _)| *name != "info").map(|(_, cost)| cost.calls).sum();
    let (namespaces, seconds) = (grouped(plan.sizes.idle_namespaces as u64), plan.sizes.idle.as_secs_f64());
    let row = |what: &str, unit: &'static str, value: f64, most: f64| {
        let mut samples = Samples::new();
        samples.push(Sample { value, ..Sample::default() });
        let what = format!("{what} with {namespaces} idle namespaces");
        Row::new(what, unit, &samples, Reference::None, Goal::AtMost(most)).with("seconds", seconds)
    };
    Ok(vec![
        row("Redis commands", "/s", calls as f64 / seconds, 100.0),
        row("growth of the append-only file", "B/s", grown / seconds, 1_000.0),
        row("memory of the queue server", "MiB", mib[0], 150.0),
        row("memory of the rollup worker", "MiB", mib[1], 150.0),
        row("memory of the counters' server", "MiB", mib[2], 150.0),
    ])
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string())
}

async fn connected(url: &str) -> Result<CounterClient> {
    let give_up_at = Instant::now() + START_LIMIT;
    loop {
        match CounterClient::connect(url).await {
            Ok(client) => return Ok(client),
            Err(error) => ensure!(Instant::now() < give_up_at, "the counters do not start: {error}"),
        }
        tokio::time::sleep(START_POLL).await;
    }
}

/// The bytes of the append-only file.
async fn written(rig: &Rig) -> Result<f64> {
    rig.info_number("persistence", "aof_current_size").await
}
