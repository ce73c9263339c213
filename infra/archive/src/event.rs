//! What is archived, and what is requested.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of the hash of a counter's name.
pub const COUNTER_ID_BYTES: usize = 12;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedEvent {
    /// Its shard.
    pub shard: u16,
    /// The hash of its counter's name.
    pub counter_id: [u8; COUNTER_ID_BYTES],
    /// The name, if the archiver has found it.
    pub counter: Option<Arc<str>>,
    /// When it happened, in Unix ms.
    pub time_ms: u64,
    /// Its idempotency token.
    pub token: Box<str>,
    /// What it adds; `None`: it is a clear.
    pub delta: Option<i64>,
    /// Where an add came from; `None`: it did not say.
    pub source: Option<Box<str>>,
    /// What an add counted; `None`: it did not say.
    pub event_item_key: Option<Box<str>>,
}

impl ArchivedEvent {
    /// Whether it needs the columns that not every object has.
    pub(crate) fn has_labels(&self) -> bool {
        self.source.is_some() || self.event_item_key.is_some()
    }
}

/// All events of a shard in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardSpan {
    /// The shard.
    pub shard: u16,
    /// Where it begins, in Unix ms.
    pub from_ms: u64,
    /// Where it ends, in Unix ms; that time is not in it.
    pub to_ms: u64,
}

impl ShardSpan {
    pub(crate) fn has(&self, shard: u16, time_ms: u64) -> bool {
        self.shard == shard && (self.from_ms..self.to_ms).contains(&time_ms)
    }

    pub(crate) fn overlaps(&self, other: &ShardSpan) -> bool {
        self.shard == other.shard && self.from_ms < other.to_ms && other.from_ms < self.to_ms
    }
}

/// An object to write.
#[derive(Clone, Debug, Default)]
pub struct NewObject {
    /// When the slice begins in which all of it lies, in Unix ms.
    pub slice_ms: u64,
    /// The length of the namespace's slices; it never changes.
    pub slice_length_ms: u64,
    /// When the store said what is in it, in Unix ms: of two objects with the same span, the later one is right.
    pub written_ms: u64,
    /// What it has all events of.
    pub spans: Vec<ShardSpan>,
    /// The events, in any order.
    pub events: Vec<ArchivedEvent>,
}

/// An object that is durable, and was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of its events.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

/// How far a slice is written. Without objects, both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// When the last of its objects was written, in Unix ms.
    pub written_ms: u64,
    /// The latest end of a span, in Unix ms.
    pub to_ms: u64,
}

/// What identifies an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey {
    /// Its shard.
    pub shard: u16,
    /// The hash of its counter's name.
    pub counter_id: [u8; COUNTER_ID_BYTES],
    /// When it happened, in Unix ms.
    pub time_ms: u64,
    /// Its idempotency token.
    pub token: Box<str>,
}

/// An event that the archive has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it adds; `None`: it is a clear.
    pub delta: Option<i64>,
    /// Where an add came from; `None`: it did not say.
    pub source: Option<Box<str>>,
    /// What an add counted; `None`: it did not say.
    pub event_item_key: Option<Box<str>>,
}

/// What a lookup of an event in the archive has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventLookup {
    /// It has it.
    Has(Found),
    /// It has all events of its shard and time, and this is none of them.
    HasNot,
    /// Its time is before the first slice: retention has deleted it, or the archive began later.
    TooEarly,
}

/// The events of one counter in a span of time.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The length of the namespace's slices.
    pub slice_length_ms: u64,
    /// The hash of the counter's name.
    pub counter_id: [u8; COUNTER_ID_BYTES],
    /// The shards that can have its events, and up to when the archive must have those of each, in Unix ms.
    pub shards: Vec<(u16, u64)>,
    /// Unix ms.
    pub times_ms: Range<u64>,
    /// Retention may have deleted what is before this time, in Unix ms: nothing of it must be there.
    pub kept_from_ms: u64,
}

/// A part of a scope, from its beginning on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// In the order of time and token.
    pub events: Vec<ArchivedEvent>,
    /// The first time that was not read, in Unix ms.
    pub next_ms: u64,
}
