//! Queue configuration (Q2): defaults, checks, changes, and the backoff that follows from it.

use crate::fencing;
use crate::filter::IndexKeys;
use crate::limits::*;
use crate::names::{Metadata, QueueName, check_text};
use crate::priority_class::PriorityClasses;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// Simple, or exclusive by one metadata key (Q1, Q4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum QueueType {
    /// The most urgent message first.
    #[default]
    Simple,
    /// At most one running message per value of this metadata key.
    Exclusive {
        /// The metadata key that every message must carry.
        key: String,
    },
}

impl QueueType {
    /// The exclusivity key, if exclusive.
    pub fn key(&self) -> Option<&str> {
        match self {
            QueueType::Simple => None,
            QueueType::Exclusive { key } => Some(key),
        }
    }

    /// The exclusivity value of a message; `None`: the queue is simple, or the message lacks it.
    pub fn value_of<'a>(&self, metadata: &'a Metadata) -> Option<&'a str> {
        metadata.get(self.key()?)
    }

    /// The filter index that counts the messages of each exclusivity value; `None`: the queue is simple. Each shard that is closed has it
    /// (docs/decisions/0270).
    pub fn index_of_values(&self) -> Option<IndexKeys> {
        self.key().map(IndexKeys::of)
    }
}

/// How the delay before the next attempt grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum BackoffKind {
    /// No delay.
    #[default]
    None = 0,
    /// Always `base_ms`.
    Fixed = 1,
    /// `base_ms`, doubled with every attempt.
    Exponential = 2,
}

/// The delay between a failed attempt (released, or its lease expired) and the next (Q2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backoff {
    /// How it grows.
    pub kind: BackoffKind,
    /// After the first attempt.
    pub base_ms: u64,
    /// The longest delay; jitter shortens it.
    pub max_ms: u64,
    /// 0 to 100: the share of the delay, in percent, that is random.
    pub jitter_percent: u8,
}

impl Backoff {
    /// The delay after `attempts` attempts. The jitter is computed from the fencing token of the ended lease, so that every
    /// store computes the same, from its number in the shard's sequence: `(number mod 1000003) * 48271 mod 2147483647` is exact in doubles too.
    pub fn delay_ms(&self, attempts: u32, fencing_token: u64) -> u64 {
        let full = match self.kind {
            BackoffKind::None => return 0,
            BackoffKind::Fixed => self.base_ms,
            // 2^46 ms is beyond every limit, and larger products would not be exact in Lua's doubles.
            BackoffKind::Exponential => {
                let doublings = attempts.saturating_sub(1).min(46);
                (u128::from(self.base_ms) << doublings).min(u128::from(self.max_ms)) as u64
            }
        }
        .min(self.max_ms);
        let draw = (fencing::sequence_of(fencing_token) % 1_000_003) * 48_271 % 2_147_483_647;
        full - full * u64::from(self.jitter_percent) / 100 * (draw % 1_000) / 1_000
    }
}

