//! How every bench verb runs: the arguments that all verbs share, the loop over the figures, and the result.

use crate::against::{self, Comparison};
use crate::machine::Machine;
use crate::outcome::BenchOutcome;
use crate::report::{self, Row, Settings};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The arguments that every bench verb takes.
#[derive(Clone, Debug, Args)]
pub struct RunArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Run every figure once with tiny sizes, to check that the bench works; the numbers mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Measure only this figure; repeat for several figures
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub only: Vec<F>,
    /// Number of samples of Tallystone and of each reference, of which the median counts [default: 3; 1 with --quick or
    /// --against]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: Option<u32>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Compare with another build: run both programs alternately and print the ratio of each figure
    #[arg(long, value_name = "PROGRAM")]
    pub against: Option<PathBuf>,
    /// With --against: number of pairs of runs for each figure; fewer than 15 decide nothing
    #[arg(long, value_name = "N", default_value_t = 15, requires = "against",
        value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub pairs: u32,
}

impl<F: ValueEnum + Send + Sync + 'static> RunArgs<F> {
    /// Samples per side.
    pub(crate) fn samples(&self) -> u32 {
        self.runs.unwrap_or(if self.quick || self.against.is_some() { 1 } else { 3 })
    }

    /// One of three sizes: at full length, for one sample of a comparison, or tiny.
    pub(crate) fn size(&self, full: u64, compared: u64, quick: u64) -> u64 {
        match (self.quick, &self.against) {
            (true, _) => quick,
            (false, Some(_)) => compared,
            (false, None) => full,
        }
    }

    /// The arguments that the programs of a comparison get.
    fn child_arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--runs".to_owned(), self.samples().to_string()];
        arguments.extend(self.quick.then(|| "--quick".to_owned()));
        arguments
    }

    /// The figures to measure with their names, all unless some are named.
    fn figures(&self) -> Vec<(F, String)> {
        let named = |figure: &F| Some((figure.clone(), figure.to_possible_value()?));
        let wanted = |name: &str| self.only.iter().filter_map(named).any(|(_, value)| value.get_name() == name);
        let all =
            F::value_variants().iter().filter_map(named).map(|(figure, value)| (figure, value.get_name().to_owned()));
        all.filter(|(_, name)| self.only.is_empty() || wanted(name)).collect()
    }
}

/// The figures of one bench verb, and what they run on.
pub(crate) trait Suite: Sized {
    /// The figures, named as on the command line.
    type Figure: ValueEnum + Send + Sync + 'static;
    /// The verb: `queue` of `tallystone bench queue`.
    const VERB: &'static str;

    fn args(&self) -> &RunArgs<Self::Figure>;

    /// The arguments with which another process measures the same sizes.
    fn size_arguments(&self) -> Vec<String>;

    /// Measures one figure.
    async fn measure(&mut self, figure: Self::Figure) -> Result<Vec<Row>>;

    /// Stops what the figures shared, and describes the conditions of the measurement.
    async fn finish(self) -> Settings;
}

/// Measures the figures and prints their rows. After a failure it prints the rows of the figures before it.
pub(crate) async fn run<S: Suite>(mut suite: S) -> Result<BenchOutcome> {
    let machine = Machine::read(&std::env::temp_dir())?;
    let figures = suite.args().figures();
    let json = suite.args().json;
    if let Some(other) = suite.args().against.clone() {
        let comparison = Comparison {
            verb: S::VERB,
            figures: figures.into_iter().map(|(_, name)| name).collect(),
            arguments: suite.args().child_arguments().into_iter().chain(suite.size_arguments()).collect(),
            other,
            pairs: suite.args().pairs,
        };
        return against::run(comparison, &machine, json).await;
    }
    let (mut rows, mut failed) = (Vec::new(), None);
    for (figure, name) in figures {
        eprintln!("bench: {name} …");
        match suite.measure(figure).await.with_context(|| format!("figure {name}")) {
            Ok(measured) => rows.extend(measured.into_iter().map(|row| row.of(&name))),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    report::print(&rows, &machine, &suite.finish().await, json)?;
    failed.map_or(Ok(BenchOutcome::Measured), Err)
}
