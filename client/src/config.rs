//! The configuration of a queue.

use crate::wire::{from_wire, wire_ms};
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as wire;

/// How many messages of a queue may run at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueType {
    /// Any number; the most urgent message first.
    Simple,
    /// At most one per value of this metadata key, which every message must carry.
    Exclusive {
        /// The metadata key.
        key: String,
    },
}

/// The configuration of a queue. A field that is `None` takes the default of the server's template, or of the server, in
/// [`Client::create_queue`](crate::Client::create_queue), and keeps its value in
/// [`Client::update_queue`](crate::Client::update_queue). A [`QueueInfo`] has every field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueConfig {
    /// Fixed at creation; default simple.
    pub queue_type: Option<QueueType>,
    /// Length of a lease, for messages without their own: 1,000 to 43,200,000; default 30,000.
    pub lease_ms: Option<u64>,
    /// How long a new message stays invisible, for messages without their own: up to 31,536,000,000; default 0.
    pub invisibility_ms: Option<u64>,
    /// How often a message may be leased, for messages without their own: 1 to 1,000; default 5.
    pub max_attempts: Option<u32>,
    /// Enqueue is refused (`ENQUEUE_BLOCKED`).
    pub enqueue_blocked: Option<bool>,
    /// The queue is paused: Dequeue is refused (`DEQUEUE_BLOCKED`).
    pub dequeue_blocked: Option<bool>,
    /// How long completed and canceled messages stay: up to 31,536,000,000; default 600,000.
    pub terminal_retention_ms: Option<u64>,
    /// How long errored messages stay: up to 31,536,000,000; default 2,592,000,000 (30 days).
    pub errored_retention_ms: Option<u64>,
    /// Most errored messages, 1 to 1,000,000,000; default 100,000. Beyond it the oldest are removed.
    pub max_errored: Option<u64>,
    /// Most bytes of payload of all errored messages, 1 to 2^40; default 2^30. Beyond it the oldest are removed.
    pub max_errored_bytes: Option<u64>,
    /// How long the id of a message is remembered after the message ended, in ms, up to a year; default 0. An id is always
    /// known while its message is kept.
    pub id_window_ms: Option<u64>,
    /// Number of shards, which may be on several primaries of a Redis Cluster: 1 to 64; default 1. It can be changed
    /// while no earlier change is under way ([`QueueInfo::shards_draining`]).
    pub shards: Option<u32>,
    /// Delay between a failed attempt and the next; default exponential, from 1 second to 5 minutes, with jitter.
    pub retry_backoff: Option<Backoff>,
    /// Most live messages; 0, the default: unlimited.
    pub max_depth: Option<u64>,
    /// Sets of metadata keys that are indexed, up to 16. Filters over other sets build an index first.
    pub indexes: Option<Vec<Vec<String>>>,
    /// Named offsets, from which the server computes deadlines; default none.
    pub priority_classes: Option<PriorityClasses>,
}

/// The priority classes of a queue: a message of a class gets the store's time plus the class's offset as its priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PriorityClasses {
    /// The offset of each class, in ms, within 1,000 years of 0; up to 32 classes.
    pub offsets_ms: BTreeMap<String, i64>,
    /// A metadata key whose value, if it names a class, overrides a message's priority and class; empty: none does.
    pub override_key: String,
}

/// Delay between a failed attempt and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Backoff {
    /// How the delay grows.
    pub kind: BackoffKind,
    /// The delay after the first attempt.
    pub base_ms: u64,
    /// The longest delay.
    pub max_ms: u64,
    /// The share of the delay that jitter may take away, 0 to 100.
    pub jitter_percent: u32,
}

/// How the delay grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackoffKind {
    /// No delay.
    None,
    /// Always `base_ms`.
    Fixed,
    /// `base_ms`, doubled with every attempt.
    Exponential,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Its configuration, with every field.
    pub config: QueueConfig,
    /// 1 at first; rises with every change of the configuration: by one, except after a start of Redis or a failover.
    pub revision: u32,
    /// When it was created, Unix ms.
    pub created_at_ms: u64,
    /// Shards of before a change of their number that are not empty yet; they take no new messages. 0: no change is under way.
    pub shards_draining: u32,
}

impl QueueConfig {
    /// A simple queue with default settings.
    pub fn simple() -> Self {
        QueueConfig { queue_type: Some(QueueType::Simple), ..QueueConfig::default() }
    }

    /// An exclusive queue with default settings: one message at a time per value of this metadata key.
    pub fn exclusive(key: impl Into<String>) -> Self {
        QueueConfig { queue_type: Some(QueueType::Exclusive { key: key.into() }), ..QueueConfig::default() }
    }

