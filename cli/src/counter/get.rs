//! `tallystone counter get COUNTER…`

use super::global;
use super::outcome::{Outcome, check, read};
use super::session::{CounterSession, InNamespace};
use super::sums::{self, By};
use super::text::{count_text, exactness};
use crate::duration::{now_ms, parse_moment, parse_ms};
use crate::error::CliError;
use crate::table::table;
use crate::text::visible;
use clap::Args;
use std::time::Duration;
use tallystone_client::{Counted, ExactTo};

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
    /// Show the counts in all regions of the namespace, and the part of each region
    #[arg(long, conflicts_with_all = ["by", "exact_to"])]
    global: bool,
    #[command(flatten)]
    within: InNamespace,
}

pub(crate) async fn run(args: GetArgs, session: &CounterSession) -> Result<(), CliError> {
    let (counters, namespace) = (&args.counters, &args.within.namespace);
    if let Some(by) = args.by {
        let [counter] = counters.as_slice() else { return Err(CliError::usage("--by takes one counter")) };
        // The server chooses what is not given, by the store's clock.
        let range_ms = (args.since.unwrap_or(0), args.until.unwrap_or(0));
        return sums::show(counter, namespace, by, range_ms, session).await;
    }
    if args.global {
        return global::show(counters, namespace, session).await;
    }
    let exact_to = args.exact_to.map(|ms| ExactTo::new(ms).wait(Duration::from_millis(args.wait)));
    let outcomes = counts(counters, namespace, exact_to, session).await?;
    session.output.many(&outcomes, |outcomes| text(outcomes, now_ms()))?;
    check(&outcomes)
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
) -> Result<Vec<Outcome<Counted>>, CliError> {
    read(counters, async |names| {
        let client = &session.client;
        match exact_to {
            Some(exact_to) => session.call(namespace, client.get_many_exact(namespace, names, exact_to)).await,
            None => session.call(namespace, client.get_many(namespace, names)).await,
        }
    })
    .await
}

impl Outcome<Counted> {
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
pub(crate) fn text(outcomes: &[Outcome<Counted>], now_ms: u64) -> String {
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