/// The configuration of one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Simple or exclusive; fixed at creation.
    pub queue_type: QueueType,
    /// Lease of a message that names none.
    pub lease_ms: u64,
    /// Invisibility of a message that names none.
    pub invisibility_ms: u64,
    /// Attempts of a message that names none.
    pub max_attempts: u32,
    /// Enqueue is refused.
    pub enqueue_blocked: bool,
    /// Dequeue is refused (paused).
    pub dequeue_blocked: bool,
    /// How long completed and canceled messages stay.
    pub terminal_retention_ms: u64,
    /// How long errored messages stay (Q22).
    pub errored_retention_ms: u64,
    /// The most errored messages; beyond it a sweep drops the oldest (Q22).
    pub max_errored: u64,
    /// The most bytes of payload of all errored messages; beyond it a sweep drops the oldest (Q22).
    pub max_errored_bytes: u64,
    /// How long the id of a message is remembered after it ended; less than its retention: as long as it stays (Q26).
    pub id_window_ms: u64,
    /// The number of shards (Q17). Each has an equal share of the bounds on messages and bytes.
    pub shards: u16,
    /// The delay before the next attempt.
    pub retry_backoff: Backoff,
    /// The most live messages; 0: no limit.
    pub max_depth: u64,
    /// Declared filter indexes, sorted.
    pub indexes: Vec<IndexKeys>,
    /// Named offsets for deadlines (Q28).
    pub priority_classes: PriorityClasses,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig {
            queue_type: QueueType::Simple,
            lease_ms: 30_000,
            invisibility_ms: 0,
            max_attempts: 5,
            enqueue_blocked: false,
            dequeue_blocked: false,
            terminal_retention_ms: 600_000,
            errored_retention_ms: 30 * 86_400_000,
            max_errored: 100_000,
            max_errored_bytes: 1 << 30,
            id_window_ms: 0,
            shards: 1,
            // Five attempts without a pause would be over before the cause of the first failure is.
            retry_backoff: Backoff {
                kind: BackoffKind::Exponential,
                base_ms: 1_000,
                max_ms: 300_000,
                jitter_percent: 20,
            },
            max_depth: 0,
            indexes: Vec::new(),
            priority_classes: PriorityClasses::default(),
        }
    }
}

/// A change of configuration: `None` keeps a field (the field mask of UpdateQueue).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePatch {
    /// See [`QueueConfig::lease_ms`].
    pub lease_ms: Option<u64>,
    /// See [`QueueConfig::invisibility_ms`].
    pub invisibility_ms: Option<u64>,
    /// See [`QueueConfig::max_attempts`].
    pub max_attempts: Option<u32>,
    /// See [`QueueConfig::enqueue_blocked`].
    pub enqueue_blocked: Option<bool>,
    /// See [`QueueConfig::dequeue_blocked`].
    pub dequeue_blocked: Option<bool>,
    /// See [`QueueConfig::terminal_retention_ms`].
    pub terminal_retention_ms: Option<u64>,
    /// See [`QueueConfig::errored_retention_ms`].
    pub errored_retention_ms: Option<u64>,
    /// See [`QueueConfig::max_errored`].
    pub max_errored: Option<u64>,
    /// See [`QueueConfig::max_errored_bytes`].
    pub max_errored_bytes: Option<u64>,
    /// See [`QueueConfig::id_window_ms`].
    pub id_window_ms: Option<u64>,
    /// See [`QueueConfig::shards`] and [`Spread::changed`](crate::Spread::changed).
    pub shards: Option<u16>,
    /// See [`QueueConfig::retry_backoff`].
    pub retry_backoff: Option<Backoff>,
    /// See [`QueueConfig::max_depth`].
    pub max_depth: Option<u64>,
    /// See [`QueueConfig::indexes`].
    pub indexes: Option<Vec<IndexKeys>>,
    /// See [`QueueConfig::priority_classes`].
    pub priority_classes: Option<PriorityClasses>,
}

impl QueueConfig {
    /// Whether a message of this queue is gone as soon as it is completed, and a repeated Complete finds none. Only internal
    /// queues are like that: their jobs may run again, so no caller relies on the memory of one that is done.
    pub fn forgets_completed(&self, queue: &QueueName) -> bool {
        queue.is_internal() && self.terminal_retention_ms == 0 && self.id_window_ms == 0
    }

