//! The time of a restart from a snapshot: from the start of the process until it answers with everything loaded.

use super::engine::{Engine, Log};
use super::plan::CompactPlan;
use super::requests::Store;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{Sample, Samples};
use anyhow::Result;

pub(super) async fn measure(plan: &CompactPlan) -> Result<Vec<Row>> {
    let mut engines = Vec::new();
    for store in [Store::Set, Store::Hashes] {
        let engine = Engine::start(plan, Log::None).await?;
        if store == Store::Set {
            engine.create("").await?;
        }
        engine.fill(store, 0, plan.many).await?;
        engine.command::<()>("SAVE").await?;
        let file_bytes = std::fs::metadata(engine.dir().join("dump.rdb"))?.len();
        engines.push((engine, Samples::new(), file_bytes));
    }
    for _ in 0..plan.runs {
        let mut again = Vec::new();
        for (engine, mut samples, file_bytes) in engines {
            let (engine, took) = engine.restart().await?;
            eprintln!("  restart: {:.2} s, snapshot of {} MiB", took.as_secs_f64(), file_bytes >> 20);
            samples.push(Sample { value: took.as_secs_f64() * 1e3, ..Sample::default() });
            again.push((engine, samples, file_bytes));
        }
        engines = again;
    }
    let [ours, hashes] = <[_; 2]>::try_from(engines).ok().expect("two engines");
    let what = format!("restart from a snapshot of {} objects, no other log", grouped(plan.many));
    let reference = Reference::Measured("a hash an object", &hashes.1);
    // Five times as fast.
    let row = Row::new(what, "ms", &ours.1, reference, Goal::RatioAtMost(0.2));
    ours.0.stop().await;
    hashes.0.stop().await;
    Ok(vec![row.with("ours_file_bytes", ours.2).with("reference_file_bytes", hashes.2)])
}
