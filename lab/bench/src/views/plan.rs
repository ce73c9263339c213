//! The arguments of `tallystone bench views`, and the sizes that follow from them.

use crate::run::RunArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Connections of the load generator, and of raw Redis.
pub(super) const CONNECTIONS: usize = 4;
/// Requests of one connection that are under way together: of single views, and of batches.
pub(super) const STREAMS: usize = 256;
pub(super) const BATCH_STREAMS: usize = 16;
/// Views of a batch.
pub(super) const BATCH: usize = 100;

/// A figure of views in docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ViewFigure {
    /// Views over HTTP/2, one in each request; reference: XADD of the same bytes in pipelines
    Posts,
    /// The same in batches of 100; reference: XADD of as many views in each entry
    Batches,
    /// Views of one video with the log in Kafka, in batches of 100, until the count has them; reference: a raw producer
    Kafka,
    /// Time from the 202 of a view until a read shows it, and the time of reads, under a steady load
    Lag,
    /// Memory of the view counter for each pair of a sliding window; reference: SET NX EX
    PairMemory,
}

/// Arguments of `tallystone bench views`.
#[derive(Clone, Debug, Args)]
pub struct ViewsArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub run: RunArgs<ViewFigure>,
    /// Videos of the load; the n-th gets a share of 1/n [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub videos: Option<u64>,
    /// Length of one sample of posts, batches and kafka, in seconds [default: 5; 3 with --against, 0.5 with --quick]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: Option<u64>,
    /// Pairs of the figure pair_memory [default: 4000000; 500000 with --against, 20000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=100_000_000))]
    pub kept_pairs: Option<u64>,
    /// The program that serves views, such as an older build [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    pub views_program: Option<PathBuf>,
}

/// The arguments with their defaults, and the sizes that follow.
pub(super) struct ViewsPlan {
    pub(super) args: ViewsArgs,
    pub(super) runs: u32,
    pub(super) videos: usize,
    /// Length of a sample of posts, and of the same load before it, which is not measured.
    pub(super) sample: Duration,
    pub(super) warm_up: Duration,
    pub(super) pairs: u64,
    /// Views and reads of `lag` in a second, and how long they continue before and while they are measured.
    pub(super) views_per_s: u64,
    pub(super) reads_per_s: u64,
    pub(super) lag_warm_up: Duration,
    pub(super) lag: Duration,
    /// The distance between two batches with a view whose lag is measured.
    pub(super) probe_every: u64,
}

impl ViewsPlan {
    pub(super) fn new(args: ViewsArgs) -> ViewsPlan {
        let run = &args.run;
        let ms = |full, compared, quick| Duration::from_millis(run.size(full, compared, quick));
        ViewsPlan {
            runs: run.samples(),
            videos: args.videos.unwrap_or(100) as usize,
            sample: args.seconds.map_or(ms(5_000, 3_000, 500), Duration::from_secs),
            warm_up: ms(1_000, 500, 100),
            pairs: args.kept_pairs.unwrap_or(run.size(4_000_000, 500_000, 20_000)),
            views_per_s: run.size(50_000, 50_000, 5_000),
            reads_per_s: run.size(1_000, 1_000, 200),
            lag_warm_up: ms(3_000, 2_000, 500),
            lag: ms(20_000, 5_000, 1_000),
            probe_every: run.size(20, 10, 2),
            args,
        }
    }
}
