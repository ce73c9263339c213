//! Namespaces and their configuration (N1).

use crate::wire::{from_wire, wire_count, wire_ms};
use serde::Serialize;
use tallystone_proto::counter::v1 as wire;

/// What the counters of a namespace promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterType {
    /// Fast and cheap. Tokens are ignored, so a repeated call counts twice.
    BestEffort,
    /// Exact. A read lags behind by `accept_limit_ms`, `coalesce_ms` and about a second.
    Eventual,
    /// Exact. A read has every add that was acknowledged before it.
    Accurate,
}

/// Roughly how many counters a namespace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cardinality {
    /// Hundreds: every counter is rolled up continuously.
    Low,
    /// Thousands: as `Low`, until a counter has had no event for ten minutes; then as `High`.
    Medium,
    /// Many: a counter is rolled up only while it has new events.
    High,
}

/// The configuration of a namespace. A field that is `None` keeps its value; in a new namespace it takes the default. A
/// [`Namespace`] has every field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamespaceConfig {
    /// What its counters promise; default eventual. Eventual and accurate may be exchanged; best effort is fixed.
    pub counter_type: Option<CounterType>,
    /// Roughly how many counters there are; default high.
    pub cardinality: Option<Cardinality>,
    /// Best effort: how long a counter stays after its last add; 0, the default: for ever.
    pub ttl_ms: Option<u64>,
    /// All adds to one counter within this time share one rollup; default 10,000.
    pub coalesce_ms: Option<u64>,
    /// How many counters of one rollup queue a worker rolls up at once; default 32.
    pub rollup_batch_count: Option<u32>,
    /// How many rollup queues there are; default 8.
    pub num_queues: Option<u32>,
    /// How much may wait in one rollup queue; default 16 MiB.
    pub capacity_bytes: Option<u64>,
    /// Over how many shards the events of one counter are spread, 1 to 8; default 4. Fixed at creation.
    pub buckets_per_id: Option<u32>,
    /// How many seconds of events one bucket of the event log holds; default 600. Fixed at creation.
    pub seconds_per_bucket: Option<u32>,
    /// How many seconds of events are dropped at once, a multiple of `seconds_per_bucket`; default 86,400.
    pub seconds_per_slice: Option<u32>,
    /// How far behind the store's clock an event's time may be; default 5,000.
    pub accept_limit_ms: Option<u64>,
    /// How long a token is remembered; default 6 days. A later retry is refused (`TOKEN_EXPIRED`).
    pub close_after_ms: Option<u64>,
    /// How long events are kept once they are rolled up; default 7 days.
    pub delete_after_ms: Option<u64>,
    /// EVENTUAL: a counter without an event for this long is deleted; default 0: never.
    pub expire_after_ms: Option<u64>,
    /// Not best effort: the counter set to which rollups publish the counts; default none. Both texts empty: none from now on.
    /// A [`Namespace`] has `None` where they publish nothing.
    pub published_to: Option<PublishedTo>,
    /// Not best effort: events leave Redis for the archive once they are rolled up; default: where the server has an archive.
    /// Once true, it stays so.
    pub archived: Option<bool>,
    /// Not best effort: the counts whose passing [`crossings`](crate::CounterClient::crossings) reports, at most 32; default
    /// none. It replaces the whole list.
    pub thresholds: Option<Vec<Threshold>>,
    /// Not best effort: the regions over which the counters are spread, the server's among them, 2 to 16; default none. It
    /// replaces the whole list.
    pub regions: Option<Vec<String>>,
}

/// A count whose passing is reported (N16).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Threshold {
    /// Of the counters whose names begin with this; empty: of all.
    pub prefix: String,
    /// The count, from -2^62 to 2^62.
    pub count: i64,
}

/// A field of a counter set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PublishedTo {
    /// The key of the counter set.
    pub key: String,
    /// The field of the counts; the field `FIELD.exact_to` has the times to which they are exact.
    pub field: String,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// 1 to 64 bytes of `a-z A-Z 0-9 . _ -`.
    pub name: String,
    /// Its configuration, with every field.
    pub config: NamespaceConfig,
    /// Rises with every change.
    pub revision: u64,
    /// Distinguishes namespaces of the same name: one that is created after another was deleted has a higher one.
    pub incarnation: u64,
}

impl CounterType {
    /// `None`: a type that this client does not know.
    pub(super) fn from_wire(counter_type: wire::CounterType) -> Option<Self> {
        match counter_type {
            wire::CounterType::Unspecified => None,
            wire::CounterType::BestEffort => Some(CounterType::BestEffort),
            wire::CounterType::Eventual => Some(CounterType::Eventual),
            wire::CounterType::Accurate => Some(CounterType::Accurate),
        }
    }

