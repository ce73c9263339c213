//! What was read of several partitions: events, watermarks, and what is neither.

use super::IndexerOptions;
use crate::clock::now_ms;
use crate::kafka::{EVENT, TYPE, WATERMARK};
use crate::wire::{Undecodable, decode, decode_watermark};
use rdkafka::Message;
use rdkafka::message::Headers;
use std::collections::BTreeMap;
use std::ops::Range;
use tallystone_model::Recorded;

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
}

impl Original {
    fn of(record: &impl Message) -> Original {
        Original {
            partition: record.partition(),
            offset: record.offset(),
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
        }
    }
}

/// Records as they were read, their bytes one behind the other: hardly one of them is ever asked for again.
#[derive(Default)]
pub(super) struct Originals {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where one of them is.
struct Place {
    partition: i32,
    offset: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
}

impl Originals {
    fn push(&mut self, record: &impl Message) {
        let mut keep = |bytes: Option<&[u8]>| {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(bytes?);
            Some(begin..self.bytes.len())
        };
        let (key, value) = (keep(record.key()), keep(record.payload()));
        self.places.push(Place { partition: record.partition(), offset: record.offset(), key, value });
    }

    pub(super) fn get(&self, number: usize) -> Option<Original> {
        let place = self.places.get(number)?;
        let bytes = |range: &Option<Range<usize>>| range.clone().map(|range| self.bytes[range].to_vec());
        let (key, value) = (bytes(&place.key), bytes(&place.value));
        Some(Original { partition: place.partition, offset: place.offset, key, value })
    }
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
    pub(super) originals: Originals,
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
        let partition = record.partition();
        self.next_offsets.insert(partition, record.offset() + 1);
        let headers = record.headers();
        let header = headers.as_ref().and_then(|headers| headers.iter().find(|header| header.key == TYPE));
        let read = match header.and_then(|header| header.value).unwrap_or_default() {
            // Our clock only tells what cannot be a time at all.
            EVENT => decode(record.payload().unwrap_or_default(), now_ms()).map(Some),
            WATERMARK => decode_watermark(record.payload().unwrap_or_default(), now_ms()).map(|up_to_ms| {
                // A partition's number is not below zero.
                let newest = self.watermarks.entry(partition.unsigned_abs()).or_default();
                *newest = up_to_ms.max(*newest);
                None
            }),
            // Nobody needs more of a wrong one to know that it is wrong.
            other => {
                let shown = other.get(..64).unwrap_or(other);
                Err(Undecodable::UnknownType(String::from_utf8_lossy(shown).into_owned()))
            }
        };
        match read {
            Ok(Some(recorded)) => {
                self.bytes += size(record);
                self.events.push(recorded);
                self.originals.push(record);
            }
            Ok(None) => {}
            Err(undecodable) => {
                self.bytes += size(record);
                let (kind, why) = (undecodable.kind(), undecodable.to_string());
                self.dead.push(DeadLetter { original: Original::of(record), kind, why });
            }
        }
    }
}

fn size(record: &impl Message) -> usize {
    record.key().map_or(0, <[u8]>::len) + record.payload().map_or(0, <[u8]>::len)
}
