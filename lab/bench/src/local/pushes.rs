//! A steady rate of adds to many counters, and what of it reaches the service.

use super::plan::LocalPlan;
use crate::own_threads::serve;
use crate::report::{Goal, Row};
use crate::rig::Rig;
use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use tallystone_assembly::{attach_counters, connect_namespaces};
use tallystone_client::local::{Handle, LocalCounters, LocalOptions};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig};
use tallystone_counters::CountersConfig;
use tallystone_link::RedisConfig;
use tallystone_serving::Host;
use tokio::task::spawn_blocking;

const NAMESPACE: &str = "bench";
/// Adds come in groups of this time.
const TICK: Duration = Duration::from_millis(1);

/// Adds at the rate of the plan for the time of its pushes, and returns how many.
fn add(handles: &[Handle], per_s: u64, time: Duration) -> u64 {
    let mut rng = StdRng::seed_from_u64(1);
    let (begin, mut added) = (Instant::now(), 0);
    loop {
        let elapsed = begin.elapsed().min(time);
        let due = (elapsed.as_secs_f64() * per_s as f64) as u64;
        for _ in added..due {
            handles[rng.random_range(0..handles.len())].add(1);
        }
        added = due;
        if elapsed == time {
            return added;
        }
        std::thread::sleep(TICK);
    }
}

pub(super) async fn measure(plan: &LocalPlan) -> Result<Vec<Row>> {
    let rig = Rig::start().await?;
    let redis = RedisConfig { url: rig.url(), ..RedisConfig::default() };
    let namespaces = connect_namespaces(&redis).await?;
    let service = serve(attach_counters(Host::new(), namespaces, None, CountersConfig::default().waiting())).await?;
    let client = CounterClient::connect(service.url()).await?;
    let accurate = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    client.put_namespace(NAMESPACE, accurate).await?;
    let dir = tempfile::tempdir()?;
    let mut options = LocalOptions::default();
    options.push_interval_ms = plan.push_interval.as_millis() as u64;
    options.slots_max = options.slots_max.max(plan.counters as u32);
    let counters = LocalCounters::open(dir.path(), client, options).await?;
    let names: Vec<String> = (0..plan.counters).map(|number| format!("counter-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let handles = counters.handles(NAMESPACE, &names)?;
    let (per_s, time) = (plan.per_s, plan.push_interval * plan.pushes);
    let (handles, added) = spawn_blocking(move || {
        let added = add(&handles, per_s, time);
        (handles, added)
    })
    .await?;
    let begin = Instant::now();
    counters.push().await?;
    let last_push = begin.elapsed();
    let left: i64 = handles.iter().map(Handle::unpushed).sum();
    ensure!(left == 0, "{left} adds are not pushed");
    let stats = counters.stats();
    drop(handles);
    counters.close().await?;
    drop(service);
    rig.stop().await;
    let per_push = stats.pushed_adds as f64 / (stats.pushes * plan.counters as u64) as f64;
    let what = |text: &str| format!("{text}, {} adds/s", crate::report::grouped(per_s));
    let rows = vec![
        Row::once(what("adds that reach the service for each counter and push"), "adds", per_push, Goal::AtMost(1.0)),
        Row::once(what("the last push"), "ms", last_push.as_secs_f64() * 1e3, Goal::None),
    ];
    let with = |row: Row| row.with("adds", added).with("pushes", stats.pushes).with("pushed_adds", stats.pushed_adds);
    Ok(rows.into_iter().map(with).collect())
}
