//! What an attack costs: the latency of an innocent caller before and during it, memory, and the processor of Redis.

use super::innocent::PER_S;
use crate::profile::process_cpu_s;
use crate::program::Program;
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
    /// The growth of the attacked process.
    growth_mib: Vec<f64>,
    /// The growth of Redis.
    redis_growth_mib: Vec<f64>,
    /// The share of a core that Redis uses during the attack, the innocent caller included.
    redis_cores: Vec<f64>,
}

/// What the processes have used so far.
pub(super) struct Footprint {
    at: Instant,
    resident_mib: f64,
    redis_bytes: f64,
    redis_cpu_s: f64,
}

impl Footprint {
    pub(super) async fn read(program: &mut Program, rig: &Rig) -> Result<Footprint> {
        Ok(Footprint {
            at: Instant::now(),
            resident_mib: program.resident()?.now_mib,
            redis_bytes: rig.info_number("memory", "used_memory").await?,
            redis_cpu_s: process_cpu_s(rig.pid())?,
        })
    }
}

impl Measured {
    /// Notes what an attack has taken between two moments.
    pub(super) fn note(&mut self, before: &Footprint, after: &Footprint) {
        self.growth_mib.push((after.resident_mib - before.resident_mib).max(0.0));
        self.redis_growth_mib.push((after.redis_bytes - before.redis_bytes).max(0.0) / f64::from(1 << 20));
        let lasted_s = (after.at - before.at).as_secs_f64();
        self.redis_cores.push((after.redis_cpu_s - before.redis_cpu_s) / lasted_s);
    }

    /// The median of all samples.
    pub(super) fn growth_mib(&self) -> f64 {
        median(&self.growth_mib)
    }

    /// Its row of the report.
    pub(super) fn row(&self, what: String) -> Row {
        let reference = Reference::Measured("before the attack", &self.before);
        let row = Row::new(what, "ms", &self.during, reference, Goal::RatioAtMost(RATIO_MAX));
        let (redis_mib, redis_cores) = (median(&self.redis_growth_mib), median(&self.redis_cores));
        let row = row.with("per_s", PER_S).with("growth_mib", self.growth_mib());
        row.with("redis_growth_mib", redis_mib).with("redis_cores", redis_cores)
    }
}
