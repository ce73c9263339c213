//! The exclusive queues in which a namespace's rollup jobs wait (N8).

use crate::names::CounterName;
use crate::namespace::NamespaceConfig;
use std::ops::RangeInclusive;
use tallystone_client::{Backoff, BackoffKind, QueueConfig};
use tallystone_model::names::INTERNAL_QUEUES;
use xxhash_rust::xxh3::xxh3_64;

/// The metadata key by which these queues are exclusive.
pub const EXCLUSIVITY_KEY: &str = "counter";
/// About what one waiting job takes in the queue's store (docs/performance.md).
const JOB_BYTES: u64 = 512;
/// The depth bound that marks a queue as retired; no other queue has it.
const RETIRED_DEPTH: u64 = 1;
/// Jobs are tried for long: what is to do stays to do, and a store that is unavailable comes back.
const ATTEMPTS: u32 = 1_000;
const BACKOFF_MS: RangeInclusive<u64> = 100..=2_000;

/// What the names of a namespace's queues begin with; `tag`: [`Namespace::tag`](crate::redis::Namespace::tag).
pub(super) fn prefix(tag: &str) -> String {
    format!("{INTERNAL_QUEUES}{tag}/")
}

/// The name of one of a namespace's queues. It carries `num_queues`: when that changes, the jobs of the old queues must
/// not run at the same time as those of the new ones.
pub fn rollup_queue(tag: &str, config: &NamespaceConfig, number: u16) -> String {
    format!("{}{number}of{}", prefix(tag), config.num_queues)
}

/// The number of the queue that has the jobs of this counter.
pub fn queue_of(counter: &CounterName, config: &NamespaceConfig) -> u16 {
    (xxh3_64(counter.as_str().as_bytes()) % u64::from(config.num_queues)) as u16
}

/// The configuration of a queue that is no longer used: it leases nothing, and is deleted when its running jobs are done.
pub(super) fn retired() -> QueueConfig {
    QueueConfig { dequeue_blocked: Some(true), max_depth: Some(RETIRED_DEPTH), ..QueueConfig::default() }
}

/// Whether the queue was retired. Then it is resumed when it is used again; a queue that an operator paused stays paused.
pub(super) fn is_retired(config: &QueueConfig) -> bool {
    config.dequeue_blocked == Some(true) && config.max_depth == Some(RETIRED_DEPTH)
}

/// The configuration of a queue in use.
pub(super) fn queue_config(config: &NamespaceConfig) -> QueueConfig {
    QueueConfig {
        max_depth: Some((config.capacity_bytes / JOB_BYTES).max(RETIRED_DEPTH + 1)),
        ..job_queue(EXCLUSIVITY_KEY, config.accept_limit_ms.clamp(1_000, 10_000), BACKOFF_MS)
    }
}

/// The configuration of an exclusive queue of jobs that are requested again and again. A worker that died delays its jobs by
/// `lease_ms`; one that lives extends its lease.
pub(super) fn job_queue(key: &str, lease_ms: u64, backoff_ms: RangeInclusive<u64>) -> QueueConfig {
    QueueConfig {
        lease_ms: Some(lease_ms),
        max_attempts: Some(ATTEMPTS),
        // The next job has the same id.
        terminal_retention_ms: Some(0),
        errored_retention_ms: Some(0),
        retry_backoff: Some(Backoff {
            kind: BackoffKind::Exponential,
            base_ms: *backoff_ms.start(),
            max_ms: *backoff_ms.end(),
            jitter_percent: 50,
        }),
        ..QueueConfig::exclusive(key)
    }
}
