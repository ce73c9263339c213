//! Many idle namespaces (Q18): what they cost Redis in commands and in its append-only file, and how much memory the
//! processes have. Each process is separate, as users run it. It is measured in minutes 2 to 5, so that what a process does
//! once a minute is counted.

use super::plan::CountersPlan;
use crate::profile::commands_between;
use crate::programs::Programs;
use crate::report::{Goal, Row, grouped};
use crate::rig::Rig;
use anyhow::Result;
use tallystone_client::{CounterClient, NamespaceConfig};

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let mut programs = Programs::start(rig, rig, None).await?;
    let client = CounterClient::connect(&programs.url).await?;
    for number in 0..plan.sizes.idle_namespaces {
        client.put_namespace(&format!("idle-{number}"), NamespaceConfig::default()).await?;
    }
    tokio::time::sleep(plan.sizes.idle_settle).await;
    let (commands, bytes) = (rig.commands().await?, rig.written().await?);
    tokio::time::sleep(plan.sizes.idle).await;
    let spent = commands_between(&commands, &rig.commands().await?);
    let grown = rig.written().await? - bytes;
    let mut mib = [0.0; 3];
    for (mib, program) in mib.iter_mut().zip([&mut programs.server, &mut programs.worker, &mut programs.counters]) {
        *mib = program.resident()?.now_mib;
    }
    programs.stop().await?;

    // The bench itself called INFO.
    let calls: u64 = spent.iter().filter(|(name, _)| *name != "info").map(|(_, cost)| cost.calls).sum();
    let (namespaces, seconds) = (grouped(plan.sizes.idle_namespaces as u64), plan.sizes.idle.as_secs_f64());
    let row = |what: &str, unit: &'static str, value: f64, most: f64| {
        let what = format!("{what} with {namespaces} idle namespaces");
        Row::once(what, unit, value, Goal::AtMost(most)).with("seconds", seconds)
    };
    Ok(vec![
        row("Redis commands", "/s", calls as f64 / seconds, 100.0),
        row("growth of the append-only file", "B/s", grown / seconds, 1_000.0),
        row("memory of the queue server", "MiB", mib[0], 150.0),
        row("memory of the rollup worker", "MiB", mib[1], 150.0),
        row("memory of the counters' server", "MiB", mib[2], 150.0),
    ])
}
