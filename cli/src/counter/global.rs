//! `tallystone counter get --global COUNTER…`: the counts in all regions of a namespace.

use super::outcome::{Outcome, check, read};
use super::session::CounterSession;
use super::text::{count_text, exactness};
use crate::duration::now_ms;
use crate::error::CliError;
use crate::table::table;
use crate::text::visible;
use tallystone_client::{GlobalCount, RegionCount};

/// Shows all counts, in the order of the counters. If only one counter was given and it is refused, this fails.
pub(super) async fn show(counters: &[String], namespace: &str, session: &CounterSession) -> Result<(), CliError> {
    let get = async |names| session.call(namespace, session.client.get_many_global(namespace, names)).await;
    let outcomes = read(counters, get).await?;
    session.output.many(&outcomes, |outcomes| text(outcomes, now_ms()))?;
    check(&outcomes)
}

/// A line for each counter, and one below it for the part of each region.
pub(super) fn text(outcomes: &[Outcome<GlobalCount>], now_ms: u64) -> String {
    let rows = outcomes.iter().flat_map(|Outcome { counter, counted, error, .. }| {
        let Some(GlobalCount { count, exact_to_ms, regions }) = counted else {
            let refused = format!("refused: {}", visible(error.as_deref().unwrap_or_default()));
            return vec![vec![counter.clone(), String::new(), String::new(), refused]];
        };
        let remark = |exact_to_ms: u64| match exact_to_ms {
            0 => "nothing known yet".to_owned(),
            exact_to_ms => exactness(None, exact_to_ms, now_ms),
        };
        let part = |RegionCount { region, count, exact_to_ms }: &RegionCount| {
            vec![String::new(), region.clone(), count_text(*count), remark(*exact_to_ms)]
        };
        let sum = vec![counter.clone(), String::new(), count_text(*count), remark(*exact_to_ms)];
        [sum].into_iter().chain(regions.iter().map(part)).collect()
    });
    table(&["counter", "region", "#count", ""], rows)
}
