//! The arguments of `tallystone bench history`, and the sizes that follow from them.

use crate::run::RunArgs;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Events of the figures that go through Kafka, at full size.
const EVENTS: u64 = 1_000_000;

/// A figure of the history in docs/performance.md. In this order, no figure shares the machine with a service that only
/// later ones need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryFigure {
    /// The embedded store: events recorded per second, and the latency of TraceMessage on the recorded events
    Embedded,
    /// The queue's throughput with a relay into Kafka, or into the embedded store; reference: without a relay
    Relay,
    /// Events that the indexer moves from Kafka into Elasticsearch per second; reference: the same documents sent directly
    Indexer,
    /// Time from a transition until a search finds it, at 2,000 events/s
    Searchable,
    /// TraceMessage and SearchMessages over six and over thirty indices; reference: one index with the same messages
    Rollover,
    /// Memory of the relay and of the indexer while they process a backlog
    Memory,
}

/// Arguments of `tallystone bench history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub run: RunArgs<HistoryFigure>,
    /// Events through Kafka; other sizes scale with it [default: 1000000; 100000 with --against, 4000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=10_000_000))]
    pub events: Option<u64>,
}

/// The arguments with their defaults, and the sizes that follow.
pub(super) struct HistoryPlan {
    pub(super) args: HistoryArgs,
    pub(super) runs: u32,
    pub(super) sizes: HistorySizes,
    /// Rounds before the measured ones, not counted.
    pub(super) warm_up_rounds: u32,
}

impl HistoryPlan {
    pub(super) fn new(args: HistoryArgs) -> HistoryPlan {
        let events = args.events.unwrap_or(args.run.size(EVENTS, 100_000, 4_000));
        let warm_up_rounds = if args.run.quick { 0 } else { 2 };
        HistoryPlan { runs: args.run.samples(), sizes: HistorySizes::new(events), warm_up_rounds, args }
    }
}

/// The sizes of one run. At full size these are the numbers of the goals.
pub(super) struct HistorySizes {
    /// Events from Kafka into Elasticsearch, and of a backlog.
    pub(super) events: u64,
    /// Messages of one sample of the queue's throughput.
    pub(super) messages: u64,
    /// Events of the embedded store, and traces among them.
    pub(super) embedded: u64,
    pub(super) traces: u64,
    /// Calls of one query over many indices, per side and run.
    pub(super) queries: u64,
    /// Days of the messages in many indices.
    pub(super) days: u16,
    /// Rate and length of the load of `searchable`.
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
            queries: scaled(1_000, 20),
            // Elasticsearch takes longer to make an index than to write a small run's events.
            days: if events < EVENTS / 10 { 6 } else { 30 },
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
        assert_eq!((tenth.days, HistorySizes::new(10_000).days), (30, 6));
    }
}
