//! `tallystone queue stats NAME`

use crate::connection::{Session, cli_error};
use crate::duration::{format_ms, format_time, parse_moment, parse_ms};
use crate::error::CliError;
use crate::history::{HistoryFlags, behind, check_known};
use crate::output::grouped;
use crate::table::table;
use clap::Args;
use tallystone_client::{Activity, QueueStats, State, StateActivity};

/// Bars of a trend, if no interval is given.
const COLUMNS: u64 = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// The queue
    queue: String,
    /// Start: 2013-01-01T10:15:00Z, or 90m for 90 minutes ago [default: an hour before the end]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<u64>,
    /// End [default: the time up to which history is complete]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<u64>,
    /// Length of the interval of each bar of the trend [default: a sixtieth of the range]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    interval: Option<u64>,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
}

pub(crate) async fn run(args: StatsArgs, session: &Session) -> Result<(), CliError> {
    let (since, until) = (args.since.unwrap_or(0), args.until.unwrap_or(0));
    let query = async |interval_ms| {
        session.client.queue_stats(&args.queue, since, until, interval_ms).await.map_err(|error| cli_error(&error))
    };
    let stats = match args.interval {
        Some(interval_ms) => query(interval_ms).await?,
        None => {
            // The server chooses a time that was not given: the first query learns it.
            let whole = query(0).await?.total;
            let span_ms = whole.to_ms.saturating_sub(whole.from_ms);
            let interval_ms = span_ms.div_ceil(COLUMNS).max(1_000);
            session
                .client
                .queue_stats(&args.queue, whole.from_ms, whole.to_ms, interval_ms)
                .await
                .map_err(|error| cli_error(&error))?
        }
    };
    if stats.total.states.is_empty() {
        check_known(&args.queue, session).await?;
    }
    session.output.one(&stats, |stats| text(&args.queue, stats))
}

fn text(queue: &str, stats: &QueueStats) -> String {
    let total = &stats.total;
    let mut text = format!(
        "{queue}, {} to {} ({})\n\n",
        format_time(total.from_ms),
        format_time(total.to_ms),
        format_ms(total.to_ms.saturating_sub(total.from_ms))
    );
    if total.states.is_empty() {
        text += "No transitions in this time.\n";
    } else {
        let header = ["state", "#entered", "#per second", "#left", "#p50", "#p90", "#p99", "#max", "trend"];
        text += &table(&header, total.states.iter().map(|state| row(state, &stats.intervals)));
        text += "\n\nP50 to MAX: the time that messages spent in the state before they left it.\n";
        let interval_ms = stats.intervals.first().map_or(0, |first| first.to_ms.saturating_sub(first.from_ms));
        text += &format!("TREND: messages that entered the state, a bar for each {}.\n", format_ms(interval_ms));
    }
    if !total.reasons.is_empty() {
        text += "\n";
        let reason = |reason: &tallystone_client::ReasonCount| vec![grouped(reason.count), reason.reason.clone()];
        text += &table(&["#times", "reason"], total.reasons.iter().map(reason));
        text += "\n";
    }
    text + "\n" + &behind(&stats.watermark)
}

fn row(activity: &StateActivity, intervals: &[Activity]) -> Vec<String> {
    let time = |ms: u64| if activity.left == 0 { String::new() } else { format_ms(ms) };
    let of_state = |part: &Activity| {
        part.states.iter().find(|state| state.state == activity.state).map_or(0, |state| state.entered)
    };
    vec![
        activity.state.map_or("?", State::name).to_owned(),
        grouped(activity.entered),
        format!("{:.2}", activity.entered_per_s),
        grouped(activity.left),
        time(activity.p50_ms),
        time(activity.p90_ms),
        time(activity.p99_ms),
        time(activity.max_ms),
        sparkline(&intervals.iter().map(of_state).collect::<Vec<_>>()),
    ]
}

/// A bar for each number, its height relative to the largest; 0 is a space.
fn sparkline(counts: &[u64]) -> String {
    let largest = counts.iter().copied().max().unwrap_or(0);
    let bar = |count: u64| match count {
        0 => ' ',
        count => BARS[((count * BARS.len() as u64).div_ceil(largest.max(1)) - 1).min(7) as usize],
    };
    counts.iter().copied().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_least_and_the_most() {
        assert_eq!(sparkline(&[0, 1, 50, 100]), " ▁▄█");
        assert_eq!(sparkline(&[0, 0]), "  ");
        assert_eq!(sparkline(&[]), "");
    }
}
