//! Increments while a snapshot is written, and the pages that the engine has to copy meanwhile.

use super::alternate::{Side, sample};
use super::engine::{Engine, Log};
use super::generator::{Driven, Pipelines};
use super::plan::{COMMANDS, CONNECTIONS, CompactPlan};
use super::requests::{Op, Store};
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{Sample, Samples};
use anyhow::{Result, ensure};
use std::sync::Arc;
use tallystone_local::Fsync;

/// One kind of store under its load.
struct Kind {
    engine: Engine,
    load: Arc<Pipelines>,
    without: Side,
    during: Side,
    copied: Samples,
    /// How long the engine's thread needed for each fork, in microseconds.
    forks: Samples,
}

pub(super) async fn measure(plan: &CompactPlan) -> Result<Vec<Row>> {
    let mut kinds = Vec::new();
    for (store, op) in [(Store::Set, Op::CtIncrBy), (Store::Keys, Op::Incr)] {
        let engine = Engine::start(plan, Log::Synced(Fsync::EverySecond)).await?;
        if store == Store::Set {
            engine.create("").await?;
        }
        engine.fill(store, 0, plan.many).await?;
        let load = Pipelines::new(op, COMMANDS, 0, plan.many);
        let (without, during, copied, forks) = Default::default();
        kinds.push(Kind { engine, load, without, during, copied, forks });
    }
    for _ in 0..plan.runs {
        for kind in &mut kinds {
            sample(&kind.engine, &kind.load, CONNECTIONS, plan.warm_up).await?;
            kind.without.push(&sample(&kind.engine, &kind.load, CONNECTIONS, plan.time).await?);
            kind.sample_during(plan).await?;
        }
    }
    let [ours, keys] = <[Kind; 2]>::try_from(kinds).ok().expect("two kinds");
    let many = grouped(plan.many);
    let what = format!("one increment while a snapshot of {many} objects is written, appendfsync everysec");
    let same = |kind: &str| format!("{kind} while a snapshot is written: share of the rate without");
    let fork = |kind: &Kind| kind.forks.median().unwrap_or_default().value;
    let rows = vec![
        ours.during
            .row(what, "/s", "INCR, the same", &keys.during, Goal::RatioAtLeast(0.9))
            .with_shown("ours_latest_fork_usec", fork(&ours))
            .with_shown("reference_latest_fork_usec", fork(&keys)),
        ours.during.row(same("ours"), "/s", "without a snapshot", &ours.without, Goal::None),
        keys.during.row(same("INCR"), "/s", "without a snapshot", &keys.without, Goal::None),
        Row::new(
            "memory copied while it is written".to_owned(),
            "MiB",
            &ours.copied,
            Reference::Measured("four keys", &keys.copied),
            Goal::None,
        ),
    ];
    ours.engine.stop().await;
    keys.engine.stop().await;
    Ok(rows)
}

impl Kind {
    /// One sample of all that the load did while a snapshot was written. First the engine copies many pages for each write, later few: a
    /// part of it would say little, and a long snapshot has more parts than a short one.
    async fn sample_during(&mut self, plan: &CompactPlan) -> Result<()> {
        let engine = &self.engine;
        engine.command::<String>("BGSAVE").await?;
        let mut whole: Option<Driven> = None;
        let mut parts = 0;
        loop {
            let driven = sample(engine, &self.load, CONNECTIONS, plan.time).await?;
            let is_within = engine.info("persistence", "rdb_bgsave_in_progress").await? == "1";
            // A snapshot that ends within its first part: that part has to do.
            if is_within || parts == 0 {
                parts += 1;
                match &mut whole {
                    Some(whole) => whole.add(&driven),
                    None => whole = Some(driven),
                }
            }
            if !is_within {
                break;
            }
        }
        if let Some(whole) = &whole {
            self.during.push(whole);
        }
        ensure!(engine.info("persistence", "rdb_last_bgsave_status").await? == "ok", "the snapshot failed");
        let value = engine.info_number("persistence", "rdb_last_cow_size").await? / f64::from(1 << 20);
        let rate = |side: &Side| side.samples.median().unwrap_or_default().value;
        let (without, during) = (rate(&self.without), rate(&self.during));
        let fork_us = engine.info_number("stats", "latest_fork_usec").await?;
        eprintln!(
            "  {without:.0}/s, during a snapshot {during:.0}/s ({parts} parts), {value:.0} MiB copied, fork {fork_us:.0} µs"
        );
        self.copied.push(Sample { value, ..Sample::default() });
        self.forks.push(Sample { value: fork_us, ..Sample::default() });
        Ok(())
    }
}
