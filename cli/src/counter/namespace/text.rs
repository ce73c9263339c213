//! How a namespace is shown to people.

use crate::counter::text::count_text;
use crate::duration::format_ms;
use crate::output::grouped;
use crate::text::visible;
use tallystone_client::{Cardinality, CounterType, Namespace, PublishedTo, Threshold};

pub(super) fn type_text(counter_type: Option<CounterType>) -> &'static str {
    match counter_type {
        None => "?",
        Some(CounterType::BestEffort) => "best-effort",
        Some(CounterType::Eventual) => "eventual",
        Some(CounterType::Accurate) => "accurate",
    }
}

pub(super) fn cardinality_text(cardinality: Option<Cardinality>) -> &'static str {
    match cardinality {
        None => "?",
        Some(Cardinality::Low) => "low",
        Some(Cardinality::Medium) => "medium",
        Some(Cardinality::High) => "high",
    }
}

fn thresholds_text(thresholds: &[Threshold]) -> String {
    let text = |Threshold { prefix, count }: &Threshold| match prefix.as_str() {
        "" => count_text(*count),
        prefix => format!("{} of {}*", count_text(*count), visible(prefix)),
    };
    let texts: Vec<String> = thresholds.iter().map(text).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join("; ") }
}

/// A namespace, one line per field.
pub(super) fn describe_text(namespace: &Namespace) -> String {
    let config = &namespace.config;
    let duration = |ms: Option<u64>| ms.map_or_else(String::new, format_ms);
    let seconds = |seconds: Option<u32>| duration(seconds.map(|seconds| u64::from(seconds) * 1_000));
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    let published_to = match &config.published_to {
        Some(PublishedTo { key, field }) => format!("{} of {}", visible(field), visible(key)),
        None => "nowhere".to_owned(),
    };
    let regions = config.regions.iter().flatten().map(|region| visible(region)).collect::<Vec<_>>();
    let lines = [
        ("type", type_text(config.counter_type).to_owned()),
        ("cardinality", cardinality_text(config.cardinality).to_owned()),
        ("ttl", config.ttl_ms.filter(|ttl| *ttl > 0).map_or_else(|| "no limit".to_owned(), format_ms)),
        ("accept limit", duration(config.accept_limit_ms)),
        ("coalesce", duration(config.coalesce_ms)),
        ("rollup batch", number(config.rollup_batch_count)),
        ("rollup queues", number(config.num_queues)),
        ("capacity", config.capacity_bytes.map_or_else(String::new, |bytes| format!("{} bytes", grouped(bytes)))),
        ("buckets per id", number(config.buckets_per_id)),
        ("bucket", seconds(config.seconds_per_bucket)),
        ("slice", seconds(config.seconds_per_slice)),
        ("close after", duration(config.close_after_ms)),
        ("delete after", duration(config.delete_after_ms)),
        ("expire after", config.expire_after_ms.filter(|ms| *ms > 0).map_or_else(|| "never".to_owned(), format_ms)),
        ("published to", published_to),
        ("thresholds", thresholds_text(config.thresholds.as_deref().unwrap_or_default())),
        ("regions", if regions.is_empty() { "none".to_owned() } else { regions.join(", ") }),
        ("archived", if config.archived == Some(true) { "yes" } else { "no" }.to_owned()),
        ("revision", namespace.revision.to_string()),
    ];
    let headline = format!("namespace {}\n", visible(&namespace.name));
    lines.iter().fold(headline, |text, (name, value)| text + &format!("  {name:<15} {value}\n"))
}
