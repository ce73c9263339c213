//! What the records of all lives of the workers say (N8).

use std::path::PathBuf;
use tallystone_workers::{Records, Rollup, rollups};

/// One life of a worker process: what it wrote, and when it was killed.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) records: PathBuf,
    /// Unix µs at which it was certainly gone; `None`: it was not killed.
    pub(super) killed_us: Option<u64>,
}

/// All rollups of these lives.
pub(super) fn all_rollups(lives: &[Life]) -> Vec<Rollup> {
    let of_life = |life: &Life| {
        let records = Records::read(&life.records).expect("records that can be read");
        rollups(records, |_| life.killed_us).unwrap_or_else(|error| panic!("{error}"))
    };
    lives.iter().flat_map(of_life).collect()
}
