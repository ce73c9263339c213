//! The arguments of `tallystone bench queue`, and the sizes that follow from them.

use crate::profile::profiled;
use crate::rig::Rig;
use crate::run::RunArgs;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Messages of one sample at full size.
const MESSAGES: u64 = 200_000;

/// A figure of the queue in docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueueFigure {
    /// 8 clients enqueue batches of 32 on a simple queue, then dequeue and complete them; reference: minimal Lua
    /// scripts on Redis
    Simple,
    /// The same on an exclusive queue with 100,000 keys
    Exclusive,
    /// 64 workers on Work streams, each with one message at a time; reference: BullMQ's Worker
    Work,
    /// 64 callers enqueue one message per call; reference: BullMQ's add
    Unary,
    /// Time from Enqueue until a waiting worker has the message, at 5,000 messages/s
    Latency,
    /// Dequeue rate with 10 million pending messages; reference: with 10,000
    Depth,
    /// Dequeue rate with 100,000 locked keys and ten messages waiting for each; reference: without locked keys
    Locked,
    /// Dequeue with a filter that one message in 10,000 matches; reference: without a filter
    Filter,
    /// Redis memory per pending message beyond its payload
    Memory,
    /// Redis commands per second while 1,000 workers wait, and with 10,000 empty queues
    Idle,
    /// Enqueue and Work streams with 1 to 4000 callers
    Overload,
    /// Enqueue, Dequeue and Complete with TLS and tokens; reference: without
    Secured,
    /// Latency of a queue while callers flood another; reference: while they flood an unrelated server
    Fair,
    /// Latency of a queue during attacks that the bounds limit; reference: before each attack
    Attacked,
    /// Latency of Dequeue, Enqueue and ExtendLease while a million messages fall due together
    Due,
    /// 8 clients enqueue, dequeue and complete batches of 32 on queues of 8 shards, all on one Redis, and waiting workers; reference:
    /// one shard
    Shards,
    /// 240 queues on a Redis Cluster of three primaries: CPU per message, share of each; reference: one primary
    Cluster,
}

/// Arguments of `tallystone bench queue`.
#[derive(Clone, Debug, Args)]
pub struct QueueArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub run: RunArgs<QueueFigure>,
    /// Messages per sample; other sizes scale with it [default: 200000; 20000 with --against, 2000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=2_000_000))]
    pub messages: Option<u64>,
    /// Print on stderr where each sample spent its time: CPU per process, Redis commands
    #[arg(long)]
    pub profile: bool,
    /// Number of dedicated threads for the server, so that --profile shows its CPU separately; 0: it shares the threads of
    /// the bench
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub server_threads: usize,
    /// The folder into which lab/bench/peers/install has installed BullMQ [default: lab/bench/peers of the source tree]
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
}

/// The arguments with their defaults, and the sizes that follow.
pub(super) struct QueuePlan {
    pub(super) args: QueueArgs,
    pub(super) runs: u32,
    pub(super) messages: u64,
    pub(super) sizes: QueueSizes,
}

impl QueuePlan {
    pub(super) fn new(args: QueueArgs) -> QueuePlan {
        let messages = args.messages.unwrap_or(args.run.size(MESSAGES, 20_000, 2_000));
        QueuePlan { runs: args.run.samples(), messages, sizes: QueueSizes::new(messages, args.run.quick), args }
    }

    pub(super) fn peers_dir(&self) -> &Path {
        self.args.peers.as_deref().unwrap_or(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")))
    }

    /// Does the work and, with `--profile`, prints what it cost.
    pub(super) async fn profiled<T>(&self, rig: &Rig, label: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        profiled(self.args.profile, rig, label, work).await
    }
}

/// The sizes of one run. At full size these are the numbers of the goals.
pub(super) struct QueueSizes {
    /// Messages of one throughput sample.
    pub(super) messages: u64,
    /// Exclusivity keys of the exclusive queue.
    pub(super) keys: u64,
    /// Pending messages of the deep queue, and of its reference.
    pub(super) deep: u64,
    pub(super) shallow: u64,
    /// Locked exclusivity keys, and messages that wait for each.
    pub(super) locked_keys: u64,
    pub(super) behind: u64,
    /// Pending messages of the filtered queue, and the number of values of the filtered key.
    pub(super) filter_pending: u64,
    pub(super) filter_values: u64,
    /// Dequeues of each kind in one sample of the filtered queue.
    pub(super) filter_calls: u64,
    /// Pending messages whose memory is measured.
    pub(super) memory: u64,
    /// Rate and length of the open-loop schedule.
    pub(super) latency_per_s: u64,
    pub(super) latency_s: u64,
    /// Waiting workers, the queues that they are spread over, and the queues without workers.
    pub(super) idle_workers: usize,
    pub(super) idle_queues: usize,
    pub(super) unused_queues: usize,
    /// From when on, and for how long, the commands are counted. Together less than the longest poll.
    pub(super) settle: Duration,
    pub(super) idle: Duration,
    /// How long each number of callers continues.
    pub(super) overload: Duration,
    /// How long a queue is flooded or attacked.
    pub(super) fair: Duration,
    /// Messages that fall due together, and how long the calls continue from then on.
    pub(super) due: u64,
    pub(super) falling_due: Duration,
}

impl QueueSizes {
    fn new(messages: u64, quick: bool) -> QueueSizes {
        let scaled = |full: u64, least: u64| (full * messages / MESSAGES).max(least);
        QueueSizes {
            messages,
            keys: scaled(100_000, 500),
            deep: if quick { 20_000 } else { scaled(10_000_000, 20_000) },
            shallow: if quick { 2_000 } else { 10_000 },
            locked_keys: scaled(100_000, 500),
            behind: 10,
            filter_pending: scaled(1_000_000, 10_000),
            filter_values: scaled(1_000_000, 10_000) / 100,
            // Fewer would measure a process that has just started.
            filter_calls: if quick { 100 } else { scaled(5_000, 1_000) },
            memory: scaled(1_000_000, 10_000),
            latency_per_s: 5_000,
            latency_s: scaled(10, 1),
            idle_workers: if quick { 100 } else { 1_000 },
            idle_queues: if quick { 10 } else { 100 },
            unused_queues: if quick { 100 } else { 10_000 },
            settle: Duration::from_secs(if quick { 2 } else { 115 }),
            idle: Duration::from_secs(if quick { 2 } else { 180 }),
            overload: Duration::from_millis(if quick { 200 } else { scaled(4_000, 400) }),
            fair: Duration::from_secs(if quick { 1 } else { scaled(5, 1) }),
            due: if quick { 5_000 } else { scaled(1_000_000, 10_000) },
            falling_due: Duration::from_secs(if quick { 1 } else { scaled(20, 2) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sizes_are_those_of_the_goals_and_scale() {
        let full = QueueSizes::new(MESSAGES, false);
        assert_eq!((full.keys, full.deep, full.locked_keys, full.memory), (100_000, 10_000_000, 100_000, 1_000_000));
        assert_eq!((full.filter_pending, full.filter_values, full.latency_per_s), (1_000_000, 10_000, 5_000));
        let tenth = QueueSizes::new(MESSAGES / 10, false);
        assert_eq!((tenth.keys, tenth.deep, tenth.latency_s), (10_000, 1_000_000, 1));
        assert_eq!(QueueSizes::new(2_000, true).deep, 20_000);
    }
}
