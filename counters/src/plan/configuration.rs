//! The configuration of a namespace for a load.

use super::demand::{DAY_MS, Demand};
use super::sizes::Rollups;
use crate::namespace::NamespaceConfig;

/// The size of a rollup job in a queue, as `capacity_bytes` counts it.
const JOB_BYTES: f64 = 512.0;
/// A rollup queue has room for this factor times the jobs that wait in it: workers may be unavailable for a while.
const ROOM: f64 = 4.0;

/// The configuration of a namespace for this load.
pub(super) fn namespace(demand: &Demand) -> NamespaceConfig {
    let default = NamespaceConfig::default();
    let mut config = NamespaceConfig {
        counter_type: demand.counter_type,
        coalesce_ms: demand.coalesce_ms,
        accept_limit_ms: demand.accept_limit_ms,
        delete_after_ms: demand.retention_ms,
        // Tokens are known for as long as the default says, or for as long as there are events.
        close_after_ms: default.close_after_ms.min(demand.retention_ms - demand.retention_ms / 7),
        archived: demand.has_archive && demand.has_events(),
        ..default
    };
    if demand.retention_ms < DAY_MS {
        config.seconds_per_slice = (demand.retention_ms / 1_000 / 600).max(1) * 600;
    }
    let rollups = Rollups::of(demand, &config);
    if demand.has_events() && rollups.adds_of_one < 2.0 {
        // Spread over several shards, each event of a cold counter has its own pending state.
        config.buckets_per_id = 1;
    }
    let bytes = rollups.waiting_counters * JOB_BYTES * ROOM / f64::from(config.num_queues);
    config.capacity_bytes = config.capacity_bytes.max((bytes as u64).next_power_of_two());
    config
}
