//! How a queue is shown to people.

use crate::duration::{format_ms, format_time};
use crate::output::grouped;
use crate::text::visible;
use tallystone_client::{BackoffKind, PriorityClasses, QueueInfo, QueueType};

/// The queue's type: `simple`, `exclusive by tail`.
pub(super) fn type_text(queue_type: Option<&QueueType>) -> String {
    match queue_type {
        Some(QueueType::Exclusive { key }) => format!("exclusive by {key}"),
        Some(QueueType::Simple) | None => "simple".to_owned(),
    }
}

/// Its shards, if they are worth a word: `, in 8 shards; 4 earlier ones are not empty yet`.
fn shards_text(queue: &QueueInfo) -> String {
    let shards = match queue.config.shards {
        Some(1) if queue.shards_draining > 0 => ", in 1 shard".to_owned(),
        Some(n) if n > 1 => format!(", in {n} shards"),
        _ => String::new(),
    };
    match queue.shards_draining {
        0 => shards,
        1 => shards + "; an earlier one is not empty yet",
        n => shards + &format!("; {n} earlier ones are not empty yet"),
    }
}

/// The classes of a queue, the most urgent first: `urgent -1day, bulk +3650days, overridden by tier`.
fn classes_text(classes: &PriorityClasses) -> String {
    let mut sorted: Vec<(&String, &i64)> = classes.offsets_ms.iter().collect();
    sorted.sort_by_key(|(_, offset_ms)| **offset_ms);
    let sign = |offset_ms: i64| if offset_ms < 0 { '-' } else { '+' };
    let class = |(name, offset_ms): (&String, &i64)| {
        format!("{name} {}{}", sign(*offset_ms), format_ms(offset_ms.unsigned_abs()))
    };
    let mut parts: Vec<String> = sorted.into_iter().map(class).collect();
    if parts.is_empty() {
        return "none".to_owned();
    }
    if !classes.override_key.is_empty() {
        parts.push(format!("overridden by {}", classes.override_key));
    }
    parts.join(", ")
}

/// A queue, one line per field.
pub(super) fn describe_text(queue: &QueueInfo) -> String {
    let config = &queue.config;
    let duration = |ms: Option<u64>| ms.map_or_else(String::new, format_ms);
    let backoff = config.retry_backoff.map_or_else(String::new, |backoff| match backoff.kind {
        BackoffKind::None => "none".to_owned(),
        kind => format!(
            "{}, {} to {}, {}% of it random",
            if kind == BackoffKind::Fixed { "fixed" } else { "exponential" },
            format_ms(backoff.base_ms),
            format_ms(backoff.max_ms),
            backoff.jitter_percent
        ),
    });
    let errored = format!(
        "{}, at most {} messages and {} bytes",
        duration(config.errored_retention_ms),
        grouped(config.max_errored.unwrap_or_default()),
        grouped(config.max_errored_bytes.unwrap_or_default()),
    );
    let ids_remembered = match config.id_window_ms.unwrap_or_default() {
        0 => "while the message is kept".to_owned(),
        ms => format!("{} after the message ended", format_ms(ms)),
    };
    let blocked = match (config.enqueue_blocked == Some(true), config.dequeue_blocked == Some(true)) {
        (false, false) => "no",
        (true, false) => "enqueue",
        (false, true) => "dequeue (paused)",
        (true, true) => "enqueue and dequeue",
    };
    let indexes: Vec<String> = config.indexes.iter().flatten().map(|keys| keys.join("+")).collect();
    let lines = [
        ("type", type_text(config.queue_type.as_ref()) + &shards_text(queue)),
        ("lease", duration(config.lease_ms)),
        ("invisibility", duration(config.invisibility_ms)),
        ("max attempts", config.max_attempts.unwrap_or_default().to_string()),
        ("retry backoff", backoff),
        ("retention", duration(config.terminal_retention_ms)),
        ("errored kept", errored),
        ("ids remembered", ids_remembered),
        ("max depth", config.max_depth.filter(|depth| *depth > 0).map_or_else(|| "no bound".to_owned(), grouped)),
        ("blocked", blocked.to_owned()),
        ("filter indexes", if indexes.is_empty() { "none declared".to_owned() } else { indexes.join(", ") }),
        ("classes", config.priority_classes.as_ref().map_or_else(String::new, classes_text)),
        ("revision", queue.revision.to_string()),
        ("created", format_time(queue.created_at_ms)),
    ];
    lines.iter().fold(format!("queue {}\n", visible(&queue.name)), |text, (name, value)| {
        text + &format!("  {name:<15} {}\n", visible(value))
    })
}
