//! The arguments of `tallystone bench local`, and the sizes that follow from them.

use crate::run::RunArgs;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// A figure of local counters in docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum LocalFigure {
    /// Adds to one counter by its handle, with one thread and with two; references: one atomic integer, DashMap
    One,
    /// Adds to many counters in random order; reference: DashMap
    Many,
    /// What a steady rate of adds to many counters costs the service
    Pushes,
}

/// Arguments of `tallystone bench local`.
#[derive(Clone, Debug, Args)]
pub struct LocalArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub run: RunArgs<LocalFigure>,
    /// Adds of a thread in one sample [default: 100000000; 20000000 with --against, 200000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=10_000_000_000))]
    pub adds: Option<u64>,
    /// Number of counters in the figures many and pushes [default: 100000; 2000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    pub counters: Option<u64>,
}

/// The arguments with their defaults, and the sizes that follow.
pub(super) struct LocalPlan {
    pub(super) args: LocalArgs,
    pub(super) runs: u32,
    pub(super) adds: u64,
    pub(super) counters: usize,
    /// Rate of `pushes`, its push interval and how many of these it lasts.
    pub(super) per_s: u64,
    pub(super) push_interval: Duration,
    pub(super) pushes: u32,
}

impl LocalPlan {
    pub(super) fn new(args: LocalArgs) -> LocalPlan {
        let quick = args.run.quick;
        LocalPlan {
            runs: args.run.samples(),
            adds: args.adds.unwrap_or(args.run.size(100_000_000, 20_000_000, 200_000)),
            counters: args.counters.unwrap_or(args.run.size(100_000, 100_000, 2_000)) as usize,
            per_s: if quick { 100_000 } else { 1_000_000 },
            push_interval: Duration::from_millis(if quick { 100 } else { 1_000 }),
            pushes: if quick { 3 } else { 10 },
            args,
        }
    }
}
