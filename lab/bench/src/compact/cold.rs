//! Cold objects: what they take on disk and in memory, and how fast they are read at random.

use super::alternate::{Side, sample};
use super::disk::{Evictor, cold_files, reads_per_s};
use super::engine::{Engine, Log, number_of};
use super::generator::{self, Pipelines};
use super::plan::{CONNECTIONS, CompactPlan};
use super::requests::{Op, Store};
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{Sample, Samples};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Commands that each connection has under way: a blocked client takes one at a time, and the next is there when it is answered.
const COMMANDS: u64 = 16;
/// How long tables may take to get to their files after the last write.
const SPILL_LIMIT: Duration = Duration::from_secs(300);

/// A set most of whose tables are in files.
struct ColdSet {
    engine: Engine,
    records: u64,
    file_bytes: f64,
    index_bytes: f64,
}

/// Reads of pages that the disk gives for the files of a set, past the page cache.
struct DiskReads {
    samples: Samples,
    is_direct: bool,
}

impl DiskReads {
    fn new() -> DiskReads {
        DiskReads { samples: Samples::new(), is_direct: true }
    }

    /// Measures one sample, with as many threads as the module has.
    async fn sample(&mut self, plan: &CompactPlan, files: &[PathBuf]) -> Result<()> {
        let (files, threads, time) = (files.to_vec(), plan.args.readers, plan.time);
        let (value, is_direct) = tokio::task::spawn_blocking(move || reads_per_s(&files, threads, time)).await??;
        eprintln!("  the disk gives {value:.0} reads/s");
        self.samples.push(Sample { value, ..Sample::default() });
        self.is_direct &= is_direct;
        Ok(())
    }
}

pub(super) async fn measure(plan: &CompactPlan) -> Result<Vec<Row>> {
    let ColdSet { engine, records, file_bytes, index_bytes } = generate(plan, plan.cold).await?;
    let files = cold_files(engine.dir())?;
    let load = Pipelines::new(Op::CtGet, COMMANDS, 0, records);
    let (mut ours, mut cached, mut disk) = (Side::default(), Side::default(), DiskReads::new());
    for _ in 0..plan.runs {
        let evictor = Evictor::start(&files)?;
        sample(&engine, &load, CONNECTIONS, plan.warm_up).await?;
        ours.push(&sample(&engine, &load, CONNECTIONS, plan.time).await?);
        disk.sample(plan, &files).await?;
        drop(evictor);
        cached.push(&sample(&engine, &load, CONNECTIONS, plan.time).await?);
    }
    engine.stop().await;
    let (objects, readers) = (grouped(records), plan.args.readers);
    let per_object = file_bytes / records as f64;
    let index_kb = index_bytes / records as f64 * 1e6 / 1e3;
    let what = format!("random cold reads, one object a command, {objects} cold objects, {readers} threads");
    let way = if disk.is_direct { "O_DIRECT" } else { "through the page cache" };
    let name = format!("4 KiB reads of the same files, {readers} threads, {way}");
    let in_cache = format!("{what}; files in the page cache");
    Ok(vec![
        Row::once(format!("bytes on disk of a cold object, {objects} objects"), "B", per_object, Goal::AtMost(12.0)),
        Row::once("index in memory of a million cold objects", "KB", index_kb, Goal::AtMost(64.0)),
        Row::new(what, "/s", &ours.samples, Reference::Measured(&name, &disk.samples), Goal::RatioAtLeast(0.5)),
        Row::new(in_cache, "/s", &cached.samples, Reference::None, Goal::None),
    ])
}

