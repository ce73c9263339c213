//! Increments and reads of objects in memory, compared with those of the engine's own types.

use super::alternate::alternate;
use super::engine::{Engine, Log};
use super::generator::Pipelines;
use super::plan::{COMMANDS, CompactPlan};
use super::rehash;
use super::requests::{Op, Store};
use crate::report::{Goal, Row, grouped};
use anyhow::Result;
use std::sync::Arc;
use tallystone_local::Fsync;

/// Increments of one command, and objects of one request.
const PACKED: u64 = 64;
const DECIMAL: u64 = 32;
const OBJECTS: u64 = 32;
/// Requests of [`OBJECTS`] that a connection has under way; the reference has as many objects under way.
const REQUESTS: u64 = 16;

/// One increment a command, fsync always and once a second.
pub(super) async fn increment(plan: &CompactPlan) -> Result<Vec<Row>> {
    let engine = filled(plan, "", &[Store::Keys]).await?;
    let (ours, own) = (load(plan, Op::CtIncrBy, COMMANDS), load(plan, Op::Incr, COMMANDS));
    let mut rows = Vec::new();
    for (fsync, name) in [(Fsync::Always, "always"), (Fsync::EverySecond, "everysec")] {
        engine.sync(fsync).await?;
        let [ours, own] = alternate(plan, &engine, [&ours, &own]).await?;
        let what = format!("one increment, {} objects, appendfsync {name}", grouped(plan.ids));
        rows.push(ours.row(what, "/s", "INCR", &own, Goal::RatioAtLeast(0.95)));
    }
    engine.stop().await;
    Ok(rows)
}

/// 64 packed increments a command.
pub(super) async fn packed(plan: &CompactPlan) -> Result<Vec<Row>> {
    batch(plan, Op::CtPIncrBy(PACKED), format!("{PACKED} increments a command, packed"), 8.0).await
}

/// 32 decimal increments a command.
pub(super) async fn decimal(plan: &CompactPlan) -> Result<Vec<Row>> {
    batch(plan, Op::CtMIncrBy(DECIMAL), format!("{DECIMAL} increments a command, decimal"), 2.0).await
}

async fn batch(plan: &CompactPlan, op: Op, what: String, least: f64) -> Result<Vec<Row>> {
    let engine = filled(plan, "", &[Store::Keys]).await?;
    let loads = [&load(plan, op, COMMANDS), &load(plan, Op::Incr, COMMANDS)];
    let [ours, own] = alternate(plan, &engine, loads).await?;
    engine.stop().await;
    let what = format!("{what}, random over {} objects, appendfsync always", grouped(plan.ids));
    Ok(vec![ours.row(what, "/s", "INCR", &own, Goal::RatioAtLeast(least))])
}

/// Four counters of an object.
pub(super) async fn object(plan: &CompactPlan) -> Result<Vec<Row>> {
    let engine = filled(plan, "", &[Store::Keys, Store::Hashes]).await?;
    let loads = [Op::CtGet, Op::HMGet, Op::MGet].map(|op| load(plan, op, COMMANDS));
    let [ours, hashes, keys] = alternate(plan, &engine, [&loads[0], &loads[1], &loads[2]]).await?;
    engine.stop().await;
    let what = || format!("four counters of an object, {} objects, one object a command", grouped(plan.ids));
    Ok(vec![
        ours.row(what(), "/s", "HMGET", &hashes, Goal::RatioAtLeast(2.0)),
        ours.row(what(), "/s", "MGET of 4 keys", &keys, Goal::RatioAtLeast(3.5)),
    ])
}

/// 32 objects in one request; as many objects under way on both sides.
pub(super) async fn objects(plan: &CompactPlan) -> Result<Vec<Row>> {
    let engine = filled(plan, "", &[Store::Keys, Store::Hashes]).await?;
    let in_requests = |op| load(plan, op, REQUESTS);
    let (decimal, packed) = (in_requests(Op::CtMGet(OBJECTS)), in_requests(Op::CtPGet(OBJECTS)));
    let (hashes, keys) = (load(plan, Op::HMGet, REQUESTS * OBJECTS), load(plan, Op::MGet, REQUESTS * OBJECTS));
    let joined = in_requests(Op::MGetOf(OBJECTS));
    let loads = [&decimal, &packed, &hashes, &keys, &joined];
    let [decimal, packed, hashes, keys, joined] = alternate(plan, &engine, loads).await?;
    engine.stop().await;
    let mut rows = Vec::new();
    for (name, ours) in [("CT.MGET", decimal), ("CT.PGET", packed)] {
        let what = || format!("{OBJECTS} objects × 4 counters in one request, {name}");
        rows.push(ours.row(what(), "/s", "HMGET in pipelines", &hashes, Goal::RatioAtLeast(4.0)));
        rows.push(ours.row(what(), "/s", "MGET of 4 keys in pipelines", &keys, Goal::RatioAtLeast(6.0)));
        rows.push(ours.row(what(), "/s", "MGET of 128 keys", &joined, Goal::None));
    }
    Ok(rows)
}

/// An engine whose objects are in a counter set with these options, and in these stores too.
pub(super) async fn filled(plan: &CompactPlan, options: &str, stores: &[Store]) -> Result<Engine> {
    let engine = Engine::start(plan, Log::Synced(Fsync::Always)).await?;
    // The fill needs no fsync for each pipeline.
    engine.sync(Fsync::EverySecond).await?;
    engine.create(options).await?;
    for store in [&[Store::Set], stores].concat() {
        engine.fill(store, 0, plan.ids).await?;
    }
    rehash::ended(&engine).await?;
    engine.sync(Fsync::Always).await?;
    Ok(engine)
}

pub(super) fn load(plan: &CompactPlan, op: Op, commands: u64) -> Arc<Pipelines> {
    Pipelines::new(op, commands, 0, plan.ids)
}
