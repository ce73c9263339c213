//! What an attack costs: the latency of an innocent caller before and during it, memory, and the processor of Redis.

use super::innocent::PER_S;
use crate::profile::process_cpu_s;
use crate::program::{Program, Resident};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Samples, median};
use anyhow::Result;
use std::time::{Duration, Instant};

/// How long the attack runs before the schedule of the innocent caller begins.
pub(super) const LEAD: Duration = Duration::from_secs(1);
const RATIO_MAX: f64 = 5.0;

/// Both sides of an attack.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) before: Samples,
    pub(super) during: Samples,
    /// The most by which the attacked process has grown in any run.
    growth_mib: f64,
    /// The most by which Redis has grown.
    redis_growth_mib: f64,
    /// The share of a core that Redis uses during the attack, the innocent caller included.
    redis_cores: Vec<f64>,
}

/// What the processes have used so far.
pub(super) struct Footprint {
    at: Instant,
    resident: Resident,
    redis_bytes: f64,
    redis_cpu_s: f64,
}

impl Footprint {
    /// Before an attack: from now on the process has a new peak.
    pub(super) async fn before(program: &mut Program, rig: &Rig) -> Result<Footprint> {
        program.reset_peak()?;
        Footprint::read(program, rig).await
    }

    pub(super) async fn read(program: &mut Program, rig: &Rig) -> Result<Footprint> {
        Ok(Footprint {
            at: Instant::now(),
            resident: program.resident()?,
            redis_bytes: rig.info_number("memory", "used_memory").await?,
            redis_cpu_s: process_cpu_s(rig.pid())?,
        })
    }
}

impl Measured {
    /// Notes what an attack has taken between two moments.
    pub(super) fn note(&mut self, before: &Footprint, after: &Footprint) {
        self.growth_mib = self.growth_mib.max(after.resident.peak_mib - before.resident.now_mib);
        let redis_growth_mib = (after.redis_bytes - before.redis_bytes) / f64::from(1 << 20);
        self.redis_growth_mib = self.redis_growth_mib.max(redis_growth_mib);
        let lasted_s = (after.at - before.at).as_secs_f64();
        self.redis_cores.push((after.redis_cpu_s - before.redis_cpu_s) / lasted_s);
    }

    /// By how much the process and Redis have grown.
    pub(super) fn growths_mib(&self) -> [f64; 2] {
        [self.growth_mib, self.redis_growth_mib]
    }

    /// Its row of the report.
    pub(super) fn row(&self, what: String) -> Row {
        let reference = Reference::Measured("before the attack", &self.before);
        let row = Row::new(what, "ms", &self.during, reference, Goal::RatioAtMost(RATIO_MAX));
        let row = row.with("per_s", PER_S).with_shown("growth_mib", self.growth_mib);
        row.with("redis_growth_mib", self.redis_growth_mib).with("redis_cores", median(&self.redis_cores))
    }
}
