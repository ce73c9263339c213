//! The rollups that workers have recorded, and whether two of one counter ran at the same time (N8).

use crate::records::{Record, RollupStage};
use std::collections::BTreeMap;

/// One recorded rollup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// Namespace and counter.
    pub of: (String, String),
    /// The worker's name.
    pub worker: String,
    /// The fencing token of its lease.
    pub fencing_token: u64,
    /// When that lease began, by the queue's clock, in Unix ms.
    pub leased_at_ms: u64,
    /// When it began, by the worker's clock, in Unix µs.
    pub begin_us: u64,
    /// When it ended or its worker was killed, in Unix µs; `u64::MAX`: neither.
    pub end_us: u64,
    /// The stage at which it ended; [`RollupStage::Begin`]: it did not end.
    pub stage: RollupStage,
}

/// The rollups in these records, given in the order in which each worker wrote them; workers have different names.
/// `killed_us`: when a worker that was killed was certainly gone (Unix µs); its open rollups end then.
///
/// # Errors
/// A text that names an impossible record: a rollup begins twice, or ends without a start.
pub fn rollups(
    records: impl IntoIterator<Item = Record>,
    killed_us: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<Rollup>, String> {
    let (mut begun, mut all) = (BTreeMap::new(), Vec::new());
    for record in records {
        let Record { at_us, worker, namespace, counter, fencing_token, leased_at_ms, stage } = record;
        let key = (worker.clone(), namespace.clone(), counter.clone(), fencing_token);
        if stage == RollupStage::Begin {
            let of = (namespace, counter);
            let rollup = Rollup { of, worker, fencing_token, leased_at_ms, begin_us: at_us, end_us: u64::MAX, stage };
            if let Some(before) = begun.insert(key, rollup) {
                return Err(format!("{before:?} begins twice"));
            }
        } else {
            let rollup: Rollup = begun.remove(&key).ok_or_else(|| format!("{key:?} ends and was not begun"))?;
            all.push(Rollup { end_us: at_us, stage, ..rollup });
        }
    }
    all.extend(
        begun.into_values().map(|rollup| Rollup { end_us: killed_us(&rollup.worker).unwrap_or(u64::MAX), ..rollup }),
    );
    Ok(all)
}

/// Pairs of rollups of one counter where the second began before the first had ended; one pair for each such second.
pub fn overlapping(rollups: &[Rollup]) -> Vec<(&Rollup, &Rollup)> {
    let mut by_counter: BTreeMap<&(String, String), Vec<&Rollup>> = BTreeMap::new();
    for rollup in rollups {
        by_counter.entry(&rollup.of).or_default().push(rollup);
    }
    let mut found = Vec::new();
    for rollups in by_counter.values_mut() {
        rollups.sort_by_key(|rollup| (rollup.begin_us, rollup.end_us));
        let mut longest: Option<&Rollup> = None;
        for rollup in rollups {
            if let Some(before) = longest.filter(|before| rollup.begin_us < before.end_us) {
                found.push((before, *rollup));
            }
            if longest.is_none_or(|before| before.end_us < rollup.end_us) {
                longest = Some(rollup);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(worker: &str, at_us: u64, counter: &str, fencing_token: u64, stage: RollupStage) -> Record {
        let (worker, namespace) = (worker.to_owned(), "n".to_owned());
        Record { at_us, worker, namespace, counter: counter.to_owned(), fencing_token, leased_at_ms: 1, stage }
    }

    fn overlaps(records: &[&[Record]], killed_us: Option<u64>) -> usize {
        overlapping(&rollups(records.concat(), |worker| killed_us.filter(|_| worker == "killed")).unwrap()).len()
    }

    #[test]
    fn n8_overlaps_are_caught_and_what_follows_is_none() {
        let one = [record("w", 10, "a", 1, RollupStage::Begin), record("w", 20, "a", 1, RollupStage::Committed)];
        let after = [record("v", 20, "a", 2, RollupStage::Begin), record("v", 30, "a", 2, RollupStage::Nothing)];
        let other = [record("v", 15, "b", 2, RollupStage::Begin), record("v", 18, "b", 2, RollupStage::Lost)];
        let within = [record("w", 12, "a", 3, RollupStage::Begin), record("w", 13, "a", 3, RollupStage::Committed)];
        let late = [record("v", 19, "a", 4, RollupStage::Begin), record("v", 25, "a", 4, RollupStage::Lost)];
        assert_eq!(overlaps(&[&one, &after, &other], None), 0);
        assert_eq!(overlaps(&[&one, &within], None), 1);
        assert_eq!(overlaps(&[&within, &late, &one], None), 2);
    }

    #[test]
    fn n8_a_rollup_of_a_killed_worker_ends_with_it() {
        let begun = [record("killed", 10, "a", 1, RollupStage::Begin)];
        let next = [record("w", 50, "a", 2, RollupStage::Begin), record("w", 60, "a", 2, RollupStage::Committed)];
        let found = [Some(40), Some(55), None].map(|killed_us| overlaps(&[&begun, &next], killed_us));
        assert_eq!(found, [0, 1, 1]);
    }

    #[test]
    fn records_that_cannot_be_are_refused() {
        let begin = record("w", 10, "a", 1, RollupStage::Begin);
        assert!(rollups([begin.clone(), begin], |_| None).unwrap_err().ends_with("begins twice"));
        assert!(rollups([record("w", 9, "a", 1, RollupStage::Lost)], |_| None).unwrap_err().ends_with("was not begun"));
    }
}
