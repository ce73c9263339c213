//! Where rollups wait: the exclusive queues of a namespace (N8).

use crate::names::{CounterName, NamespaceName};
use crate::namespace::NamespaceConfig;
use tallystone_client::{Backoff, BackoffKind, QueueConfig};
use xxhash_rust::xxh3::xxh3_64;

/// The metadata key by which they are exclusive.
pub const EXCLUSIVITY_KEY: &str = "counter";
/// What one waiting job takes in the queue's store, about (docs/performance.md).
const JOB_BYTES: u64 = 512;
/// The bound of a queue that is no longer used, and no other's.
const RETIRED_DEPTH: u64 = 1;
/// Jobs do not give up: a counter stays dirty, and a store that is away comes back.
const ATTEMPTS: u32 = 1_000;
const BACKOFF_MS: u64 = 100;
const BACKOFF_MS_MAX: u64 = 2_000;

/// Names of a namespace's queues begin so.
pub(super) fn prefix(namespace: &NamespaceName) -> String {
    format!("rollup/{namespace}/")
}

/// One of the queues of a namespace. Another number of queues means other queues: what waits in the old ones must not
/// run beside the new.
pub fn rollup_queue(namespace: &NamespaceName, config: &NamespaceConfig, number: u16) -> String {
    format!("{}{number}of{}", prefix(namespace), config.num_queues)
}

/// Which of them has the jobs of this counter.
pub fn queue_of(counter: &CounterName, config: &NamespaceConfig) -> u16 {
    (xxh3_64(counter.as_str().as_bytes()) % u64::from(config.num_queues)) as u16
}

/// What a queue is told that is no longer used: it gives out nothing until what runs of it is done, and then goes.
pub(super) fn retired() -> QueueConfig {
    QueueConfig { dequeue_blocked: Some(true), max_depth: Some(RETIRED_DEPTH), ..QueueConfig::default() }
}

/// Whether it was told so: then it is told otherwise when it is used again; what an operator has paused stays paused.
pub(super) fn is_retired(config: &QueueConfig) -> bool {
    config.dequeue_blocked == Some(true) && config.max_depth == Some(RETIRED_DEPTH)
}

/// How they are made.
pub(super) fn queue_config(config: &NamespaceConfig) -> QueueConfig {
    QueueConfig {
        // A worker that died holds a counter up for so long; one that lives extends it.
        lease_ms: Some(config.accept_limit_ms.clamp(1_000, 10_000)),
        max_attempts: Some(ATTEMPTS),
        // The next job of the counter has the same id.
        terminal_retention_ms: Some(0),
        max_depth: Some((config.capacity_bytes / JOB_BYTES).max(RETIRED_DEPTH + 1)),
        retry_backoff: Some(Backoff {
            kind: BackoffKind::Exponential,
            base_ms: BACKOFF_MS,
            max_ms: BACKOFF_MS_MAX,
            jitter_percent: 50,
        }),
        ..QueueConfig::exclusive(EXCLUSIVITY_KEY)
    }
}
