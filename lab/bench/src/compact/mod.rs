//! `tallystone bench compact`: the compact counter store, in one engine with that engine's own types.
//!
//! What lives here: one file for each kind of figure, the objects that are counted (`objects`), their requests (`requests`), the load
//! generator (`generator`, `replies`), and the engine with the module (`engine`, `rehash`). What may not live here: another way to sample,
//! judge or print.

mod alternate;
mod cold;
mod disk;
mod engine;
mod generator;
mod memory;
mod objects;
mod plan;
mod random;
mod rehash;
mod replies;
mod requests;
mod restart;
mod snapshot;
mod speed;

pub use plan::{CompactArgs, CompactFigure};

use crate::report::{Row, Settings, grouped};
use crate::run::{RunArgs, Suite};
use anyhow::Result;
use engine::{Engine, Log};
use plan::{COMMANDS, CONNECTIONS, CompactPlan};
use serde_json::json;

/// The figures of the compact counter store.
pub(crate) struct CompactSuite {
    plan: CompactPlan,
    version: String,
}

impl CompactSuite {
    pub(crate) fn new(args: CompactArgs) -> Result<CompactSuite> {
        Ok(CompactSuite { plan: CompactPlan::new(args)?, version: String::new() })
    }
}

impl Suite for CompactSuite {
    type Figure = CompactFigure;
    const VERB: &'static str = "compact";

    fn args(&self) -> &RunArgs<CompactFigure> {
        &self.plan.args.run
    }

    fn size_arguments(&self) -> Vec<String> {
        let (ids, seconds) = (self.plan.ids.to_string(), self.plan.time.as_secs_f64().to_string());
        vec!["--ids".to_owned(), ids, "--seconds".to_owned(), seconds]
    }

    async fn measure(&mut self, figure: CompactFigure) -> Result<Vec<Row>> {
        if self.version.is_empty() {
            let engine = Engine::start(&self.plan, Log::None).await?;
            self.version = engine.version().await?;
            engine.stop().await;
        }
        let plan = &self.plan;
        match figure {
            CompactFigure::Memory => memory::measure(plan).await,
            CompactFigure::Increment => speed::increment(plan).await,
            CompactFigure::Packed => speed::packed(plan).await,
            CompactFigure::Decimal => speed::decimal(plan).await,
            CompactFigure::Object => speed::object(plan).await,
            CompactFigure::Objects => speed::objects(plan).await,
            CompactFigure::Random => random::measure(plan).await,
            CompactFigure::HotReads => cold::hot_reads(plan).await,
            CompactFigure::Cold => cold::measure(plan).await,
            CompactFigure::Restart => restart::measure(plan).await,
            CompactFigure::Snapshot => snapshot::measure(plan).await,
        }
    }

    async fn finish(self) -> Settings {
        let (version, runs, ids) = (self.version, self.plan.runs, self.plan.ids);
        Settings {
            fields: json!({
                "engine": version,
                "ids": ids,
                "cold_ids": self.plan.cold,
                "connections": CONNECTIONS,
                "commands_under_way": COMMANDS,
                "runs": runs,
            }),
            line: format!(
                "{version} on both sides; {} objects unless a row says otherwise, {CONNECTIONS} connections x {COMMANDS} commands under \
                 way; median of {runs}",
                grouped(ids)
            ),
        }
    }
}
