//! `tallystone counter watch COUNTER…`

use super::get::counts;
use super::outcome::Outcome;
use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::duration::{format_time, now_ms, parse_ms};
use crate::error::CliError;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use std::time::Duration;
use tallystone_client::Counted;
use tokio::time::MissedTickBehavior;

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// The counters
    #[arg(required = true, value_name = "COUNTER")]
    counters: Vec<String>,
    /// Time between two reads
    #[arg(long, value_name = "DURATION", value_parser = interval_ms, default_value = "1s")]
    pub(crate) interval: u64,
    #[command(flatten)]
    within: InNamespace,
}

fn interval_ms(text: &str) -> Result<u64, String> {
    match parse_ms(text)? {
        0 => Err("must be at least 1ms".to_owned()),
        ms => Ok(ms),
    }
}

/// A count, with the time of this machine's clock when it was read.
#[derive(Serialize)]
struct TimedCount<'a> {
    at_ms: u64,
    #[serde(flatten)]
    outcome: &'a Outcome<Counted>,
}

/// Runs until a signal ends it, or until the server is unavailable for longer than calls are retried.
pub(crate) async fn run(args: WatchArgs, session: &CounterSession) -> Result<(), CliError> {
    let mut ticks = tokio::time::interval(Duration::from_millis(args.interval));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Vec::new();
    loop {
        ticks.tick().await;
        let now = counts(&args.counters, &args.within.namespace, None, session).await?;
        let at_ms = now_ms();
        for (outcome, before) in changed(&before, &now) {
            session.output.one(&TimedCount { at_ms, outcome }, |count| text(count, before))?;
        }
        before = now;
    }
}

/// The outcomes whose count changed since the last read, with the count before. A later `exact_to_ms` is no change.
pub(crate) fn changed<'a>(
    before: &'a [Outcome<Counted>],
    now: &'a [Outcome<Counted>],
) -> Vec<(&'a Outcome<Counted>, Option<i64>)> {
    let count = |outcome: &Outcome<Counted>| outcome.counted.map(|counted| counted.count);
    let of = |index: usize| before.get(index);
    let differs =
        |index: usize, outcome: &Outcome<Counted>| of(index).is_none_or(|before| count(before) != count(outcome));
    let all = now.iter().enumerate().filter(|(index, outcome)| differs(*index, outcome));
    all.map(|(index, outcome)| (outcome, of(index).and_then(count))).collect()
}

fn text(timed: &TimedCount<'_>, before: Option<i64>) -> String {
    let (count, remark) = timed.outcome.text(timed.at_ms);
    let change = match (before, timed.outcome.counted) {
        (Some(before), Some(counted)) => match counted.count.checked_sub(before) {
            Some(more @ 0..) => format!("+{}, ", count_text(more)),
            Some(less) => format!("{}, ", count_text(less)),
            None => String::new(),
        },
        _ => String::new(),
    };
    format!("{}  {}  {count}  ({change}{remark})", format_time(timed.at_ms), visible(&timed.outcome.counter))
}
