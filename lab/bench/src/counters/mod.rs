//! `tallystone bench counters`: the figures of the counters, on the whole service with its queue and its worker.
//!
//! What lives here: one file per figure, the adds that they send (`adds`), closed loops (`load`), the services under test in
//! this process (`service`), values over time (`series`), and raw Redis as reference (`raw`). What may not live here: another way to sample, judge or print.

mod add_rate;
mod adds;
mod aof_per_add;
mod archive_memory;
mod archive_speed;
mod audits;
mod hedged;
mod idle;
mod jobs;
mod lag;
mod latency;
mod load;
mod memory;
mod mixed;
mod overload;
mod plan;
mod raw;
mod rollup;
mod series;
mod service;

pub use plan::{CounterFigure, CountersArgs};

use crate::report::{Row, Settings, grouped};
use crate::rig::Rig;
use crate::run::{RunArgs, Suite};
use anyhow::Result;
use plan::{BATCH, CALLERS, CONNECTIONS, CountersPlan};
use serde_json::json;

/// The figures of the counters.
pub(crate) struct CounterSuite {
    plan: CountersPlan,
    redis_version: String,
}

impl CounterSuite {
    pub(crate) fn new(args: CountersArgs) -> CounterSuite {
        CounterSuite { plan: CountersPlan::new(args), redis_version: String::new() }
    }
}

impl Suite for CounterSuite {
    type Figure = CounterFigure;
    const VERB: &'static str = "counters";

    fn args(&self) -> &RunArgs<CounterFigure> {
        &self.plan.args.run
    }

    fn size_arguments(&self) -> Vec<String> {
        let (adds, threads) = (self.plan.sizes.adds.to_string(), self.plan.args.server_threads.to_string());
        vec!["--adds".to_owned(), adds, "--server-threads".to_owned(), threads]
    }

    async fn measure(&mut self, figure: CounterFigure) -> Result<Vec<Row>> {
        let rig = Rig::start().await?;
        self.redis_version = rig.version().await?;
        let plan = &self.plan;
        let rows = match figure {
            CounterFigure::Adds => add_rate::zipf(plan, &rig).await,
            CounterFigure::AddsOne => add_rate::one(plan, &rig).await,
            CounterFigure::AddLatency => latency::add(plan, &rig).await,
            CounterFigure::GetLatency => latency::get(plan, &rig).await,
            CounterFigure::Lag => lag::measure(plan, &rig).await,
            CounterFigure::BestEffort => add_rate::best_effort(plan, &rig).await,
            CounterFigure::Jobs => jobs::measure(plan, &rig).await,
            CounterFigure::Memory => memory::measure(plan, &rig).await,
            CounterFigure::Overload => overload::measure(plan, &rig).await,
            CounterFigure::Hedged => hedged::measure(plan, &rig).await,
            CounterFigure::Rollup => rollup::measure(plan, &rig).await,
            CounterFigure::Mixed => mixed::measure(plan, &rig).await,
            CounterFigure::Idle => idle::measure(plan, &rig).await,
            CounterFigure::AofPerAdd => aof_per_add::measure(plan, &rig).await,
            CounterFigure::ArchiveMemory => archive_memory::measure(plan, &rig).await,
            CounterFigure::ArchiveSpeed => archive_speed::measure(plan, &rig).await,
            CounterFigure::Audits => audits::measure(plan, &rig).await,
        };
        rig.stop().await;
        rows
    }

    async fn finish(self) -> Settings {
        let (redis_version, runs, counters) = (self.redis_version, self.plan.runs, self.plan.sizes.counters);
        Settings {
            fields: json!({
                "redis_version": redis_version,
                "appendfsync": "always",
                "adds": self.plan.sizes.adds,
                "counters": counters,
                "batch": BATCH,
                "callers": CALLERS,
                "connections": CONNECTIONS,
                "runs": runs,
            }),
            line: format!(
                "Redis {redis_version}, appendfsync always on both sides; {} counters, batches of {BATCH} by {CALLERS} \
                 callers; queue, counters and one worker share the Redis; median of {runs}",
                grouped(counters as u64)
            ),
        }
    }
}
