//! The metrics of an ingest process.

use crate::route::{Dead, Fate, Late};
use crate::steps::Steps;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tallystone_kafka::{ExactObserver, TopicPartition};

const RECORDS: &str = "tallystone_ingest_records_total";
const COUNTED: &str = "tallystone_ingest_counted_total";
const DUPLICATES: &str = "tallystone_ingest_duplicates_total";
const WRITTEN_AGAIN: &str = "tallystone_ingest_written_again_total";
const DEAD_LETTERS: &str = "tallystone_ingest_dead_letters_total";
const SENT_AGAIN: &str = "tallystone_ingest_sent_again_total";
const REJOINS: &str = "tallystone_ingest_rejoins_total";
const PARTITIONS: &str = "tallystone_ingest_partitions";
const LAG: &str = "tallystone_ingest_lag_records";

/// Describes the metrics, and begins them at 0, so that the first event is a rise.
pub(crate) fn describe() {
    describe_counter!(RECORDS, "records that were read");
    describe_counter!(COUNTED, "adds that have counted");
    describe_counter!(
        DUPLICATES,
        "adds that had counted before, by a call whose answer was lost or by an earlier process"
    );
    describe_counter!(WRITTEN_AGAIN, "records that were written to the topic of late records, by reason");
    describe_counter!(DEAD_LETTERS, "records that cannot be counted, by reason");
    describe_counter!(SENT_AGAIN, "adds without a definite answer, which are sent again");
    describe_counter!(REJOINS, "how often the process has joined its group again after a failure");
    describe_gauge!(PARTITIONS, "partitions that the consumer group has given to this process");
    describe_gauge!(LAG, "records of an assigned partition that are not decided yet, by topic and partition");
    for total in [RECORDS, COUNTED, DUPLICATES, SENT_AGAIN, REJOINS] {
        counter!(total).absolute(0);
    }
    for late in Late::ALL {
        counter!(WRITTEN_AGAIN, "reason" => late.name()).absolute(0);
    }
    for dead in Dead::ALL {
        counter!(DEAD_LETTERS, "reason" => dead.name()).absolute(0);
    }
}

pub(crate) fn read(records: usize) {
    counter!(RECORDS).increment(records as u64);
}

pub(crate) fn decided(fates: &[Fate]) {
    let duplicates = fates.iter().filter(|fate| **fate == Fate::Counted { duplicate: true }).count();
    let counted = fates.iter().filter(|fate| **fate == Fate::Counted { duplicate: false }).count();
    counter!(DUPLICATES).increment(duplicates as u64);
    counter!(COUNTED).increment(counted as u64);
}

pub(crate) fn written_again(late: Late) {
    counter!(WRITTEN_AGAIN, "reason" => late.name()).increment(1);
}

pub(crate) fn dead_letter(dead: Dead) {
    counter!(DEAD_LETTERS, "reason" => dead.name()).increment(1);
}

pub(crate) fn sent_again(adds: usize) {
    counter!(SENT_AGAIN).increment(adds as u64);
}

pub(crate) fn joined_again() {
    counter!(REJOINS).increment(1);
}

/// Receives what the reader reports.
#[derive(Clone)]
pub(crate) struct Observer {
    topics: Vec<String>,
    /// Records that are not decided yet, by topic and partition, and their sum.
    lags: Arc<Mutex<BTreeMap<(String, i32), u64>>>,
    undecided: Arc<AtomicU64>,
    steps: Steps,
}

impl Observer {
    /// An observer of these topics. It writes to `undecided` how many of their records are not decided yet.
    pub(crate) fn new(topics: &[String], undecided: Arc<AtomicU64>, steps: Steps) -> Observer {
        Observer { topics: topics.to_vec(), lags: Arc::default(), undecided, steps }
    }

    /// Changes what is known of the lags.
    fn note(&self, change: impl FnOnce(&mut BTreeMap<(String, i32), u64>)) {
        let mut lags = self.lags.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut lags);
        self.undecided.store(lags.values().sum(), Ordering::Relaxed);
    }
}

fn lag(topic: &str, partition: i32) -> metrics::Gauge {
    gauge!(LAG, "topic" => topic.to_owned(), "partition" => partition.to_string())
}

impl ExactObserver for Observer {
    fn lag(&self, topic: &str, records_by_partition: &BTreeMap<i32, i64>) {
        for (partition, records) in records_by_partition {
            lag(topic, *partition).set(*records as f64);
        }
        let records = |(partition, records): (&i32, &i64)| {
            ((topic.to_owned(), *partition), u64::try_from(*records).unwrap_or_default())
        };
        self.note(|lags| lags.extend(records_by_partition.iter().map(records)));
    }

    fn assigned(&self, partitions: &[TopicPartition]) {
        gauge!(PARTITIONS).set(partitions.len() as f64);
    }

    /// The next owner reports its lag.
    fn revoked(&self, partitions: &[TopicPartition]) {
        for place in partitions {
            lag(&self.topics[place.topic], place.partition).set(0.0);
        }
        self.note(|lags| {
            for place in partitions {
                lags.remove(&(self.topics[place.topic].clone(), place.partition));
            }
        });
    }

    fn reached(&self, step: &'static str) {
        self.steps.reach(step);
    }
}
