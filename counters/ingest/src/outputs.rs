//! What is written to Kafka for a record that has not counted: the record again, or a dead letter.

use crate::add::VALUE_BYTES_MAX;
use crate::batch::{Decided, Written};
use crate::metrics;
use crate::record::HEADERS_BYTES_MAX;
use crate::route::again_ahead_ms;
use tallystone_kafka::Output;

/// Longer reasons are cut.
const REASON_CHARS_MAX: usize = 1_000;
/// A dead letter has its key and value if they are not longer together; else its headers name the source record.
const DEAD_BYTES_MAX: usize = 512 * 1024;
/// A record that is written again has its key if that is not longer. Its partition does not depend on it.
const AGAIN_KEY_BYTES_MAX: usize = 512 * 1024;
/// What every topic takes, unless it is configured to take less. A record that no topic takes would stop its partition.
const RECORD_BYTES_MAX: usize = 1_000_000;
// Only an add is written again, and its value is bounded.
const _: () = assert!(AGAIN_KEY_BYTES_MAX + VALUE_BYTES_MAX + HEADERS_BYTES_MAX <= RECORD_BYTES_MAX);
const _: () = assert!(DEAD_BYTES_MAX + HEADERS_BYTES_MAX <= RECORD_BYTES_MAX);

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
                key: key.filter(|key| key.len() <= AGAIN_KEY_BYTES_MAX),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::route::{Dead, Late};
    use rdkafka::Timestamp;
    use rdkafka::message::{Headers, OwnedMessage};
    use tallystone_kafka::TopicPartition;

    const KEY_BYTES: usize = 3 * 1024 * 1024;

    /// What is written for a record with a key and a value of these sizes.
    fn output(key_bytes: usize, value_bytes: usize, what: Written) -> Output {
        let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
        let time = Timestamp::CreateTime(5);
        let message = OwnedMessage::new(Some(value), Some(key), "t".repeat(249), time, 7, i64::MAX - 1, None);
        let record = Record::of(&message, TopicPartition { topic: 0, partition: 7 }, false);
        let targets = Targets { late: "late".to_owned(), late_partitions: 4, dead: "dead".to_owned() };
        targets.output(&Decided { record, what }, 1_000)
    }

    fn bytes(output: &Output) -> [usize; 3] {
        let bytes = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        let headers = output.headers.iter().map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
        [bytes(&output.key), bytes(&output.value), headers.sum()]
    }

    #[test]
    fn n17_what_is_written_for_a_record_fits_whatever_its_key_is() {
        let again = |key_bytes| output(key_bytes, VALUE_BYTES_MAX, Written::Again(Late::TooOld));
        for (key_bytes, kept) in [(0, 0), (AGAIN_KEY_BYTES_MAX, AGAIN_KEY_BYTES_MAX), (KEY_BYTES, 0)] {
            let output = again(key_bytes);
            assert_eq!((output.partition, bytes(&output)[..2].to_vec()), (Some(3), vec![kept, VALUE_BYTES_MAX]));
            assert!(bytes(&output).iter().sum::<usize>() <= RECORD_BYTES_MAX, "{:?}", bytes(&output));
        }
        assert!(again(AGAIN_KEY_BYTES_MAX + 1).key.is_none());
        // The longest characters.
        let dead = |key_bytes| output(key_bytes, 5, Written::DeadLetter(Dead::Malformed, "\u{10348}".repeat(2_000)));
        for (key_bytes, kept) in [(DEAD_BYTES_MAX - 5, [DEAD_BYTES_MAX - 5, 5]), (KEY_BYTES, [0, 0])] {
            let [key, value, headers] = bytes(&dead(key_bytes));
            assert!([key, value] == kept && headers <= HEADERS_BYTES_MAX, "{key} {value} {headers}");
        }
    }
}
