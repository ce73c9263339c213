//! QueueConfig between wire and domain (Q2): used by CreateQueue, UpdateQueue and every RPC that returns a queue.

use super::wire::{to_i32, to_i64};
use tallystone_model::names::check_range;
use tallystone_model::store::Queue;
use tallystone_model::{Backoff, BackoffKind, IndexKeys, PriorityClasses, QueueConfig, QueueType, Refusal};
use tallystone_proto::queue::v1 as pb;

/// The requested configuration; absent fields are those of `base`.
pub(super) fn parse(config: pb::QueueConfig, base: QueueConfig) -> Result<QueueConfig, Refusal> {
    let parsed = QueueConfig {
        queue_type: queue_type(config.r#type, config.exclusivity_key, base.queue_type)?,
        lease_ms: number("lease_ms", config.lease_ms, base.lease_ms)?,
        invisibility_ms: number("invisibility_ms", config.invisibility_ms, base.invisibility_ms)?,
        max_attempts: small("max_attempts", config.max_attempts, base.max_attempts)?,
        enqueue_blocked: config.enqueue_blocked.unwrap_or(base.enqueue_blocked),
        dequeue_blocked: config.dequeue_blocked.unwrap_or(base.dequeue_blocked),
        terminal_retention_ms: number(
            "terminal_retention_ms",
            config.terminal_retention_ms,
            base.terminal_retention_ms,
        )?,
        errored_retention_ms: number("errored_retention_ms", config.errored_retention_ms, base.errored_retention_ms)?,
        max_errored: number("max_errored", config.max_errored, base.max_errored)?,
        max_errored_bytes: number("max_errored_bytes", config.max_errored_bytes, base.max_errored_bytes)?,
        id_window_ms: number("id_window_ms", config.id_window_ms, base.id_window_ms)?,
        shards: small("shards", config.shards, u32::from(base.shards))?.try_into().unwrap_or(u16::MAX),
        retry_backoff: config.retry_backoff.map_or(Ok(base.retry_backoff), backoff)?,
        max_depth: number("max_depth", config.max_depth, base.max_depth)?,
        indexes: match config.indexes.is_empty() {
            true => base.indexes,
            false => indexes(config.indexes)?,
        },
        priority_classes: config.priority_classes.map_or(base.priority_classes, |classes| PriorityClasses {
            offsets_ms: classes.offsets_ms,
            override_key: classes.override_key,
        }),
    };
    parsed.check()?;
    Ok(parsed)
}

/// Refuses values that the domain cannot represent; [`QueueConfig::check`] checks the limits.
fn number(field: &'static str, value: Option<i64>, default: u64) -> Result<u64, Refusal> {
    value.map_or(Ok(default), |value| check_range(field, value, 0, i64::MAX as u64))
}

fn small(field: &'static str, value: Option<i32>, default: u32) -> Result<u32, Refusal> {
    let value = value.map_or(Ok(u64::from(default)), |value| check_range(field, value.into(), 0, i32::MAX as u64))?;
    Ok(value as u32)
}

fn queue_type(number: i32, key: String, base: QueueType) -> Result<QueueType, Refusal> {
    match pb::QueueType::try_from(number) {
        Ok(pb::QueueType::Unspecified) if key.is_empty() => Ok(base),
        Ok(pb::QueueType::Unspecified) => {
            Err(Refusal::invalid("exclusivity_key", "is set, but type is not; set type to EXCLUSIVE (2)"))
        }
        Ok(pb::QueueType::Simple) if key.is_empty() => Ok(QueueType::Simple),
        Ok(pb::QueueType::Simple) => Err(Refusal::invalid("exclusivity_key", "is set, but a SIMPLE queue has none")),
        // The check of the whole configuration finds a missing key.
        Ok(pb::QueueType::Exclusive) => Ok(QueueType::Exclusive { key }),
        Err(_) => Err(Refusal::invalid("type", format!("is {number}; must be SIMPLE (1) or EXCLUSIVE (2)"))),
    }
}

fn backoff(backoff: pb::RetryBackoff) -> Result<Backoff, Refusal> {
    use pb::retry_backoff::Kind;
    Ok(Backoff {
        kind: match Kind::try_from(backoff.kind) {
            Ok(Kind::None) => BackoffKind::None,
            Ok(Kind::Fixed) => BackoffKind::Fixed,
            Ok(Kind::Exponential) => BackoffKind::Exponential,
            Ok(Kind::Unspecified) | Err(_) => {
                let why = format!("is {}; must be KIND_NONE (1), KIND_FIXED (2) or KIND_EXPONENTIAL (3)", backoff.kind);
                return Err(Refusal::invalid("retry_backoff.kind", why));
            }
        },
        base_ms: check_range("retry_backoff.base_ms", backoff.base_ms, 0, i64::MAX as u64)?,
        max_ms: check_range("retry_backoff.max_ms", backoff.max_ms, 0, i64::MAX as u64)?,
        jitter_percent: check_range("retry_backoff.jitter_percent", backoff.jitter_percent.into(), 0, 100)? as u8,
    })
}

fn backoff_kind(kind: BackoffKind) -> pb::retry_backoff::Kind {
    use pb::retry_backoff::Kind;
    match kind {
        BackoffKind::None => Kind::None,
        BackoffKind::Fixed => Kind::Fixed,
        BackoffKind::Exponential => Kind::Exponential,
    }
}

fn indexes(indexes: Vec<pb::FilterIndex>) -> Result<Vec<IndexKeys>, Refusal> {
    let mut parsed: Vec<IndexKeys> =
        indexes.into_iter().map(|index| IndexKeys::parse(index.keys)).collect::<Result<_, _>>()?;
    parsed.sort();
    parsed.dedup();
    Ok(parsed)
}

/// A queue in the form of the wire, with every field set.
pub(super) fn to_info(queue: Queue) -> pb::QueueInfo {
    let shards_draining = queue.spread.as_ref().map_or(0, |spread| i32::from(spread.draining()));
    pb::QueueInfo {
        shards_draining,
        name: queue.name.to_string(),
        config: Some(to_config(queue.config)),
        revision: queue.revision,
        created_at_ms: to_i64(queue.created_at_ms),
    }
}

fn to_config(config: QueueConfig) -> pb::QueueConfig {
    let (queue_type, exclusivity_key) = match config.queue_type {
        QueueType::Simple => (pb::QueueType::Simple, String::new()),
        QueueType::Exclusive { key } => (pb::QueueType::Exclusive, key),
    };
    let backoff = config.retry_backoff;
    pb::QueueConfig {
        r#type: queue_type.into(),
        exclusivity_key,
        lease_ms: Some(to_i64(config.lease_ms)),
        invisibility_ms: Some(to_i64(config.invisibility_ms)),
        max_attempts: Some(to_i32(config.max_attempts)),
        enqueue_blocked: Some(config.enqueue_blocked),
        dequeue_blocked: Some(config.dequeue_blocked),
        terminal_retention_ms: Some(to_i64(config.terminal_retention_ms)),
        errored_retention_ms: Some(to_i64(config.errored_retention_ms)),
        max_errored: Some(to_i64(config.max_errored)),
        max_errored_bytes: Some(to_i64(config.max_errored_bytes)),
        id_window_ms: Some(to_i64(config.id_window_ms)),
        shards: Some(i32::from(config.shards)),
        retry_backoff: Some(pb::RetryBackoff {
            kind: backoff_kind(backoff.kind).into(),
            base_ms: to_i64(backoff.base_ms),
            max_ms: to_i64(backoff.max_ms),
            jitter_percent: backoff.jitter_percent.into(),
        }),
        max_depth: Some(to_i64(config.max_depth)),
        indexes: config
            .indexes
            .into_iter()
            .map(|index| pb::FilterIndex { keys: index.names().iter().cloned().collect() })
            .collect(),
        priority_classes: Some(pb::PriorityClasses {
            offsets_ms: config.priority_classes.offsets_ms,
            override_key: config.priority_classes.override_key,
        }),
    }
}
