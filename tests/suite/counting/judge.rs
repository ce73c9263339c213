//! What the workers' records say: which rollups there were, and whether two of one counter overlapped (N8).

use std::collections::BTreeMap;
use std::path::PathBuf;
use tallystone_workers::{Record, Records, Step};

/// One life of a worker process: what it wrote, and when it was killed.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) records: PathBuf,
    /// Unix µs at which it was certainly gone; `None`: it was not killed.
    pub(super) killed_us: Option<u64>,
}

/// What a worker did for one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rollup {
    /// Namespace and counter.
    pub(super) of: (String, String),
    pub(super) worker: String,
    pub(super) fencing_token: u64,
    pub(super) begin_us: u64,
    pub(super) end_us: u64,
    /// How it ended; `Begin`: it did not, its worker was killed.
    pub(super) step: Step,
}

/// All rollups of these lives. One that was begun ends, or ends with its worker.
pub(super) fn rollups(lives: &[Life]) -> Vec<Rollup> {
    let mut all = Vec::new();
    for life in lives {
        let records = Records::read(&life.records).expect("records that can be read");
        all.extend(of_life(records, life.killed_us));
    }
    all
}

fn of_life(records: Vec<Record>, killed_us: Option<u64>) -> Vec<Rollup> {
    let (mut begun, mut ended) = (BTreeMap::new(), Vec::new());
    for record in records {
        let Record { at_us, worker, namespace, counter, fencing_token, step } = record;
        let of = (namespace, counter);
        let key = (of.clone(), fencing_token);
        if step == Step::Begin {
            let rollup = Rollup { of, worker, fencing_token, begin_us: at_us, end_us: u64::MAX, step };
            assert_eq!(begun.insert(key.clone(), rollup), None, "{key:?} is begun twice");
        } else {
            let rollup: Rollup = begun.remove(&key).unwrap_or_else(|| panic!("{key:?} ends and was not begun"));
            ended.push(Rollup { end_us: at_us, step, ..rollup });
        }
    }
    ended.extend(begun.into_values().map(|rollup| Rollup { end_us: killed_us.unwrap_or(u64::MAX), ..rollup }));
    ended
}

/// Every pair of rollups of one counter that overlapped.
pub(super) fn overlapping(rollups: &[Rollup]) -> Vec<String> {
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
                found.push(format!("{rollup:?} began within {before:?}"));
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

    fn record(at_us: u64, counter: &str, fencing_token: u64, step: Step) -> Record {
        let (worker, namespace) = ("w".to_owned(), "n".to_owned());
        Record { at_us, worker, namespace, counter: counter.to_owned(), fencing_token, step }
    }

    #[test]
    fn overlaps_are_caught_and_what_follows_is_none() {
        let one = [record(10, "a", 1, Step::Begin), record(20, "a", 1, Step::Committed)];
        let after = [record(20, "a", 2, Step::Begin), record(30, "a", 2, Step::Nothing)];
        let other = [record(15, "b", 2, Step::Begin), record(18, "b", 2, Step::Lost)];
        let within = [record(12, "a", 3, Step::Begin), record(13, "a", 3, Step::Committed)];
        let late = [record(19, "a", 4, Step::Begin), record(25, "a", 4, Step::Lost)];
        let judge = |lives: &[&[Record]]| {
            let rollups: Vec<Rollup> = lives.iter().flat_map(|records| of_life(records.to_vec(), None)).collect();
            overlapping(&rollups).len()
        };
        assert_eq!(judge(&[&one, &after, &other]), 0);
        assert_eq!(judge(&[&one, &within]), 1);
        assert_eq!(judge(&[&within, &late, &one]), 2);
    }

    #[test]
    fn a_rollup_of_a_killed_worker_ends_with_it() {
        let begun = vec![record(10, "a", 1, Step::Begin)];
        let next = of_life(vec![record(50, "a", 2, Step::Begin), record(60, "a", 2, Step::Committed)], None);
        let overlaps = |killed_us| overlapping(&[of_life(begun.clone(), killed_us), next.clone()].concat()).len();
        assert_eq!((overlaps(Some(40)), overlaps(Some(55)), overlaps(None)), (0, 1, 1));
    }
}
