//! Memory and disk.

use super::demand::Demand;
use super::figures::{
    ARCHIVE_PASS_S, ARCHIVED_EVENT_BYTES, COUNTER_BYTES, LOG_BYTES_PER_ADD, LOG_BYTES_PER_BEST_EFFORT_ADD,
    LOG_BYTES_PER_ROLLUP, NAME_BYTES, PENDING_COUNTER_BYTES, PENDING_EVENT_BYTES, ROLLUP_S, SETTLED_EVENT_BYTES,
};
use crate::config::ArchiveConfig;
use crate::namespace::NamespaceConfig;
use serde::Serialize;

/// Redis rewrites its append-only file when it is twice as long as after the last rewrite, and writes the new one next to it.
const LOG_FILES: f64 = 3.0;
const DAY_S: f64 = 86_400.0;

/// The rollups of a load that all counters share equally. A load with hot counters has fewer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rollups {
    /// Rollups each second.
    pub per_s: f64,
    /// The adds that one rollup counts.
    pub adds_of_one: f64,
    /// Counters that wait for a rollup at any time.
    pub waiting_counters: f64,
    /// From an add until its counter's rollup has ended, in ms.
    pub lag_ms: u64,
}

impl Rollups {
    pub(super) fn of(demand: &Demand, config: &NamespaceConfig) -> Rollups {
        if !demand.has_events() {
            return Rollups { per_s: 0.0, adds_of_one: 0.0, waiting_counters: 0.0, lag_ms: 0 };
        }
        let waits_s = config.due_after_ms() as f64 / 1e3 + ROLLUP_S;
        let (adds_per_s, counters) = (demand.adds_per_s as f64, demand.counters as f64);
        // A counter waits from its first add until its rollup; then the next add must come.
        let cycle_s = waits_s + counters / adds_per_s;
        let per_s = counters / cycle_s;
        let lag_ms = (waits_s * 1e3) as u64;
        Rollups { per_s, adds_of_one: adds_per_s / per_s, waiting_counters: per_s * waits_s, lag_ms }
    }
}

/// Redis memory of the counters, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// The counts.
    pub counters_bytes: u64,
    /// Events that wait for their rollups, and the pending states of their counters.
    pub waiting_bytes: u64,
    /// Events that are rolled up: until they are in the archive, or deleted.
    pub settled_bytes: u64,
}

impl Memory {
    pub(super) fn of(demand: &Demand, config: &NamespaceConfig, rollups: &Rollups) -> Memory {
        let name_bytes = demand.name_bytes as f64 - NAME_BYTES as f64;
        let counters_bytes = (demand.counters as f64 * (COUNTER_BYTES + name_bytes)) as u64;
        if !demand.has_events() {
            return Memory { counters_bytes, waiting_bytes: 0, settled_bytes: 0 };
        }
        let adds_per_s = demand.adds_per_s as f64;
        let waiting_events = adds_per_s * rollups.lag_ms as f64 / 1e3;
        // The name is in the pending state twice.
        let state_bytes = PENDING_COUNTER_BYTES + 2.0 * name_bytes;
        let shards = f64::from(config.buckets_per_id).min(rollups.adds_of_one);
        let waiting_bytes = waiting_events * PENDING_EVENT_BYTES + rollups.waiting_counters * shards * state_bytes;
        let settled_s = if config.archived {
            let ArchiveConfig { interval_ms, keep_ms, .. } = ArchiveConfig::default();
            (interval_ms + keep_ms) as f64 / 1e3 + ARCHIVE_PASS_S
        } else {
            // Retention deletes a slice when all of it is old enough.
            config.delete_after_ms as f64 / 1e3 + config.seconds_per_slice as f64
        };
        let settled_bytes = adds_per_s * settled_s * SETTLED_EVENT_BYTES;
        Memory { counters_bytes, waiting_bytes: waiting_bytes as u64, settled_bytes: settled_bytes as u64 }
    }

    /// All of it: Redis's `used_memory`.
    pub fn total_bytes(&self) -> u64 {
        self.counters_bytes + self.waiting_bytes + self.settled_bytes
    }
}

/// What is written, and what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Disk {
    /// What the counters' Redis writes to its append-only file each second.
    pub log_bytes_per_s: u64,
    /// The most that this file takes.
    pub log_bytes: u64,
    /// What the queue's Redis writes to its append-only file each second.
    pub queue_log_bytes_per_s: u64,
    /// The archive, once events are as old as they become.
    pub archive_bytes: u64,
    /// What is added to it each day.
    pub archive_bytes_per_day: u64,
}

impl Disk {
    pub(super) fn of(demand: &Demand, config: &NamespaceConfig, rollups: &Rollups, memory: &Memory) -> Disk {
        let add_bytes = if demand.has_events() { LOG_BYTES_PER_ADD } else { LOG_BYTES_PER_BEST_EFFORT_ADD };
        let adds_per_s = demand.adds_per_s as f64;
        let kept_s = (config.delete_after_ms / 1_000 + config.seconds_per_slice) as f64;
        let archived_per_s = if config.archived { adds_per_s * ARCHIVED_EVENT_BYTES } else { 0.0 };
        Disk {
            log_bytes_per_s: (adds_per_s * add_bytes) as u64,
            log_bytes: (memory.total_bytes() as f64 * LOG_FILES) as u64,
            queue_log_bytes_per_s: (rollups.per_s * LOG_BYTES_PER_ROLLUP) as u64,
            archive_bytes: (archived_per_s * kept_s) as u64,
            archive_bytes_per_day: (archived_per_s * DAY_S) as u64,
        }
    }
}
