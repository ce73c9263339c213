//! How counts and times are shown to people.

use crate::duration::{format_ago, format_time};
use crate::output::grouped;
use serde::Serialize;
use tallystone_client::CounterType;

/// A dry run of a verb that takes a count away; without a count: no rollup has counted anything yet.
#[derive(Serialize)]
pub(super) struct CountDryRun<'a> {
    pub(super) counter: &'a str,
    pub(super) dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<i64>,
}

/// -1234567 as `-1,234,567`.
pub(super) fn count_text(count: i64) -> String {
    format!("{}{}", if count < 0 { "-" } else { "" }, grouped(count.unsigned_abs()))
}

/// How exact a count is. `counter_type` is absent where the server did not return it.
pub(super) fn exactness(counter_type: Option<CounterType>, exact_to_ms: u64, now_ms: u64) -> String {
    match (counter_type, exact_to_ms) {
        (Some(CounterType::BestEffort), _) => "best effort".to_owned(),
        (Some(CounterType::Accurate), _) => "includes every acknowledged add".to_owned(),
        // The type is not known, and an ACCURATE count has adds that no rollup has read.
        (None, 0) => "no rollup yet".to_owned(),
        (_, 0) => "not rolled up yet".to_owned(),
        (_, to_ms) => format!("exact to {}, {} ago", format_time(to_ms), format_ago(now_ms.saturating_sub(to_ms))),
    }
}

/// A time in a table; 0 is shown as nothing.
pub(super) fn time_or_nothing(ms: u64) -> String {
    if ms == 0 { String::new() } else { format_time(ms) }
}
