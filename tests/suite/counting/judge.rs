//! What the records of all lives of the workers say (N8).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use tallystone_workers::{Records, Rollup, overlapping, rollups};

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
        let records = match Records::read(&life.records) {
            // The worker was only just started.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            records => records.expect("records that can be read"),
        };
        rollups(records, |_| life.killed_us).unwrap_or_else(|error| panic!("{error}"))
    };
    lives.iter().flat_map(of_life).collect()
}

/// Checks that no two rollups of a counter overlapped while their leases lasted, each at least for `lease`. If a machine has
/// no time for a worker, its lease ends before it continues; then others have the job, and the store refuses its commit (N8).
pub(super) fn check_none_overlap(rollups: &[Rollup], lease: Duration) {
    let lasting = while_leased(rollups, lease);
    let overlaps = overlapping(&lasting);
    assert!(overlaps.is_empty(), "{} overlaps: {overlaps:#?}", overlaps.len());
}

/// These rollups, those that outlived their lease only until the next lease of their counter.
fn while_leased(rollups: &[Rollup], lease: Duration) -> Vec<Rollup> {
    let mut by_counter: BTreeMap<_, Vec<Rollup>> = BTreeMap::new();
    for rollup in rollups {
        by_counter.entry(&rollup.of).or_default().push(rollup.clone());
    }
    for rollups in by_counter.values_mut() {
        rollups.sort_by_key(|rollup| rollup.fencing_token);
        for number in 1..rollups.len() {
            let next_ms = rollups[number].leased_at_ms;
            let rollup = &mut rollups[number - 1];
            if u128::from(next_ms) >= u128::from(rollup.leased_at_ms) + lease.as_millis() {
                rollup.end_us = rollup.end_us.min(next_ms * 1_000);
            }
        }
    }
    by_counter.into_values().flatten().filter(|rollup| rollup.begin_us < rollup.end_us).collect()
}

#[test]
fn n8_only_rollups_that_outlived_their_leases_may_overlap() {
    let rollup = |leased_at_ms, begin_us, end_us| Rollup {
        of: ("n".to_owned(), "c".to_owned()),
        worker: "w".to_owned(),
        fencing_token: leased_at_ms,
        leased_at_ms,
        begin_us,
        end_us,
        stage: tallystone_workers::RollupStage::Failed,
    };
    let overlaps = |next_ms: u64, begin_us| {
        let rollups = [rollup(1_000, begin_us, 9_000_000), rollup(next_ms, 2_500_000, 3_000_000)];
        overlapping(&while_leased(&rollups, Duration::from_secs(1))).len()
    };
    // Leased again too early; in time; and both began only when the first lease had ended.
    assert_eq!([overlaps(1_999, 1_100_000), overlaps(2_000, 1_100_000), overlaps(2_000, 2_600_000)], [1, 0, 0]);
}
