//! The arguments of `demo flights`.

use clap::Args;
use std::path::PathBuf;

/// Which flights to fly, and how.
#[derive(Args, Debug)]
pub struct FlightsArgs {
    /// The flights: a CSV file, which may be compressed with gzip [default: the 27,004 flights that left New York in
    /// January 2013]
    #[arg(long, value_name = "CSV[.gz]")]
    pub file: Option<PathBuf>,
    /// Number of workers; each flies up to four flights at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub workers: u32,
    /// Keep the demo's queue, to inspect it afterwards
    #[arg(long)]
    pub keep: bool,
    /// Print all results instead of one screen of them
    #[arg(long)]
    pub details: bool,
    /// Show no progress bars; --json implies it
    #[arg(long)]
    pub quiet: bool,
}
