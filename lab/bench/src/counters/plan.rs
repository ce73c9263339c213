//! The arguments of `tallystone bench counters`, and the sizes that follow from them.

use crate::profile::profiled;
use crate::rig::Rig;
use crate::run::RunArgs;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use tallystone_client::NamespaceConfig;
use tallystone_counters::ArchiveConfig;

/// Adds per call, where calls carry batches.
pub(super) const BATCH: usize = 64;
/// Callers that send batches; those of raw Redis each have their own connection.
pub(super) const CALLERS: usize = 64;
/// Connections that our callers share.
pub(super) const CONNECTIONS: usize = 4;
/// The accept limit of figures that only fill the store: a pause of a busy machine refuses no add.
pub(super) const FILL_ACCEPT_LIMIT_MS: u64 = 20_000;
/// Adds of one sample at full size.
const ADDS: u64 = 1_000_000;

/// A figure of the counters in docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum CounterFigure {
    /// AddCounts with tokens in batches of 64, on eventual counters chosen by Zipf's law; reference: SET NX EX + HINCRBY in
    /// pipelines
    Adds,
    /// The same, all adds on one counter; reference: on counters chosen by Zipf's law
    AddsOne,
    /// AddCount, one add per call, at a steady rate
    AddLatency,
    /// GetCount, one counter per call, at a steady rate
    GetLatency,
    /// Time from an add until the count includes it, under load
    Lag,
    /// AddCounts of best-effort counters in batches of 64; reference: INCRBY in pipelines
    BestEffort,
    /// Number of rollups that a thousand adds to one counter within one window cause
    Jobs,
    /// Redis memory per event that is not rolled up yet, and per idle counter
    Memory,
    /// AddCounts without tokens in batches of 1000 by 1 to 4000 callers, over gRPC and HTTP, and an add after Redis has hung
    Overload,
    /// Single calls at a steady rate while one of two servers hangs, by clients that hedge; reference: without hedges
    Hedged,
    /// Rollups of many waiting counters: their rate, what they add to the queue's append-only file, and adds at the same time
    Rollup,
    /// Single calls of all kinds at ever higher rates: the highest with p99 < 10 ms, and the cores that 75,000/s would need
    Mixed,
    /// Many idle namespaces: Redis commands, growth of the append-only file, memory of the processes
    Idle,
    /// AddCounts with tokens in batches of 1000: growth of Redis's append-only file per add
    AofPerAdd,
    /// Redis memory under adds at a steady rate whose events are archived, for a quarter of an hour;
    /// reference of the rate: without an archive
    ArchiveMemory,
    /// Events archived per second, bytes of each in the archive, and events counted again from there per second
    ArchiveSpeed,
    /// AddCount, one add per call, at a steady rate while counters are audited; reference: without audits
    Audits,
}

/// Arguments of `tallystone bench counters`.
#[derive(Clone, Debug, Args)]
pub struct CountersArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub run: RunArgs<CounterFigure>,
    /// Adds per sample; other sizes scale with it [default: 1000000; 200000 with --against, 20000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=20_000_000))]
    pub adds: Option<u64>,
    /// Print on stderr where each sample spent its time: CPU per process, Redis commands
    #[arg(long)]
    pub profile: bool,
    /// Number of dedicated threads for each of queue, counters and worker, so that --profile shows their CPU separately;
    /// 0: they share the threads of the bench
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub server_threads: usize,
    /// The program that serves the counters in the figures overload and hedged, such as an older build [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    pub counters_program: Option<PathBuf>,
}

/// The arguments with their defaults, and the sizes that follow.
pub(super) struct CountersPlan {
    pub(super) args: CountersArgs,
    pub(super) runs: u32,
    pub(super) sizes: CounterSizes,
}

impl CountersPlan {
    pub(super) fn new(args: CountersArgs) -> CountersPlan {
        let adds = args.adds.unwrap_or(args.run.size(ADDS, 200_000, 20_000));
        CountersPlan { runs: args.run.samples(), sizes: CounterSizes::new(adds, args.run.quick), args }
    }

    /// Does the work and, with `--profile`, prints what it cost.
    pub(super) async fn profiled<T>(&self, rig: &Rig, label: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        profiled(self.args.profile, rig, label, work).await
    }
}