    /// The protocol's names of the fields that are set.
    pub(crate) fn field_names(&self) -> Vec<String> {
        let exclusive = matches!(self.queue_type, Some(QueueType::Exclusive { .. }));
        [
            ("type", self.queue_type.is_some()),
            ("exclusivity_key", exclusive),
            ("lease_ms", self.lease_ms.is_some()),
            ("invisibility_ms", self.invisibility_ms.is_some()),
            ("max_attempts", self.max_attempts.is_some()),
            ("enqueue_blocked", self.enqueue_blocked.is_some()),
            ("dequeue_blocked", self.dequeue_blocked.is_some()),
            ("terminal_retention_ms", self.terminal_retention_ms.is_some()),
            ("errored_retention_ms", self.errored_retention_ms.is_some()),
            ("max_errored", self.max_errored.is_some()),
            ("max_errored_bytes", self.max_errored_bytes.is_some()),
            ("id_window_ms", self.id_window_ms.is_some()),
            ("shards", self.shards.is_some()),
            ("retry_backoff", self.retry_backoff.is_some()),
            ("max_depth", self.max_depth.is_some()),
            ("indexes", self.indexes.is_some()),
            ("priority_classes", self.priority_classes.is_some()),
        ]
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(name, _)| name.to_owned())
        .collect()
    }

    pub(crate) fn into_wire(self) -> wire::QueueConfig {
        let (kind, exclusivity_key) = match self.queue_type {
            None => (wire::QueueType::Unspecified, String::new()),
            Some(QueueType::Simple) => (wire::QueueType::Simple, String::new()),
            Some(QueueType::Exclusive { key }) => (wire::QueueType::Exclusive, key),
        };
        let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        wire::QueueConfig {
            r#type: kind.into(),
            exclusivity_key,
            lease_ms: self.lease_ms.map(wire_ms),
            invisibility_ms: self.invisibility_ms.map(wire_ms),
            max_attempts: self.max_attempts.map(count),
            enqueue_blocked: self.enqueue_blocked,
            dequeue_blocked: self.dequeue_blocked,
            terminal_retention_ms: self.terminal_retention_ms.map(wire_ms),
            errored_retention_ms: self.errored_retention_ms.map(wire_ms),
            max_errored: self.max_errored.map(wire_ms),
            max_errored_bytes: self.max_errored_bytes.map(wire_ms),
            id_window_ms: self.id_window_ms.map(wire_ms),
            shards: self.shards.map(count),
            retry_backoff: self.retry_backoff.map(|backoff| wire::RetryBackoff {
                kind: match backoff.kind {
                    BackoffKind::None => wire::retry_backoff::Kind::None,
                    BackoffKind::Fixed => wire::retry_backoff::Kind::Fixed,
                    BackoffKind::Exponential => wire::retry_backoff::Kind::Exponential,
                }
                .into(),
                base_ms: wire_ms(backoff.base_ms),
                max_ms: wire_ms(backoff.max_ms),
                jitter_percent: count(backoff.jitter_percent),
            }),
            max_depth: self.max_depth.map(wire_ms),
            indexes: self.indexes.unwrap_or_default().into_iter().map(|keys| wire::FilterIndex { keys }).collect(),
            priority_classes: self.priority_classes.map(|classes| wire::PriorityClasses {
                offsets_ms: classes.offsets_ms,
                override_key: classes.override_key,
            }),
        }
    }

    fn from_wire(config: wire::QueueConfig) -> Self {
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        QueueConfig {
            queue_type: match config.r#type() {
                wire::QueueType::Unspecified => None,
                wire::QueueType::Simple => Some(QueueType::Simple),
                wire::QueueType::Exclusive => Some(QueueType::Exclusive { key: config.exclusivity_key }),
            },
            lease_ms: config.lease_ms.map(from_wire),
            invisibility_ms: config.invisibility_ms.map(from_wire),
            max_attempts: config.max_attempts.map(count),
            enqueue_blocked: config.enqueue_blocked,
            dequeue_blocked: config.dequeue_blocked,
            terminal_retention_ms: config.terminal_retention_ms.map(from_wire),
            errored_retention_ms: config.errored_retention_ms.map(from_wire),
            max_errored: config.max_errored.map(from_wire),
            max_errored_bytes: config.max_errored_bytes.map(from_wire),
            id_window_ms: config.id_window_ms.map(from_wire),
            shards: config.shards.map(count),
            retry_backoff: config.retry_backoff.map(|backoff| Backoff {
                kind: match backoff.kind() {
                    wire::retry_backoff::Kind::Unspecified | wire::retry_backoff::Kind::None => BackoffKind::None,
                    wire::retry_backoff::Kind::Fixed => BackoffKind::Fixed,
                    wire::retry_backoff::Kind::Exponential => BackoffKind::Exponential,
                },
                base_ms: from_wire(backoff.base_ms),
                max_ms: from_wire(backoff.max_ms),
                jitter_percent: count(backoff.jitter_percent),
            }),
            max_depth: config.max_depth.map(from_wire),
            indexes: Some(config.indexes.into_iter().map(|index| index.keys).collect()),
            priority_classes: config
                .priority_classes
                .map(|classes| PriorityClasses { offsets_ms: classes.offsets_ms, override_key: classes.override_key }),
        }
    }
}

impl Backoff {
    /// No delay: a failed message runs again at once.
    pub const NONE: Backoff = Backoff { kind: BackoffKind::None, base_ms: 0, max_ms: 0, jitter_percent: 0 };
}

impl QueueInfo {
    pub(crate) fn from_wire(info: wire::QueueInfo) -> Self {
        QueueInfo {
            name: info.name,
            config: QueueConfig::from_wire(info.config.unwrap_or_default()),
            revision: info.revision,
            created_at_ms: from_wire(info.created_at_ms),
            shards_draining: u32::try_from(info.shards_draining).unwrap_or(0),
        }
    }
}
