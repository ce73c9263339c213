//! What was read of several partitions: events, watermarks, and what is neither.

use super::IndexerOptions;
use crate::clock::now_ms;
use crate::kafka::{EVENT, TYPE, WATERMARK};
use crate::wire::{Undecodable, decode, decode_watermark};
use rdkafka::Message;
use rdkafka::message::Headers;
use std::collections::BTreeMap;
use tallystone_model::Recorded;

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
}

/// A record that can never be indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadLetter {
    pub(super) original: Original,
    /// Why, in one word.
    pub(super) kind: &'static str,
    /// Why.
    pub(super) why: String,
}

/// Records of all partitions, in the order of each.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Recorded>,
    /// Of each event, the record.
    pub(super) originals: Vec<Original>,
    pub(super) dead: Vec<DeadLetter>,
    /// The newest of each partition.
    pub(super) watermarks: BTreeMap<u32, u64>,
    /// Of each partition, the offset after the last record.
    pub(super) next_offsets: BTreeMap<i32, i64>,
    bytes: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.next_offsets.is_empty()
    }

    pub(super) fn is_full(&self, options: &IndexerOptions) -> bool {
        self.events.len() + self.dead.len() >= options.batch_events_max || self.bytes >= options.batch_bytes_max
    }

    pub(super) fn take(&mut self, record: &impl Message) {
        let (partition, offset) = (record.partition(), record.offset());
        self.next_offsets.insert(partition, offset + 1);
        let read = match type_of(record).as_slice() {
            // Our clock only tells what cannot be a time at all.
            EVENT => decode(record.payload().unwrap_or_default(), now_ms()).map(Some),
            WATERMARK => decode_watermark(record.payload().unwrap_or_default(), now_ms()).map(|up_to_ms| {
                // A partition's number is not below zero.
                let newest = self.watermarks.entry(partition.unsigned_abs()).or_default();
                *newest = up_to_ms.max(*newest);
                None
            }),
            other => Err(Undecodable::UnknownType(String::from_utf8_lossy(other).into_owned())),
        };
        let original = || Original {
            partition,
            offset,
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
        };
        match read {
            Ok(Some(recorded)) => {
                self.bytes += size(record);
                self.events.push(recorded);
                self.originals.push(original());
            }
            Ok(None) => {}
            Err(undecodable) => {
                self.bytes += size(record);
                let (kind, why) = (undecodable.kind(), undecodable.to_string());
                self.dead.push(DeadLetter { original: original(), kind, why });
            }
        }
    }
}

fn size(record: &impl Message) -> usize {
    record.key().map_or(0, <[u8]>::len) + record.payload().map_or(0, <[u8]>::len)
}

/// The header that says what it is; empty without.
fn type_of(record: &impl Message) -> Vec<u8> {
    let headers = record.headers();
    let header = headers.and_then(|headers| headers.iter().find(|header| header.key == TYPE));
    // Nobody needs more of a wrong one to know that it is wrong.
    header.and_then(|header| header.value).map_or_else(Vec::new, |value| value.iter().take(64).copied().collect())
}
