//! Whether two rollups of one counter ever overlapped, from the records of the workers.

use super::rollup_workers::RollupWorkerKill;
use anyhow::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use tallystone_workers::{Record, RollupStage, overlapping, rollups};

/// What all workers did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Overlaps {
    /// Rollups begun.
    pub(in crate::flights) begun: u64,
    pub(in crate::flights) committed: u64,
    /// Rollups that lost against a faster one.
    pub(in crate::flights) lost: u64,
    /// Counters of which two rollups were running at the same time.
    pub(in crate::flights) overlapped: u64,
}

/// The rollup worker that was killed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KilledRollupWorker {
    pub(in crate::flights) name: String,
    /// Rollups that it began.
    pub(in crate::flights) begun: u64,
    /// Rollups that it began and never ended.
    pub(in crate::flights) unfinished: u64,
    /// Of the counters of unfinished rollups, those that another worker has rolled up since.
    pub(in crate::flights) taken_over: u64,
}

impl Overlaps {
    pub(super) fn of(namespace: &str, records: &[Record], killed: Option<&RollupWorkerKill>) -> Result<Overlaps> {
        let killed_us = |worker: &str| killed.filter(|killed| killed.name == worker).map(|killed| killed.at_us);
        let rollups = rollups(of_namespace(namespace, records).cloned(), killed_us).map_err(Error::msg)?;
        let ended = |stage| rollups.iter().filter(|rollup| rollup.stage == stage).count() as u64;
        let overlapped: BTreeSet<_> = overlapping(&rollups).into_iter().map(|(_, rollup)| &rollup.of).collect();
        Ok(Overlaps {
            begun: rollups.len() as u64,
            committed: ended(RollupStage::Committed),
            lost: ended(RollupStage::Lost),
            overlapped: overlapped.len() as u64,
        })
    }
}

fn of_namespace<'a>(namespace: &'a str, records: &'a [Record]) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| record.namespace == namespace)
}

/// What happened to the rollups that the killed worker had not finished.
pub(super) fn story(namespace: &str, records: &[Record], killed: &RollupWorkerKill) -> KilledRollupWorker {
    let own = || of_namespace(namespace, records).filter(|record| record.worker == killed.name);
    let mut unfinished: HashMap<&str, u64> = HashMap::new();
    for record in own() {
        match record.stage {
            RollupStage::Begin => drop(unfinished.insert(&record.counter, record.at_us)),
            _ => drop(unfinished.remove(record.counter.as_str())),
        }
    }
    let by_another = |counter: &str| {
        of_namespace(namespace, records).any(|record| {
            record.counter == counter
                && record.worker != killed.name
                && record.stage == RollupStage::Committed
                && record.at_us > killed.at_us
        })
    };
    KilledRollupWorker {
        name: killed.name.to_owned(),
        begun: own().filter(|record| record.stage == RollupStage::Begin).count() as u64,
        unfinished: unfinished.len() as u64,
        taken_over: unfinished.keys().filter(|counter| by_another(counter)).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(worker: &str, counter: &str, at_us: u64, stage: RollupStage) -> Record {
        let (worker, counter) = (worker.to_owned(), counter.to_owned());
        Record { at_us, worker, namespace: "n".to_owned(), counter, fencing_token: 1, leased_at_ms: 1, stage }
    }

    #[test]
    fn n8_rollups_that_touch_do_not_overlap_and_a_killed_one_ends_with_its_worker() {
        let mut records = vec![
            record("a", "x", 1, RollupStage::Begin),
            record("a", "x", 5, RollupStage::Committed),
            record("b", "x", 5, RollupStage::Begin),
            record("b", "x", 9, RollupStage::Nothing),
            record("a", "y", 10, RollupStage::Begin),
            record("b", "y", 20, RollupStage::Begin),
            record("b", "y", 30, RollupStage::Committed),
        ];
        let killed = RollupWorkerKill { name: "a", at_us: 15 };
        let overlaps = Overlaps::of("n", &records, Some(&killed)).unwrap();
        assert_eq!((overlaps.begun, overlaps.committed, overlaps.overlapped), (4, 2, 0));
        let story = story("n", &records, &killed);
        assert_eq!((story.begun, story.unfinished, story.taken_over), (2, 1, 1));
        assert_eq!(
            Overlaps::of("n", &records, None).unwrap().overlapped,
            1,
            "one that never ended overlaps all after it"
        );
        records.push(record("b", "x", 4, RollupStage::Begin));
        records.push(record("b", "x", 6, RollupStage::Committed));
        assert_eq!(Overlaps::of("n", &records, Some(&killed)).unwrap().overlapped, 1);
    }
}
