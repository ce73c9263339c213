//! The second part of the demo: each flight that landed adds to four counters, every add is sent twice, and one of two
//! rollup workers is killed in the middle. Each flight is also a view of its route by its aircraft (`views`), and an add of
//! counters in this process (`local`). At the end every total must equal a direct count of the file.
//!
//! What lives here: the adds (`adds`), the workers and their death (`rollup_workers`), what is made of their records
//! (`overlap`), views and local counters. What may not: the server, which the demo brings along.

mod adds;
mod direct;
mod local;
mod overlap;
mod rollup_workers;
mod services;
mod views;

pub(crate) use local::LocallyCounted;
pub(crate) use overlap::{KilledRollupWorker, Overlaps};
pub use services::CounterServices;
pub(crate) use views::Viewed;

use super::flight_log::FlightLogEntries;
use super::plan::Plan;
use adds::Sent;
use anyhow::{Context, Result, ensure};
use direct::{Direct, count_directly};
use overlap::story;
use rollup_workers::RollupWorkers;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tallystone_client::{Cardinality, CounterClient, CounterType, NamespaceConfig};

/// Short times, so that the demo is soon over; docs/counters.md says what they do.
const ACCEPT_LIMIT_MS: u64 = 2_000;
const COALESCE_MS: u64 = 500;
const QUEUES: u32 = 2;
/// How long it may take until the counts are exact.
const EXACT_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Counters per call.
const PAGE: usize = 1_000;

/// What was counted, and how.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Counting {
    /// Adds of flights that landed, each of which was sent twice.
    pub(super) adds: u64,
    /// Adds that counted, and adds that were ignored as duplicates.
    pub(super) counted: u64,
    pub(super) duplicates: u64,
    pub(super) refused: u64,
    pub(super) send_s: f64,
    /// From the last add to when every count was exact.
    pub(super) exact_after_s: f64,
    pub(super) rollups: Overlaps,
    pub(super) killed_worker: Option<KilledRollupWorker>,
    pub(super) views: Viewed,
    pub(super) local: LocallyCounted,
    /// The expected totals, counted directly from the file.
    #[serde(skip)]
    pub(super) direct: BTreeMap<String, i64>,
}

/// Counts the flights that landed. Returns the totals by counter, and how they were counted.
pub(in crate::flights) async fn count(
    services: &CounterServices,
    plan: &Plan,
    landed: &FlightLogEntries,
    file: Option<&Path>,
) -> Result<(BTreeMap<String, i64>, Counting)> {
    let client =
        CounterClient::connect(&services.counters_url).await.context("cannot connect to the demo's counters")?;
    let namespace = format!("flights-{:08x}", uuid::Uuid::new_v4().as_fields().0);
    let config = NamespaceConfig {
        counter_type: Some(CounterType::Eventual),
        cardinality: Some(Cardinality::High),
        accept_limit_ms: Some(ACCEPT_LIMIT_MS),
        coalesce_ms: Some(COALESCE_MS),
        num_queues: Some(QUEUES),
        ..NamespaceConfig::default()
    };
    client.put_namespace(&namespace, config).await.context("cannot create the demo's namespace")?;
    let Direct { counts: direct, aircraft_of_route } = count_directly(file)?;
    let mut workers = RollupWorkers::start(services)?;
    let begun = Instant::now();
    let mut sent = adds::send(&client, &namespace, plan, landed).await?;
    let (send_s, last_add) = (begun.elapsed().as_secs_f64(), Instant::now());
    let kill_after = direct.len() as u64 / 10;
    let (killed, totals) = tokio::try_join!(
        workers.kill_one_in_the_middle(kill_after.clamp(1, 100)),
        exact_totals(&client, &namespace, &mut sent, &direct),
    )?;
    let exact_after_s = last_add.elapsed().as_secs_f64();
    let flights = adds::flights(&landed.runs);
    let views = views::count(&services.views_url, plan, &flights, &direct, &aircraft_of_route).await?;
    let local = local::count(&client, &format!("local-{namespace}"), plan, &flights, &direct).await?;
    let records = workers.stop().await?;
    let rollups = Overlaps::of(&namespace, &records, killed.as_ref())?;
    let killed_worker = killed.map(|killed| story(&namespace, &records, &killed));
    let Sent { adds, counted, duplicates, refused, .. } = sent;
    let counting = Counting {
        adds,
        counted,
        duplicates,
        refused,
        send_s,
        exact_after_s,
        rollups,
        killed_worker,
        views,
        local,
        direct,
    };
    Ok((totals, counting))
}

/// The totals, once every count includes its last add.
async fn exact_totals(
    client: &CounterClient,
    namespace: &str,
    sent: &mut Sent,
    direct: &BTreeMap<String, i64>,
) -> Result<BTreeMap<String, i64>> {
    let deadline = Instant::now() + EXACT_WITHIN;
    // Counters without adds must be read, too: a missing add has to show.
    for name in direct.keys() {
        sent.counters.entry(name.clone()).or_default();
    }
    let names: Vec<String> = sent.counters.keys().cloned().collect();
    loop {
        let (mut totals, mut exact) = (BTreeMap::new(), true);
        for page in names.chunks(PAGE) {
            let counts = client.get_many(namespace, page.to_vec()).await.context("cannot read the counts")?;
            for (name, count) in page.iter().zip(counts) {
                let count = count.with_context(|| format!("cannot read the count of {name}"))?;
                exact &= count.exact_to_ms > sent.counters[name] || sent.counters[name] == 0;
                totals.insert(name.clone(), count.count);
            }
        }
        if exact {
            return Ok(totals);
        }
        ensure!(Instant::now() < deadline, "the counts did not become exact within {EXACT_WITHIN:?}");
        tokio::time::sleep(POLL_EVERY).await;
    }
}