/// The sizes of one run. At full size these are the numbers of the goals.
pub(super) struct CounterSizes {
    /// Adds of one sample of throughput.
    pub(super) adds: u64,
    /// Counters in all; the n-th gets a share of 1/n.
    pub(super) counters: usize,
    /// Rate of the steady loads, and how long single calls are made.
    pub(super) per_s: u64,
    pub(super) latency: Duration,
    /// Parameters of the namespaces of `lag` and `jobs`: the accept limit, a short coalesce time, and the default one.
    pub(super) accept_limit_ms: u64,
    pub(super) near_coalesce_ms: u64,
    pub(super) default_coalesce_ms: u64,
    /// Adds whose lag is measured, and the interval between two of them.
    pub(super) probes: usize,
    pub(super) probe_every: Duration,
    /// The load before them, beyond the time after which the first rollups are due.
    pub(super) warm_up: Duration,
    /// Adds of one window.
    pub(super) window_adds: u64,
    /// Events whose memory is measured, and the time that Redis gets before that to free what calls needed and to finish
    /// rehashing.
    pub(super) memory_events: u64,
    pub(super) settle: Duration,
    /// How long each number of callers continues, and how long Redis hangs.
    pub(super) overload: Duration,
    pub(super) stall: Duration,
    /// Rate of single calls, and how long one of two servers hangs.
    pub(super) hedged_per_s: u64,
    pub(super) standstill: Duration,
    /// How many of the rates of `mixed` are tried at most.
    pub(super) mixed_rates: usize,
    /// Counters that wait for a rollup.
    pub(super) waiting: usize,
    /// Idle namespaces, how long they exist before they are measured, and for how long they are.
    pub(super) idle_namespaces: usize,
    pub(super) idle_settle: Duration,
    pub(super) idle: Duration,
    /// Counters of the figures of the archive and of the append-only file.
    pub(super) batch_counters: usize,
    /// How long events are archived while adds continue, when they are, and how many events are archived at once.
    pub(super) archive_memory: Duration,
    pub(super) archive: ArchiveConfig,
    pub(super) archive_events: u64,
    /// Events that audits read.
    pub(super) audited_events: u64,
}

impl CounterSizes {
    fn new(adds: u64, quick: bool) -> CounterSizes {
        let scaled = |full: u64, least: u64| (full * adds / ADDS).max(least);
        let short = |full: u64, quickly: u64| if quick { quickly } else { full };
        CounterSizes {
            adds,
            counters: short(100_000, 2_000) as usize,
            per_s: short(20_000, 2_000),
            latency: Duration::from_millis(scaled(10_000, 1_000)),
            // Not shorter in a quick run: a busy machine delays some adds by more than a second, and then they are too old.
            accept_limit_ms: 5_000,
            near_coalesce_ms: short(500, 200),
            default_coalesce_ms: short(10_000, 800),
            probes: scaled(300, 20) as usize,
            probe_every: Duration::from_millis(short(100, 20)),
            warm_up: Duration::from_millis(short(2_000, 100)),
            window_adds: 1_000,
            memory_events: short(scaled(1_000_000, 10_000).min(10_000_000), 3_000),
            settle: Duration::from_millis(short(1_000, 100)),
            overload: Duration::from_millis(scaled(10_000, 500)),
            stall: Duration::from_millis(short(12_000, 500)),
            hedged_per_s: 1_000,
            standstill: Duration::from_millis(short(10_000, 200)),
            mixed_rates: short(10, 1) as usize,
            waiting: short(scaled(300_000, 3_000), 3_000) as usize,
            idle_namespaces: short(2_000, 5) as usize,
            idle_settle: Duration::from_millis(short(75_000, 500)),
            idle: Duration::from_millis(short(180_000, 500)),
            batch_counters: short(50_000, 2_000) as usize,
            // Archivers work once a minute: a shorter run shows no maxima. A quick one needs only some passes.
            archive_memory: Duration::from_secs(if quick { 15 } else { scaled(900, 210) }),
            archive: if quick {
                ArchiveConfig { interval_ms: 3_000, keep_ms: 1_500, ..ArchiveConfig::default() }
            } else {
                ArchiveConfig::default()
            },
            archive_events: short(scaled(2_000_000, 200_000), 20_000),
            audited_events: short(scaled(500_000, 50_000), 5_000),
        }
    }

    /// A namespace with these parameters and defaults for all others.
    pub(super) fn namespace(&self, coalesce_ms: u64) -> NamespaceConfig {
        NamespaceConfig {
            accept_limit_ms: Some(self.accept_limit_ms),
            coalesce_ms: Some(coalesce_ms),
            ..NamespaceConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sizes_are_those_of_the_goals_and_scale() {
        let full = CounterSizes::new(ADDS, false);
        assert_eq!((full.counters, full.per_s, full.probes, full.memory_events), (100_000, 20_000, 300, 1_000_000));
        let defaults = tallystone_counters::NamespaceConfig::default();
        assert_eq!((full.batch_counters, full.archive_memory.as_secs(), full.archive_events), (50_000, 900, 2_000_000));
        assert_eq!(full.accept_limit_ms, defaults.accept_limit_ms);
        assert_eq!(full.default_coalesce_ms, defaults.coalesce_ms);
        let tenth = CounterSizes::new(ADDS / 10, false);
        assert_eq!((tenth.latency.as_secs(), tenth.probes, tenth.counters), (1, 30, 100_000));
    }
}
