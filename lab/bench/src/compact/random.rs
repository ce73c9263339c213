//! A counter set whose tables are by hash (`ORDER RANDOM`): its memory, and the speed of single increments and reads.

use super::alternate::alternate;
use super::engine::{Engine, Log};
use super::memory;
use super::plan::{COMMANDS, CompactPlan};
use super::requests::{Op, Store};
use super::speed::{filled, load};
use crate::report::{Goal, Reference, Row, grouped};
use anyhow::Result;

/// The option of such a set.
const OPTIONS: &str = "ORDER RANDOM";

pub(super) async fn measure(plan: &CompactPlan) -> Result<Vec<Row>> {
    let engine = Engine::start(plan, Log::None).await?;
    let mut rows = Vec::new();
    // One table at the threshold, and many at about the same fill.
    for objects in [memory::full(plan), plan.many] {
        let ours = memory::growth(plan, &engine, Store::Set, OPTIONS, objects).await?;
        let (tables, extend) = (engine.set_number("hot_tables").await?, engine.set_number("extend_ids").await?);
        let what = format!("memory of an object, {OPTIONS}, {} objects in {tables} tables", grouped(objects));
        let row = Row::new(what, "B", &ours, Reference::None, Goal::None);
        rows.push(row.with("tables", tables).with("extend_ids", extend));
    }
    engine.stop().await;
    let engine = filled(plan, OPTIONS, &[Store::Keys, Store::Hashes]).await?;
    let loads = [Op::CtIncrBy, Op::Incr, Op::CtGet, Op::HMGet].map(|op| load(plan, op, COMMANDS));
    let [ours, own] = alternate(plan, &engine, [&loads[0], &loads[1]]).await?;
    let what = format!("one increment, {OPTIONS}, {} objects, appendfsync always", grouped(plan.ids));
    rows.push(ours.row(what, "/s", "INCR", &own, Goal::None));
    let [ours, hashes] = alternate(plan, &engine, [&loads[2], &loads[3]]).await?;
    let what = format!("four counters of an object, {OPTIONS}, {} objects, one object a command", grouped(plan.ids));
    rows.push(ours.row(what, "/s", "HMGET", &hashes, Goal::None));
    engine.stop().await;
    Ok(rows)
}
