//! Memory of an object with four counters, as growth of the engine's `used_memory`.

use super::engine::{Engine, Log};
use super::plan::CompactPlan;
use super::requests::Store;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{Sample, Samples};
use anyhow::Result;

/// The share of used slots at which a table ends, by default.
const FILL_PERCENT: u64 = 90;
/// The greatest that can be set.
const FILL_MAX: u64 = 95;

pub(super) async fn measure(plan: &CompactPlan) -> Result<Vec<Row>> {
    let engine = Engine::start(plan, Log::None).await?;
    let slots = plan.table_slots;
    // One table at the threshold; many objects; and one table that has just begun.
    let full = full(plan);
    let mut rows = Vec::new();
    for objects in [full, plan.many] {
        let ours = bytes(plan, &engine, Store::Set, objects).await?;
        let (aux, extend) = (engine.set_number("aux_ids").await?, engine.set_number("extend_ids").await?);
        let keys = bytes(plan, &engine, Store::Keys, objects).await?;
        let hashes = bytes(plan, &engine, Store::Hashes, objects).await?;
        let packs = bytes(plan, &engine, Store::Packs, objects).await?;
        let tight = bytes(plan, &engine, Store::TightPacks, objects).await?;
        let mut row = |what: &str, reference: Reference<'_>, goal: Goal| {
            let tables = if objects == full { " (a table at its threshold)" } else { "" };
            let what = format!("memory of an object, {} objects{tables}{what}", grouped(objects));
            let row = Row::new(what, "B", &ours, reference, goal);
            rows.push(row.with("aux_ids", aux).with("extend_ids", extend));
        };
        row("", Reference::None, Goal::AtMost(20.0));
        row("", Reference::Measured("four keys", &keys), Goal::RatioAtMost(0.07));
        row("", Reference::Measured("one hash", &hashes), Goal::None);
        row("", Reference::Measured("100 packed in a hash, by id", &packs), Goal::RatioAtMost(0.7));
        row("", Reference::Measured("100 packed in a hash, by remainder", &tight), Goal::RatioAtMost(0.7));
    }
    // Rising ids of a million objects span less than 2^32 here.
    let objects = slots * FILL_MAX / 100;
    let ours = growth(plan, &engine, Store::Set, &format!("KEY_BYTES 4 FILL_PERCENT {FILL_MAX}"), objects).await?;
    let tight = bytes(plan, &engine, Store::TightPacks, objects).await?;
    let what = format!("memory of an object, {} objects, KEY_BYTES 4 FILL_PERCENT {FILL_MAX}", grouped(objects));
    let reference = Reference::Measured("100 packed in a hash, by remainder", &tight);
    rows.push(Row::new(what, "B", &ours, reference, Goal::None));
    let begun = full + slots / 18;
    let what = format!("memory of an object, {} objects (the second table has just begun)", grouped(begun));
    let ours = bytes(plan, &engine, Store::Set, begun).await?;
    rows.push(Row::new(what, "B", &ours, Reference::None, Goal::None));
    engine.stop().await;
    Ok(rows)
}

/// Objects that one table takes before the next one begins.
pub(super) fn full(plan: &CompactPlan) -> u64 {
    plan.table_slots * FILL_PERCENT / 100
}

/// One sample is enough: bytes do not vary as times do.
async fn bytes(plan: &CompactPlan, engine: &Engine, store: Store, objects: u64) -> Result<Samples> {
    growth(plan, engine, store, "", objects).await
}

/// Memory of one object: the growth of memory, divided by this number of objects.
pub(super) async fn growth(
    plan: &CompactPlan,
    engine: &Engine,
    store: Store,
    options: &str,
    objects: u64,
) -> Result<Samples> {
    engine.flush().await?;
    let before = engine.settled_memory(plan.poll).await?;
    if store == Store::Set {
        engine.create(format!("TABLE_SLOTS {} {options}", plan.table_slots).trim_end()).await?;
    }
    engine.fill(store, 0, objects).await?;
    let value = (engine.settled_memory(plan.poll).await? - before) / objects as f64;
    eprintln!("  {store:?}, {} objects: {value:.2} B each", grouped(objects));
    let mut samples = Samples::new();
    samples.push(Sample { value, ..Sample::default() });
    Ok(samples)
}
