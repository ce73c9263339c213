//! Processes, and the machines that they fill.

use super::demand::Demand;
use super::figures::{ADDS_PER_S, BEST_EFFORT_ADDS_PER_S, ROLLUPS_PER_S};
use super::sizes::{Memory, Rollups};
use crate::namespace::SHARDS;
use crate::refusal::Refusal;
use serde::Serialize;

/// The part of what a process was measured to carry, and of a machine's memory, that a steady load may use.
const BUSY_MAX: f64 = 0.7;
const MEMORY_MAX: f64 = 0.8;
/// While Redis rewrites its append-only file, it copies each page that changes.
const REDIS_COPIES: f64 = 2.0;
/// The minimum number of primaries of a Redis Cluster.
const CLUSTER_PRIMARIES_MIN: u64 = 3;
/// Of the processes that keep no state there are two, so that one may die.
const REPLACEABLE_MIN: u64 = 2;
/// A majority of machines is left when one dies.
const MACHINES_MIN: u64 = 3;
/// Memory of a process that keeps no state, and of a Redis without data.
const PROCESS_BYTES: u64 = 256 << 20;
/// Redis memory of a rollup job in the queue.
const JOB_MEMORY_BYTES: f64 = 600.0;

/// What one machine has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Its cores.
    pub cores: u32,
    /// Its memory.
    pub memory_bytes: u64,
}

impl Machine {
    fn check(&self) -> Result<(), Refusal> {
        if self.cores == 0 {
            return Err(Refusal::invalid("machine_cores", "is 0; must be at least 1"));
        }
        if self.memory_bytes < 1 << 30 {
            return Err(Refusal::invalid("machine_memory", "is less than 1 GiB"));
        }
        Ok(())
    }

    fn usable_bytes(&self) -> f64 {
        self.memory_bytes as f64 * MEMORY_MAX
    }
}

/// The processes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What they are.
    pub name: &'static str,
    /// How many, the replicas of a Redis included.
    pub processes: u64,
    /// Memory of each.
    pub memory_bytes: u64,
}

/// All processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// The kinds.
    pub parts: Vec<Part>,
    /// Machines with a core and the memory for each process: enough that a majority is left when one dies.
    pub machines: u64,
}

impl Fleet {
    pub(super) fn of(demand: &Demand, rollups: &Rollups, memory: &Memory, machine: &Machine) -> Result<Fleet, Refusal> {
        machine.check()?;
        let carried_per_s = if demand.has_events() { ADDS_PER_S } else { BEST_EFFORT_ADDS_PER_S };
        // The load in units of what the bench has measured with all processes on two cores.
        let (adds, rollups_load) = (demand.adds_per_s as f64 / carried_per_s, rollups.per_s / ROLLUPS_PER_S);
        let redis_bytes = memory.total_bytes() as f64 * REDIS_COPIES;
        let primaries = |load: f64, bytes: f64| match units(load).max((bytes / machine.usable_bytes()).ceil() as u64) {
            1 => 1,
            several => several.max(CLUSTER_PRIMARIES_MIN),
        };
        let of_counters = primaries(adds + rollups_load, redis_bytes);
        if of_counters > SHARDS.into() {
            let installations = of_counters.div_ceil(SHARDS.into());
            let why = format!(
                "needs {of_counters} Redis primaries on machines like these, and a namespace has {SHARDS} shards: use \
                 larger machines, or spread the counters over {installations} installations"
            );
            return Err(Refusal::invalid("adds_per_s", why));
        }
        let redis = |name, primaries: u64, bytes: f64| Part {
            name,
            processes: 2 * primaries,
            memory_bytes: (bytes / primaries as f64) as u64,
        };
        let replaceable =
            |name, load| Part { name, processes: units(load).max(REPLACEABLE_MIN), memory_bytes: PROCESS_BYTES };
        let mut parts =
            vec![redis("Redis of the counters", of_counters, redis_bytes), replaceable("tallystone counters", adds)];
        if demand.has_events() {
            let queue_bytes = PROCESS_BYTES as f64 + rollups.waiting_counters * JOB_MEMORY_BYTES * REDIS_COPIES;
            parts.extend([
                replaceable("tallystone rollup-worker", rollups_load),
                redis("Redis of the queue", primaries(rollups_load, queue_bytes), queue_bytes),
                replaceable("tallystone server", rollups_load),
            ]);
        }
        let machines = machines(&parts, machine);
        Ok(Fleet { parts, machines })
    }
}

/// How many processes carry a load, in units of what one was measured to carry.
fn units(load: f64) -> u64 {
    (load / BUSY_MAX).ceil().max(1.0) as u64
}

fn machines(parts: &[Part], machine: &Machine) -> u64 {
    let processes: u64 = parts.iter().map(|part| part.processes).sum();
    let bytes: f64 = parts.iter().map(|part| part.processes as f64 * part.memory_bytes as f64).sum();
    let by_memory = (bytes / machine.usable_bytes()).ceil() as u64;
    processes.div_ceil(machine.cores.into()).max(by_memory).max(MACHINES_MIN)
}
