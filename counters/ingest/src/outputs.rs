//! What is written to Kafka for a record that has not counted: the record again, or a dead letter.

use crate::batch::{Decided, Written};
use crate::metrics;
use crate::route::again_ahead_ms;
use tallystone_kafka::Output;

/// Longer reasons are cut.
const REASON_CHARS_MAX: usize = 1_000;
/// A dead letter has its key and value if they are not longer together; else its headers name the source record.
const DEAD_BYTES_MAX: usize = 512 * 1024;

/// Where records are written.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    pub(crate) late: String,
    /// The number of partitions of the topic of late records.
    pub(crate) late_partitions: i32,
    pub(crate) dead: String,
}

impl Targets {
    /// The record to write. A late record stays in the partition of the same number: its member has that one, too, and so
    /// reads it before it continues. `now_ms`: this machine's clock, Unix ms.
    pub(crate) fn output(&self, decided: &Decided, now_ms: i64) -> Output {
        let Decided { record, what } = decided;
        let (key, value) = (record.key.clone(), record.value.clone());
        match what {
            Written::Again(late) => Output {
                topic: self.late.clone(),
                partition: Some(record.place.partition % self.late_partitions.max(1)),
                key,
                value,
                at_ms: Some(now_ms + again_ahead_ms(record.origin.rewrites)),
                headers: record.origin.headers(late.name(), record.origin.rewrites + 1),
            },
            Written::DeadLetter(dead, why) => {
                let reason = format!("{}: {why:.*}", dead.name(), REASON_CHARS_MAX);
                let bytes = key.as_ref().map_or(0, Vec::len) + value.as_ref().map_or(0, Vec::len);
                let is_whole = bytes <= DEAD_BYTES_MAX;
                Output {
                    topic: self.dead.clone(),
                    partition: None,
                    key: key.filter(|_| is_whole),
                    value: value.filter(|_| is_whole),
                    at_ms: None,
                    headers: record.origin.headers(&reason, record.origin.rewrites),
                }
            }
        }
    }
}

/// Notes in log and metrics what was written.
pub(crate) fn written(decided: &[Decided]) {
    for Decided { record, what } in decided {
        let (topic, partition, offset) = (&record.topic, record.place.partition, record.offset);
        match what {
            Written::Again(late) => {
                metrics::written_again(*late);
                tracing::debug!(topic, partition, offset, why = late.name(), "a record is written again");
            }
            Written::DeadLetter(dead, why) => {
                metrics::dead_letter(*dead);
                tracing::warn!(
                    topic,
                    partition,
                    offset,
                    why,
                    "a record cannot be counted; it is in the dead-letter topic"
                );
            }
        }
    }
}