    /// Checks every limit; the refusal names the field of the wire.
    pub fn check(&self) -> Result<(), Refusal> {
        if let QueueType::Exclusive { key } = &self.queue_type {
            check_text("exclusivity_key", key, 1, METADATA_KEY_BYTES_MAX)?;
        }
        within("lease_ms", self.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)?;
        within("invisibility_ms", self.invisibility_ms, 0, DELAY_MS_MAX)?;
        within("max_attempts", u64::from(self.max_attempts), 1, u64::from(ATTEMPTS_MAX))?;
        within("terminal_retention_ms", self.terminal_retention_ms, 0, DELAY_MS_MAX)?;
        within("errored_retention_ms", self.errored_retention_ms, 0, DELAY_MS_MAX)?;
        within("max_errored", self.max_errored, 1, DEPTH_MAX)?;
        within("max_errored_bytes", self.max_errored_bytes, 1, ERRORED_BYTES_MAX)?;
        within("id_window_ms", self.id_window_ms, 0, DELAY_MS_MAX)?;
        within("shards", u64::from(self.shards), 1, u64::from(SHARDS_MAX))?;
        within("max_depth", self.max_depth, 0, DEPTH_MAX)?;
        let backoff = &self.retry_backoff;
        if backoff.kind != BackoffKind::None {
            within("retry_backoff.base_ms", backoff.base_ms, 1, DELAY_MS_MAX)?;
            within("retry_backoff.max_ms", backoff.max_ms, backoff.base_ms, DELAY_MS_MAX)?;
        }
        within("retry_backoff.jitter_percent", u64::from(backoff.jitter_percent), 0, 100)?;
        within("indexes", self.indexes.len() as u64, 0, INDEXES_MAX as u64)?;
        self.priority_classes.check()
    }

    /// This configuration with the patch applied, checked.
    pub fn patched(&self, patch: &QueuePatch) -> Result<QueueConfig, Refusal> {
        let mut config = self.clone();
        fn lay<T: Clone>(field: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                *field = value.clone();
            }
        }
        lay(&mut config.lease_ms, &patch.lease_ms);
        lay(&mut config.invisibility_ms, &patch.invisibility_ms);
        lay(&mut config.max_attempts, &patch.max_attempts);
        lay(&mut config.enqueue_blocked, &patch.enqueue_blocked);
        lay(&mut config.dequeue_blocked, &patch.dequeue_blocked);
        lay(&mut config.terminal_retention_ms, &patch.terminal_retention_ms);
        lay(&mut config.errored_retention_ms, &patch.errored_retention_ms);
        lay(&mut config.max_errored, &patch.max_errored);
        lay(&mut config.max_errored_bytes, &patch.max_errored_bytes);
        lay(&mut config.id_window_ms, &patch.id_window_ms);
        lay(&mut config.shards, &patch.shards);
        lay(&mut config.retry_backoff, &patch.retry_backoff);
        lay(&mut config.max_depth, &patch.max_depth);
        lay(&mut config.indexes, &patch.indexes);
        lay(&mut config.priority_classes, &patch.priority_classes);
        config.indexes.sort();
        config.indexes.dedup();
        config.check()?;
        Ok(config)
    }
}

fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Refusal> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Refusal::invalid(field, format!("is {value}; must be from {min} to {max}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q2_bounds_and_patches() {
        let config = QueueConfig::default();
        assert_eq!(config.check(), Ok(()));
        let patch = QueuePatch { lease_ms: Some(1), ..QueuePatch::default() };
        assert!(config.patched(&patch).is_err());
        let patch = QueuePatch { max_depth: Some(7), ..QueuePatch::default() };
        assert_eq!(config.patched(&patch).unwrap(), QueueConfig { max_depth: 7, ..config });
    }

    #[test]
    fn q22_the_default_backoff_leaves_a_failure_time_to_pass() {
        let backoff = QueueConfig::default().retry_backoff;
        let pauses_ms: u64 = (1..5).map(|attempts| backoff.delay_ms(attempts, 7)).sum();
        assert!((12_000..=15_000).contains(&pauses_ms), "five attempts take {pauses_ms} ms");
    }

    #[test]
    fn q2_backoff_grows_to_its_bound_and_jitter_only_shortens() {
        let backoff = Backoff { kind: BackoffKind::Exponential, base_ms: 100, max_ms: 1_000, jitter_percent: 0 };
        let delays: Vec<u64> = (1..7).map(|attempts| backoff.delay_ms(attempts, 1)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(backoff.delay_ms(1_000, 1), 1_000);
        let jittered = Backoff { jitter_percent: 50, ..backoff };
        for fencing_token in 0..1_000 {
            assert!((50..=100).contains(&jittered.delay_ms(1, fencing_token)));
        }
    }
}