/// Hot reads at a steady rate, while cold reads keep the disk busy and without them. The row shows the rate of the cold reads, and what the
/// disk gives: their share says whether the disk is saturated.
pub(super) async fn hot_reads(plan: &CompactPlan) -> Result<Vec<Row>> {
    let objects = plan.many.max(2 * plan.memory_max / 18);
    let ColdSet { engine, records, .. } = generate(plan, objects).await?;
    let files = cold_files(engine.dir())?;
    // More would wait for the threads that read, and for nothing else.
    let connections = 4 * plan.args.readers as usize;
    let cold = Pipelines::new(Op::CtGet, 1, 0, records);
    let hot = Pipelines::new(Op::CtGet, 1, objects - (objects - records) / 2, (objects - records) / 2);
    let (mut with, mut without, mut cold_reads) = (Samples::new(), Samples::new(), Samples::new());
    let mut disk = DiskReads::new();
    for _ in 0..plan.runs {
        without.push(paced(plan, &engine, &hot).await?);
        let _evictor = Evictor::start(&files)?;
        let time = plan.time + 2 * plan.warm_up;
        let (load, latency) = tokio::join!(sample(&engine, &cold, connections, time), async {
            tokio::time::sleep(plan.warm_up).await;
            paced(plan, &engine, &hot).await
        });
        with.push(latency?);
        cold_reads.push(load?.rate());
        disk.sample(plan, &files).await?;
    }
    engine.stop().await;
    let rate = |samples: &Samples| samples.median().unwrap_or_default().value.round();
    let what = format!("hot reads at {}/s while cold ones keep the disk busy: p99", grouped(plan.hot_per_s));
    let row = Row::new(what, "ms", &with, Reference::Measured("without cold reads", &without), Goal::RatioAtMost(1.5));
    let row = row.with_shown("cold_reads_per_s", rate(&cold_reads)).with_shown("disk_reads_per_s", rate(&disk.samples));
    Ok(vec![row])
}

/// The p99 of reads at the plan's rate.
async fn paced(plan: &CompactPlan, engine: &Engine, hot: &std::sync::Arc<Pipelines>) -> Result<Sample> {
    let (port, hot, per_s, time) = (engine.port(), hot.clone(), plan.hot_per_s, plan.time);
    let stats = tokio::task::spawn_blocking(move || generator::paced(port, &hot, per_s, time)).await??;
    let sample = stats.sample(stats.quantile_ms(0.99).unwrap_or_default());
    eprintln!("  hot reads: p50 {:.3} ms, p99 {:.3} ms", sample.p50_ms.unwrap_or_default(), sample.value);
    Ok(sample)
}

/// Makes a set of this number of objects, and waits until no more tables go to files.
async fn generate(plan: &CompactPlan, objects: u64) -> Result<ColdSet> {
    let engine = Engine::start(plan, Log::None).await?;
    let (slots, memory, cache) = (plan.table_slots, plan.memory_max, plan.cache_bytes);
    engine.create(&format!("TABLE_SLOTS {slots} MEMORY_MAX {memory} CACHE_BYTES {cache}")).await?;
    let began = Instant::now();
    engine.fill(Store::Set, 0, objects).await?;
    let filled = began.elapsed();
    while engine.set_number("memory_bytes").await? > plan.memory_max as f64 || is_spilling(&engine).await? {
        ensure!(began.elapsed() < filled + SPILL_LIMIT, "tables do not get to their files");
        tokio::time::sleep(plan.poll / 10).await;
    }
    let (mut records, mut file_bytes, mut index_bytes) = (0.0, 0.0, 0.0);
    for table in engine.tables().await? {
        if let Ok(pages) = number_of(&table, "pages") {
            records += number_of(&table, "records")?;
            file_bytes += pages * 4_096.0;
            index_bytes += number_of(&table, "memory_bytes")?;
        }
    }
    eprintln!("  {objects} objects stored in {:.1} s, {records} of them in files", filled.as_secs_f64());
    ensure!(records > 0.0, "no table has gone to a file");
    Ok(ColdSet { engine, records: records as u64, file_bytes, index_bytes })
}

async fn is_spilling(engine: &Engine) -> Result<bool> {
    let is_cold = |table: &Vec<redis::Value>| number_of(table, "pages").is_ok();
    let tables = engine.tables().await?;
    Ok(tables.iter().filter(|table| !is_cold(table)).any(|table| has_state(table, "spilling")))
}

fn has_state(table: &[redis::Value], state: &str) -> bool {
    table.chunks(2).any(|pair| matches!(pair, [_, redis::Value::BulkString(text)] if text == state.as_bytes()))
}
