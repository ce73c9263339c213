//! One batch: records of several partitions, decoded into events, losses, watermarks and dead letters.

use super::options::IndexerOptions;
use crate::clock::now_ms;
use crate::wire::{EVENT, LOSS, TYPE_HEADER, Undecodable, WATERMARK, decode, decode_loss, decode_watermark};
use rdkafka::Message;
use rdkafka::message::Headers;
use std::collections::BTreeMap;
use std::ops::Range;
use tallystone_kafka::Position;
use tallystone_model::{Loss, Recorded};

/// How much of an unknown record type is quoted, in bytes.
const QUOTED_TYPE_BYTES_MAX: usize = 64;

/// A record as it was read from Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceRecord {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
}

impl SourceRecord {
    fn of(record: &impl Message) -> SourceRecord {
        SourceRecord {
            partition: record.partition(),
            offset: record.offset(),
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
        }
    }
}

/// The source records of events, in one buffer: a record is needed again only if the store rejects its event.
#[derive(Default)]
pub(super) struct SourceRecords {
    bytes: Vec<u8>,
    spans: Vec<RecordSpan>,
}

/// One record in the buffer.
struct RecordSpan {
    partition: i32,
    offset: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

impl SourceRecords {
    fn push(&mut self, record: &impl Message) {
        let mut keep = |bytes: Option<&[u8]>| {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(bytes?);
            Some(begin..self.bytes.len())
        };
        let (key, value) = (keep(record.key()), keep(record.payload()));
        self.spans.push(RecordSpan { partition: record.partition(), offset: record.offset(), key, value });
    }

    pub(super) fn get(&self, index: usize) -> Option<SourceRecord> {
        let span = self.spans.get(index)?;
        let bytes = |range: &Option<Range<usize>>| range.clone().map(|range| self.bytes[range].to_vec());
        let (key, value) = (bytes(&span.key), bytes(&span.value));
        Some(SourceRecord { partition: span.partition, offset: span.offset, key, value })
    }
}

/// A record that can never be indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadLetter {
    pub(super) source: SourceRecord,
    /// The reason in one word, for a metric.
    pub(super) kind: &'static str,
    /// The reason.
    pub(super) why: String,
}

/// Records of all partitions, in the order of each.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Recorded>,
    /// The source record of each event.
    pub(super) sources: SourceRecords,
    pub(super) losses: Vec<Loss>,
    pub(super) dead_letters: Vec<DeadLetter>,
    /// The newest watermark of each partition, Unix ms.
    pub(super) watermarks: BTreeMap<u32, u64>,
    /// Of each partition, the position after the last record.
    pub(super) positions: BTreeMap<i32, Position>,
    /// How often the reader has gone back to the beginning of the topic before this batch.
    pub(super) reading: u64,
    bytes: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn is_full(&self, options: &IndexerOptions) -> bool {
        let records = self.events.len() + self.losses.len() + self.dead_letters.len();
        records >= options.batch_events_max || self.bytes >= options.batch_bytes_max
    }

    /// Decodes one record into the batch.
    pub(super) fn push(&mut self, record: &impl Message) {
        let partition = record.partition();
        self.positions.insert(partition, Position::after(record));
        let headers = record.headers();
        let header = headers.as_ref().and_then(|headers| headers.iter().find(|header| header.key == TYPE_HEADER));
        let value = record.payload().unwrap_or_default();
        // Decoding uses this machine's clock only to refuse times that cannot be true.
        let decoded = match header.and_then(|header| header.value).unwrap_or_default() {
            EVENT => decode(value, now_ms()).map(Some),
            LOSS => decode_loss(value, now_ms()).map(|loss| {
                self.losses.push(loss);
                None
            }),
            WATERMARK => decode_watermark(value, now_ms()).map(|up_to_ms| {
                // Kafka numbers partitions from 0.
                let newest = self.watermarks.entry(partition.unsigned_abs()).or_default();
                *newest = up_to_ms.max(*newest);
                None
            }),
            other => {
                let quoted = other.get(..QUOTED_TYPE_BYTES_MAX).unwrap_or(other);
                Err(Undecodable::UnknownType(String::from_utf8_lossy(quoted).into_owned()))
            }
        };
        match decoded {
            Ok(Some(recorded)) => {
                self.bytes += size(record);
                self.events.push(recorded);
                self.sources.push(record);
            }
            Ok(None) => {}
            Err(undecodable) => {
                self.bytes += size(record);
                let (kind, why) = (undecodable.kind(), undecodable.to_string());
                self.dead_letters.push(DeadLetter { source: SourceRecord::of(record), kind, why });
            }
        }
    }
}

fn size(record: &impl Message) -> usize {
    record.key().map_or(0, <[u8]>::len) + record.payload().map_or(0, <[u8]>::len)
}
