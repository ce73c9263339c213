//! The flights counted once more by counters in this process, which push their sums to the counter service.

use super::adds::counters;
use crate::flights::plan::{FlightNo, Plan};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use tallystone_client::local::{Handle, LocalCounters, LocalOptions};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig};

/// Counters of one call.
const PAGE: usize = 1_000;

/// What the local counters did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LocallyCounted {
    pub(in crate::flights) adds: u64,
    pub(in crate::flights) adds_s: f64,
    /// Counters of the service that equal the direct count, and all of them.
    pub(in crate::flights) equal: u64,
    pub(in crate::flights) counters: u64,
}

/// Adds each flight to its four counters in the process, and compares what the service has after the last push.
pub(super) async fn count(
    client: &CounterClient,
    namespace: &str,
    plan: &Plan,
    flights: &[FlightNo],
    direct: &BTreeMap<String, i64>,
) -> Result<LocallyCounted> {
    // Its counts are exact at once.
    let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    client.put_namespace(namespace, config).await.context("cannot create the namespace of local counters")?;
    let dir = tempfile::tempdir().context("cannot create a folder for local counters")?;
    let local = LocalCounters::open(dir.path(), client.clone(), LocalOptions::default()).await?;
    let names: Vec<&str> = direct.keys().map(String::as_str).collect();
    let handles = local.handles(namespace, &names)?;
    let number_of: HashMap<&str, usize> = names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
    let adds: Vec<&Handle> = flights
        .iter()
        .flat_map(|flight| counters(plan, *flight))
        .filter_map(|name| number_of.get(name.as_str()).map(|number| &handles[*number]))
        .collect();
    let begun = Instant::now();
    for handle in &adds {
        handle.add(1);
    }
    let adds_s = begun.elapsed().as_secs_f64();
    let adds = adds.len() as u64;
    drop(handles);
    local.close().await.context("cannot push the local counters")?;
    let mut equal = 0;
    for page in names.chunks(PAGE) {
        let counts = client.get_many(namespace, page.iter().map(|name| (*name).to_owned()).collect()).await?;
        equal += page
            .iter()
            .zip(counts)
            .filter(|(name, count)| matches!(count, Ok(count) if count.count == direct[**name]))
            .count();
    }
    Ok(LocallyCounted { adds, adds_s, equal: equal as u64, counters: direct.len() as u64 })
}
