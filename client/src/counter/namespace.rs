//! Namespaces (N1): what each is told.

use crate::client::{from_wire, wire_count, wire_ms};
use serde::Serialize;
use tallystone_proto::counter::v1 as wire;

/// What a counter promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterType {
    /// Fast and cheap; tokens are not looked at, so a repeated call counts twice.
    BestEffort,
    /// Exact; a read is behind by the accept limit and a little more.
    Eventual,
    /// As eventual, and a read also adds up what is not rolled up yet.
    Accurate,
}

/// How many counters a namespace has, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cardinality {
    /// Few: all of them are rolled up all the time.
    Low,
    /// As high.
    Medium,
    /// Many: each is rolled up only while it has something new.
    High,
}

/// What to set of a namespace. What is `None` stays as it is, or takes the server's default in a new one. A
/// [`Namespace`] has every field filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamespaceConfig {
    /// What its counters promise; default eventual. Best effort cannot become another, nor another best effort.
    pub counter_type: Option<CounterType>,
    /// How many counters there are, roughly; default high.
    pub cardinality: Option<Cardinality>,
    /// Best effort: how long after its last add a counter is kept; 0, the default: for ever.
    pub ttl_ms: Option<u64>,
    /// All adds of one counter within this time are one rollup; default 10,000.
    pub coalesce_ms: Option<u64>,
    /// Counters that a worker rolls up at once, of each rollup queue; default 32.
    pub rollup_batch_count: Option<u32>,
    /// Rollup queues; default 8.
    pub num_queues: Option<u32>,
    /// How much may wait in one rollup queue; default 16 MiB.
    pub capacity_bytes: Option<u64>,
    /// Shards over which the events of one counter are spread, 1 to 8; default 4. Fixed once made.
    pub buckets_per_id: Option<u32>,
    /// How much time one partition of the event log holds; default 600. Fixed once made.
    pub seconds_per_bucket: Option<u32>,
    /// How much time is dropped at once, a multiple of `seconds_per_bucket`; default 86,400.
    pub seconds_per_slice: Option<u32>,
    /// How far behind now an event's time may be; default 5,000.
    pub accept_limit_ms: Option<u64>,
    /// After this an event is no longer looked for, and a retry of it is `TOKEN_EXPIRED`; default 6 days.
    pub close_after_ms: Option<u64>,
    /// After this events are dropped, once they are rolled up; default 7 days.
    pub delete_after_ms: Option<u64>,
}

/// A namespace as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// 1 to 64 bytes of `a-z A-Z 0-9 . _ -`.
    pub name: String,
    /// Its configuration, every field filled.
    pub config: NamespaceConfig,
    /// Rises with every change.
    pub revision: u64,
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
        }
    }
}
