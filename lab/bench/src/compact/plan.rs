//! The arguments of `tallystone bench compact`, and the sizes that follow from them.

use crate::run::RunArgs;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use tallystone_local::{MODULE_FILE, compact_module};

/// Connections of a load, and commands that each has under way, unless a figure says otherwise.
pub(super) const CONNECTIONS: usize = 64;
pub(super) const COMMANDS: u64 = 64;
/// Objects of the figures of speed at full size.
const IDS: u64 = 1_000_000;
/// One set takes no more of them.
const COLD_IDS_MAX: u64 = 3_800_000_000;

/// A figure of the compact counter store in docs/performance.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum CompactFigure {
    /// Memory of an object with four counters; references: four keys, a hash, hashes in which clients pack 100 objects
    Memory,
    /// One increment a command; reference: INCR
    Increment,
    /// 64 increments a command, packed; reference: INCR
    Packed,
    /// 32 increments a command, in decimal; reference: INCR
    Decimal,
    /// Four counters of an object; references: HMGET and MGET
    Object,
    /// 32 objects in one request, in decimal and packed; references: HMGET and MGET in pipelines
    Objects,
    /// A set with tables by hash: memory of an object, and single increments and reads; references: INCR and HMGET
    Random,
    /// Reads of objects in memory at a steady rate while reads of cold ones keep the disk busy; reference: without those
    HotReads,
    /// Cold objects: bytes on disk, bytes of their index, random reads; reference: reads of 4 KiB from the same files
    Cold,
    /// Restart from a snapshot; reference: the same counters as hashes
    Restart,
    /// Increments while a snapshot is written, and the memory that this takes; reference: INCR
    Snapshot,
}

/// Arguments of `tallystone bench compact`.
#[derive(Clone, Debug, Args)]
pub struct CompactArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub run: RunArgs<CompactFigure>,
    /// Objects of the figures of speed; ten times as many in memory, random, restart and snapshot, a hundred times as many in cold
    /// [default: 1000000; 100000 with --against, 10000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=50_000_000))]
    pub ids: Option<u64>,
    /// Objects that the figure cold generates [default: a hundred times --ids]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100_000..=COLD_IDS_MAX))]
    pub cold_ids: Option<u64>,
    /// Seconds of one sample [default: 3; 1 with --against, 0.1 with --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Threads with which the module reads pages, and with which the bench reads them for comparison
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub readers: u64,
    /// The module's file [default: TALLYSTONE_COMPACT_MODULE, else libtallystone_compact_module.so next to this program]
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
}

/// The arguments with their defaults, and the sizes that follow.
pub(super) struct CompactPlan {
    pub(super) args: CompactArgs,
    pub(super) runs: u32,
    pub(super) module: PathBuf,
    pub(super) ids: u64,
    /// Objects of the figures of memory, and of snapshots.
    pub(super) many: u64,
    pub(super) cold: u64,
    /// The table size of figures that need several tables or full ones.
    pub(super) table_slots: u64,
    /// Memory of the set from which tables move to files.
    pub(super) memory_max: u64,
    /// Memory for records of cold tables that were read: the default, or less than there are at tiny sizes.
    pub(super) cache_bytes: u64,
    /// How long one sample takes, and the load before it.
    pub(super) time: Duration,
    pub(super) warm_up: Duration,
    /// Between two readings of something that comes to rest.
    pub(super) poll: Duration,
    /// Rate of the reads whose latency is measured.
    pub(super) hot_per_s: u64,
}

impl CompactPlan {
    pub(super) fn new(args: CompactArgs) -> Result<CompactPlan> {
        let quick = args.run.quick;
        let short = |full: u64, quickly: u64| if quick { quickly } else { full };
        let ids = args.ids.unwrap_or(args.run.size(IDS, IDS / 10, IDS / 100));
        let seconds = args.seconds.unwrap_or(args.run.size(30, 10, 1) as f64 / 10.0);
        ensure!((0.01..=600.0).contains(&seconds), "--seconds is between 0.01 and 600");
        let module = match args.module.clone() {
            Some(module) => module.canonicalize().with_context(|| format!("the module {}", module.display()))?,
            None => compact_module()?.with_context(|| {
                format!("{MODULE_FILE} is not next to this program: cargo build --release -p tallystone-compact-module")
            })?,
        };
        Ok(CompactPlan {
            runs: args.run.samples(),
            module,
            ids,
            many: short(10, 2) * ids,
            cold: args.cold_ids.unwrap_or(short(100, 10) * ids),
            table_slots: short(1 << 20, 1 << 13),
            memory_max: short(96 << 20, 1 << 20),
            cache_bytes: short(16 << 20, 1 << 16),
            time: Duration::from_secs_f64(seconds),
            warm_up: Duration::from_millis(short(300, 10)),
            poll: Duration::from_millis(short(1_000, 100)),
            hot_per_s: short(2_000, 500),
            args,
        })
    }
}
