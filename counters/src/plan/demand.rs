//! The load that an installation must bear.

use crate::namespace::{CounterType, NamespaceConfig};
use crate::refusal::Refusal;
use serde::Serialize;

pub(super) const DAY_MS: u64 = 86_400_000;
/// Events are kept for longer than their tokens are known, which is a minute at least.
const RETENTION_MS_MIN: u64 = 120_000;
const RETENTION_MS_MAX: u64 = 366 * DAY_MS;
/// Beyond these, a plan is a mistake of its input.
const ADDS_PER_S_MAX: u64 = 100_000_000;
const COUNTERS_MAX: u64 = 1_000_000_000_000;
const NAME_BYTES_MAX: u64 = 512;

/// The load of one namespace at its busiest time.
#[derive(Clone, Debug, Serialize)]
pub struct Demand {
    /// What its counts promise.
    pub counter_type: CounterType,
    /// Adds each second, of all counters together.
    pub adds_per_s: u64,
    /// How many counters exist.
    pub counters: u64,
    /// The mean length of their names.
    pub name_bytes: u64,
    /// How long events are kept.
    pub retention_ms: u64,
    /// Whether there is an archive.
    pub has_archive: bool,
    /// All adds to a counter within this time share one rollup.
    pub coalesce_ms: u64,
    /// How old an event may be when it arrives.
    pub accept_limit_ms: u64,
}

impl Demand {
    /// Adds to EVENTUAL counters with names of 16 bytes, kept for a week in an archive, with the default freshness.
    pub fn new(adds_per_s: u64, counters: u64) -> Demand {
        let NamespaceConfig { counter_type, coalesce_ms, accept_limit_ms, delete_after_ms: retention_ms, .. } =
            NamespaceConfig::default();
        let name_bytes = super::figures::NAME_BYTES;
        Demand {
            counter_type,
            adds_per_s,
            counters,
            name_bytes,
            retention_ms,
            has_archive: true,
            coalesce_ms,
            accept_limit_ms,
        }
    }

    /// Whether adds are events.
    pub(super) fn has_events(&self) -> bool {
        self.counter_type != CounterType::BestEffort
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        let bounded = [
            ("adds_per_s", self.adds_per_s, ADDS_PER_S_MAX),
            ("num_counters", self.counters, COUNTERS_MAX),
            ("name_bytes", self.name_bytes, NAME_BYTES_MAX),
        ];
        if let Some((field, value, max)) = bounded.into_iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
            return Err(Refusal::invalid(field, format!("is {value}; must be from 1 to {max}")));
        }
        let (min, max) = (RETENTION_MS_MIN, RETENTION_MS_MAX);
        if !(min..=max).contains(&self.retention_ms) {
            return Err(Refusal::invalid(
                "retention_ms",
                format!("is {}; must be from {min} to {max}", self.retention_ms),
            ));
        }
        // The plan computes with them before the configuration is checked.
        let times = NamespaceConfig {
            coalesce_ms: self.coalesce_ms,
            accept_limit_ms: self.accept_limit_ms,
            ..Default::default()
        };
        times.check()
    }
}
