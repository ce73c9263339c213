//! What was asked for, and how much of everything a run does.

use super::HistoryFigure;
use clap::Args;
use std::time::Duration;

/// Events of the figures that go through Kafka, at full size.
const EVENTS: u64 = 1_000_000;

/// Arguments of `tallystone bench history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// Every figure once with tiny counts: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Only these figures (may be repeated)
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub only: Vec<HistoryFigure>,
    /// Samples per side, of which the median counts [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: Option<u32>,
    /// Events that go through Kafka; the sizes of the other figures scale with it [default: 1000000, with --quick 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=10_000_000))]
    pub events: Option<u64>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A run: the arguments with their defaults, and the sizes that follow.
pub(super) struct HistoryPlan {
    pub(super) args: HistoryArgs,
    pub(super) runs: u32,
    pub(super) sizes: HistorySizes,
    /// Rounds that are not counted.
    pub(super) warm_up_rounds: u32,
}

impl HistoryPlan {
    pub(super) fn new(args: HistoryArgs) -> HistoryPlan {
        let events = args.events.unwrap_or(if args.quick { 10_000 } else { EVENTS });
        let runs = args.runs.unwrap_or(if args.quick { 1 } else { 3 });
        let warm_up_rounds = if args.quick { 0 } else { 2 };
        HistoryPlan { runs, sizes: HistorySizes::new(events), warm_up_rounds, args }
    }
}

/// How much of everything one run does. At full size these are the numbers of the goals.
pub(super) struct HistorySizes {
    /// Events from Kafka into Elasticsearch, and of a backlog.
    pub(super) events: u64,
    /// Messages of one sample of the queue's throughput.
    pub(super) messages: u64,
    /// Events of the embedded store, and traces among them.
    pub(super) embedded: u64,
    pub(super) traces: u64,
    /// Rate and length of the load that is looked for.
    pub(super) searchable_per_s: u64,
    pub(super) searchable: Duration,
}

impl HistorySizes {
    fn new(events: u64) -> HistorySizes {
        let scaled = |full: u64, least: u64| (full * events / EVENTS).max(least);
        HistorySizes {
            events,
            messages: scaled(200_000, 2_000),
            embedded: scaled(10_000_000, 50_000),
            traces: scaled(10_000, 1_000),
            searchable_per_s: 2_000,
            searchable: Duration::from_secs(scaled(60, 2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sizes_are_those_of_the_goals_and_scale() {
        let full = HistorySizes::new(EVENTS);
        assert_eq!((full.events, full.embedded, full.searchable_per_s), (1_000_000, 10_000_000, 2_000));
        let tenth = HistorySizes::new(EVENTS / 10);
        assert_eq!((tenth.embedded, tenth.messages, tenth.searchable.as_secs()), (1_000_000, 20_000, 6));
    }
}