    fn to_wire(self) -> wire::CounterType {
        match self {
            CounterType::BestEffort => wire::CounterType::BestEffort,
            CounterType::Eventual => wire::CounterType::Eventual,
            CounterType::Accurate => wire::CounterType::Accurate,
        }
    }
}

impl Cardinality {
    fn from_wire(cardinality: wire::Cardinality) -> Option<Self> {
        match cardinality {
            wire::Cardinality::Unspecified => None,
            wire::Cardinality::Low => Some(Cardinality::Low),
            wire::Cardinality::Medium => Some(Cardinality::Medium),
            wire::Cardinality::High => Some(Cardinality::High),
        }
    }

    fn to_wire(self) -> wire::Cardinality {
        match self {
            Cardinality::Low => wire::Cardinality::Low,
            Cardinality::Medium => wire::Cardinality::Medium,
            Cardinality::High => wire::Cardinality::High,
        }
    }
}

impl NamespaceConfig {
    pub(super) fn into_wire(self) -> wire::NamespaceConfig {
        wire::NamespaceConfig {
            counter_type: self.counter_type.map(|counter_type| counter_type.to_wire().into()),
            cardinality: self.cardinality.map(|cardinality| cardinality.to_wire().into()),
            ttl_ms: self.ttl_ms.map(wire_ms),
            coalesce_ms: self.coalesce_ms.map(wire_ms),
            rollup_batch_count: self.rollup_batch_count.map(wire_count),
            num_queues: self.num_queues.map(wire_count),
            capacity_bytes: self.capacity_bytes.map(wire_ms),
            buckets_per_id: self.buckets_per_id.map(wire_count),
            seconds_per_bucket: self.seconds_per_bucket.map(wire_count),
            seconds_per_slice: self.seconds_per_slice.map(wire_count),
            accept_limit_ms: self.accept_limit_ms.map(wire_ms),
            close_after_ms: self.close_after_ms.map(wire_ms),
            delete_after_ms: self.delete_after_ms.map(wire_ms),
            expire_after_ms: self.expire_after_ms.map(wire_ms),
            published_to: self.published_to.map(|PublishedTo { key, field }| wire::PublishedTo { key, field }),
            archived: self.archived,
            thresholds: self.thresholds.map(|thresholds| {
                let threshold = |Threshold { prefix, count }| wire::Threshold { prefix, count };
                wire::Thresholds { thresholds: thresholds.into_iter().map(threshold).collect() }
            }),
            regions: self.regions.map(|names| wire::Regions { names }),
        }
    }

    fn from_wire(config: &wire::NamespaceConfig) -> Self {
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        NamespaceConfig {
            counter_type: CounterType::from_wire(config.counter_type()),
            cardinality: Cardinality::from_wire(config.cardinality()),
            ttl_ms: config.ttl_ms.map(from_wire),
            coalesce_ms: config.coalesce_ms.map(from_wire),
            rollup_batch_count: config.rollup_batch_count.map(count),
            num_queues: config.num_queues.map(count),
            capacity_bytes: config.capacity_bytes.map(from_wire),
            buckets_per_id: config.buckets_per_id.map(count),
            seconds_per_bucket: config.seconds_per_bucket.map(count),
            seconds_per_slice: config.seconds_per_slice.map(count),
            accept_limit_ms: config.accept_limit_ms.map(from_wire),
            close_after_ms: config.close_after_ms.map(from_wire),
            delete_after_ms: config.delete_after_ms.map(from_wire),
            expire_after_ms: config.expire_after_ms.map(from_wire),
            published_to: config
                .published_to
                .clone()
                .map(|wire::PublishedTo { key, field }| PublishedTo { key, field }),
            archived: config.archived,
            thresholds: config.thresholds.clone().map(|wire::Thresholds { thresholds }| {
                let threshold = |wire::Threshold { prefix, count }| Threshold { prefix, count };
                thresholds.into_iter().map(threshold).collect()
            }),
            regions: config.regions.clone().map(|wire::Regions { names }| names),
        }
    }
}

impl Namespace {
    pub(super) fn from_wire(namespace: Option<wire::Namespace>) -> Self {
        let namespace = namespace.unwrap_or_default();
        Namespace {
            name: namespace.name,
            config: NamespaceConfig::from_wire(&namespace.config.unwrap_or_default()),
            revision: from_wire(namespace.revision),
            incarnation: from_wire(namespace.incarnation),
        }
    }
}
