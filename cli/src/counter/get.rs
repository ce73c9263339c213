//! `tallystone counter get COUNTER…`

use super::session::{CounterSession, InNamespace, refusal};
use super::sums::{self, By};
use super::text::{count_text, exactness};
use crate::duration::{now_ms, parse_moment, parse_ms};
use crate::error::CliError;
use crate::flag_names::in_flags;
use crate::limits::BATCH_ITEMS_MAX;
use crate::table::table;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{Counted, ExactTo, Refused};

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The counters
    #[arg(required = true, value_name = "COUNTER")]
    counters: Vec<String>,
    /// Wait until the counts are exact to this time: now, 2013-01-01T10:15:00Z, or 90m for 90 minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_now_or_moment)]
    pub(crate) exact_to: Option<u64>,
    /// How long to wait for that, at most 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "10s", requires = "exact_to", conflicts_with = "by")]
    pub(crate) wait: u64,
    /// Show what was added in each minute, hour or day, instead of the count; takes one counter
    #[arg(long, value_enum, value_name = "PERIOD", conflicts_with = "exact_to")]
    pub(crate) by: Option<By>,
    /// Start: 2013-01-01T10:15:00Z, or 90m for 90 minutes ago, rounded down to the start of its period [default: 60 minutes,
    /// 24 hours or 30 days before the end]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "by")]
    pub(crate) since: Option<u64>,
    /// End, rounded up to the end of its period [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, requires = "by")]
    until: Option<u64>,
    #[command(flatten)]
    within: InNamespace,
}

/// A count, or why the read was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) counter: String,
    #[serde(flatten)]
    pub(crate) counted: Option<Counted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What the server adds to the reason, such as the time to which the count is exact.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

pub(crate) async fn run(args: GetArgs, session: &CounterSession) -> Result<(), CliError> {
    let (counters, namespace) = (&args.counters, &args.within.namespace);
    if let Some(by) = args.by {
        let [counter] = counters.as_slice() else { return Err(CliError::usage("--by takes one counter")) };
        // The server chooses what is not given, by the store's clock.
        let range_ms = (args.since.unwrap_or(0), args.until.unwrap_or(0));
        return sums::show(counter, namespace, by, range_ms, session).await;
    }
    let exact_to = args.exact_to.map(|ms| ExactTo::new(ms).wait(Duration::from_millis(args.wait)));
    let outcomes = counts(counters, namespace, exact_to, session).await?;
    session.output.many(&outcomes, |outcomes| text(outcomes, now_ms()))?;
    match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} were refused", outcomes.len()))),
    }
}

fn parse_now_or_moment(text: &str) -> Result<u64, String> {
    if text == "now" { Ok(now_ms()) } else { parse_moment(text) }
}

/// All counts, in the order of the counters; with `exact_to`, each exact to that time. If only one counter was given and it is refused, this fails.
pub(crate) async fn counts(
    counters: &[String],
    namespace: &str,
    exact_to: Option<ExactTo>,
    session: &CounterSession,
) -> Result<Vec<Outcome>, CliError> {
    let mut outcomes = Vec::with_capacity(counters.len());
    for batch in counters.chunks(BATCH_ITEMS_MAX) {
        let (client, names) = (&session.client, batch.to_vec());
        let results = match exact_to {
            Some(exact_to) => session.call(namespace, client.get_many_exact(namespace, names, exact_to)).await?,
            None => session.call(namespace, client.get_many(namespace, names)).await?,
        };
        if let ([_], [Err(refused)]) = (counters, results.as_slice()) {
            return Err(refusal(refused));
        }
        outcomes.extend(batch.iter().cloned().zip(results).map(|(counter, result)| Outcome::new(counter, result)));
    }
    Ok(outcomes)
}

impl Outcome {
    pub(crate) fn new(counter: String, result: Result<Counted, Refused>) -> Self {
        match result {
            Ok(counted) => {
                Outcome { counter, counted: Some(counted), reason: None, error: None, metadata: BTreeMap::new() }
            }
            Err(refused) => {
                let error = Some(in_flags(&refused));
                Outcome { counter, counted: None, reason: Some(refused.reason), error, metadata: refused.metadata }
            }
        }
    }

    /// The count as text, and a remark on how exact it is.
    pub(crate) fn text(&self, now_ms: u64) -> (String, String) {
        match &self.counted {
            Some(counted) => {
                let exactness = exactness(Some(counted.counter_type), counted.exact_to_ms, now_ms);
                (count_text(counted.count), exactness)
            }
            None => (String::new(), format!("refused: {}", visible(self.error.as_deref().unwrap_or_default()))),
        }
    }
}

/// One count on a line, or a table of several.
pub(crate) fn text(outcomes: &[Outcome], now_ms: u64) -> String {
    if let [outcome] = outcomes {
        let (count, remark) = outcome.text(now_ms);
        return format!("{count}  ({remark})");
    }
    table(
        &["counter", "#count", ""],
        outcomes.iter().map(|outcome| {
            let (count, remark) = outcome.text(now_ms);
            vec![outcome.counter.clone(), count, remark]
        }),
    )
}
