//! What was asked for: the command line, and how much of everything a run does.

use crate::counters::CountersArgs;
use crate::figures::Figure;
use crate::history::HistoryArgs;
use crate::profile;
use crate::rig::Rig;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of every payload.
pub(crate) const PAYLOAD_BYTES: usize = 100;
/// Messages of one call, where calls carry batches.
pub(crate) const BATCH: usize = 32;
/// Clients that call in batches, each on a connection of its own.
pub(crate) const CLIENTS: usize = 8;
/// Callers and workers with one message each.
pub(crate) const CALLERS: usize = 64;
/// Connections that the callers and workers of ours share.
pub(crate) const CONNECTIONS: usize = 4;
/// So long do completed messages of ours stay: short, so that a measurement pays for collecting them.
pub(crate) const RETENTION_MS: i64 = 1_000;
/// Messages of one sample at full size.
const MESSAGES: u64 = 200_000;

/// Arguments of `tallystone bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// The queue, beside a raw-Redis floor, BullMQ and beanstalkd
    Queue(QueueArgs),
    /// History: the relay, Kafka, the indexer, Elasticsearch and the embedded store
    History(HistoryArgs),
    /// The counters: adds, reads, rollups, memory, beside raw Redis
    Counters(CountersArgs),
}

/// Arguments of `tallystone bench queue`.
#[derive(Clone, Debug, Args)]
pub struct QueueArgs {
    /// Every figure once with tiny counts: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Only these figures (may be repeated)
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub only: Vec<Figure>,
    /// Samples per side, of which the median counts [default: 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: Option<u32>,
    /// Messages of one sample; the depths of the other figures scale with it [default: 200000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=2_000_000))]
    pub messages: Option<u64>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Say on stderr where the time of each sample went: CPU per process, Redis commands
    #[arg(long)]
    pub profile: bool,
    /// Run the server on so many threads of its own, instead of the bench's: --profile then tells its CPU apart
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub server_threads: usize,
    /// Where peers/install put BullMQ [default: lab/bench/peers of the source tree]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
}

/// A run: the arguments with their defaults, and the sizes that follow.
pub(crate) struct Plan {
    pub(crate) args: QueueArgs,
    pub(crate) runs: u32,
    pub(crate) sizes: Sizes,
}

impl Plan {
    pub(crate) fn new(args: QueueArgs) -> Plan {
        let messages = args.messages.unwrap_or(if args.quick { 2_000 } else { MESSAGES });
        let runs = args.runs.unwrap_or(if args.quick { 1 } else { 3 });
        Plan { runs, sizes: Sizes::new(messages, args.quick), args }
    }

    pub(crate) fn peers_dir(&self) -> &Path {
        self.args.peers.as_deref().unwrap_or(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")))
    }

    /// Does the work and, with `--profile`, says what it cost.
    pub(crate) async fn profiled<T>(&self, rig: &Rig, label: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        profile::profiled(self.args.profile, rig, label, work).await
    }
}

/// How much of everything one run does. At full size these are the numbers of the goals.
pub(crate) struct Sizes {
    /// Messages of one throughput sample.
    pub(crate) messages: u64,
    /// Exclusivity values of the exclusive queue.
    pub(crate) keys: u64,
    /// Pending messages of the deep queue, and of the one it is held against.
    pub(crate) deep: u64,
    pub(crate) shallow: u64,
    /// Locked exclusivity values, and messages behind each.
    pub(crate) locked_keys: u64,
    pub(crate) behind: u64,
    /// Pending messages of the filtered queue, and values of which a filter names one.
    pub(crate) filter_pending: u64,
    pub(crate) filter_values: u64,
    /// Dequeues of each kind in one sample of the filtered queue.
    pub(crate) filter_calls: u64,
    /// Pending messages of which the memory is counted.
    pub(crate) memory: u64,
    /// Rate and length of the open-loop schedule.
    pub(crate) latency_per_s: u64,
    pub(crate) latency_s: u64,
    /// Waiting workers, the queues they are spread over, and how long Redis is watched.
    pub(crate) idle_workers: usize,
    pub(crate) idle_queues: usize,
    pub(crate) idle: Duration,
}

impl Sizes {
    fn new(messages: u64, quick: bool) -> Sizes {
        let scaled = |full: u64, least: u64| (full * messages / MESSAGES).max(least);
        Sizes {
            messages,
            keys: scaled(100_000, 500),
            deep: if quick { 20_000 } else { scaled(10_000_000, 20_000) },
            shallow: if quick { 2_000 } else { 10_000 },
            locked_keys: scaled(100_000, 500),
            behind: 10,
            filter_pending: scaled(1_000_000, 10_000),
            filter_values: scaled(1_000_000, 10_000) / 100,
            filter_calls: scaled(5_000, 100),
            memory: scaled(1_000_000, 10_000),
            latency_per_s: 5_000,
            latency_s: scaled(10, 1),
            idle_workers: if quick { 100 } else { 1_000 },
            idle_queues: if quick { 10 } else { 100 },
            idle: Duration::from_secs(if quick { 2 } else { 20 }),
        }
    }

    /// A bound on the time of one sample of so many messages: it is passed only when something hangs.
    pub(crate) fn time_limit(messages: u64) -> Duration {
        Duration::from_secs(60) + Duration::from_micros(messages * 500)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sizes_are_those_of_the_goals_and_scale() {
        let full = Sizes::new(MESSAGES, false);
        assert_eq!((full.keys, full.deep, full.locked_keys, full.memory), (100_000, 10_000_000, 100_000, 1_000_000));
        assert_eq!((full.filter_pending, full.filter_values, full.latency_per_s), (1_000_000, 10_000, 5_000));
        let tenth = Sizes::new(MESSAGES / 10, false);
        assert_eq!((tenth.keys, tenth.deep, tenth.latency_s), (10_000, 1_000_000, 1));
        assert_eq!(Sizes::new(2_000, true).deep, 20_000);
    }
}
