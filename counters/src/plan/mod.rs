//! What an installation needs for a given load (N21): the configuration of a namespace, memory, disk, processes and machines.
//!
//! What lives here: the load ([`Demand`]), what it needs ([`Plan`]), and the measured figures that lead from one to the other
//! (`figures`). What may not: a connection to anything. A plan is arithmetic; `tallystone bench counters` measures how far
//! it is from the truth.

mod configuration;
mod demand;
pub mod figures;
mod fleet;
mod sizes;

use configuration::namespace;
pub use demand::Demand;
pub use fleet::{Fleet, Machine, Part};
pub use sizes::{Disk, Memory, Rollups};

use crate::namespace::NamespaceConfig;
use crate::refusal::Refusal;
use serde::Serialize;

/// What an installation needs for one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The configuration of the namespace.
    pub namespace: NamespaceConfig,
    /// The rollups of the load.
    pub rollups: Rollups,
    /// The memory of the counters' Redis.
    pub memory: Memory,
    /// What is written and kept on disks.
    pub disk: Disk,
    /// The processes, and the machines that they fill.
    pub fleet: Fleet,
}

impl Plan {
    /// The plan for a load on machines of this kind.
    ///
    /// # Errors
    /// `Invalid`: the load cannot be, no configuration can bear it, or one Redis Cluster cannot.
    pub fn new(demand: &Demand, machine: &Machine) -> Result<Plan, Refusal> {
        demand.check()?;
        let namespace = namespace(demand);
        namespace.check()?;
        let rollups = Rollups::of(demand, &namespace);
        let memory = Memory::of(demand, &namespace, &rollups);
        let disk = Disk::of(demand, &namespace, &rollups, &memory);
        let fleet = Fleet::of(demand, &rollups, &memory, machine)?;
        Ok(Plan { namespace, rollups, memory, disk, fleet })
    }
}

#[cfg(test)]
mod tests;
