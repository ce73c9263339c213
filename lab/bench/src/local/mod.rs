//! `tallystone bench local`: counters inside a process, next to an atomic integer and a concurrent map.
//!
//! What lives here: one file for each kind of figure. What may not live here: another way to sample, judge or print.

mod adds;
mod plan;
mod pushes;

pub use plan::{LocalArgs, LocalFigure};

use crate::report::{Row, Settings, grouped};
use crate::run::{RunArgs, Suite};
use anyhow::Result;
use plan::LocalPlan;
use serde_json::json;

/// The figures of local counters.
pub(crate) struct LocalSuite {
    plan: LocalPlan,
}

impl LocalSuite {
    pub(crate) fn new(args: LocalArgs) -> LocalSuite {
        LocalSuite { plan: LocalPlan::new(args) }
    }
}

impl Suite for LocalSuite {
    type Figure = LocalFigure;
    const VERB: &'static str = "local";

    fn args(&self) -> &RunArgs<LocalFigure> {
        &self.plan.args.run
    }

    fn size_arguments(&self) -> Vec<String> {
        let (adds, counters) = (self.plan.adds.to_string(), self.plan.counters.to_string());
        vec!["--adds".to_owned(), adds, "--counters".to_owned(), counters]
    }

    async fn measure(&mut self, figure: LocalFigure) -> Result<Vec<Row>> {
        match figure {
            LocalFigure::One => adds::one(&self.plan).await,
            LocalFigure::Many => adds::many(&self.plan).await,
            LocalFigure::Pushes => pushes::measure(&self.plan).await,
        }
    }

    async fn finish(self) -> Settings {
        let LocalPlan { adds, counters, runs, .. } = self.plan;
        Settings {
            fields: json!({ "adds": adds, "counters": counters, "runs": runs }),
            line: format!(
                "{} adds of 1 by each thread; many: {} counters; DashMap by 8-byte keys; median of {runs}",
                grouped(adds),
                grouped(counters as u64)
            ),
        }
    }
}
