//! Memory of the view counter for each pair that it remembers. Its tables grow by an eighth at a time, so a pair takes more
//! memory just after they have grown. The figure is the mean of several sizes over one step of growth.

use super::closed::{Until, Wire, drive};
use super::crowd::Drawn;
use super::frames::Shape;
use super::plan::ViewsPlan;
use super::service::{Service, ViewRigs};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::time::Duration;

/// Few and large requests: only the pairs matter.
const SHAPE: Shape = Shape { batch: 1_000, streams: 2 };
/// Sizes from one step of growth to the next.
const SIZES: u64 = 6;
/// Only the pairs of one sliding window.
const NAMESPACE: &str = "page_views = false\ndaily_visitors = false";
/// Time in which memory that was needed for calls is given back.
const SETTLE: Duration = Duration::from_millis(1_500);
/// The keys of the reference live as long as a pair.
const KEPT_S: u64 = 3_600;

pub(super) async fn measure(plan: &ViewsPlan, rigs: &ViewRigs) -> Result<Vec<Row>> {
    let log = &rigs.log;
    let drawn = Drawn::new(plan.videos);
    let mut service = Service::start(plan, rigs, NAMESPACE).await?;
    let mut connections = service.connections(SHAPE, &drawn)?;
    // The first pairs also bring buffers of calls.
    let before = size(&mut service, &mut connections, log, plan.pairs / 10).await?;
    let (mut resident, mut tables, mut redis) = (Samples::new(), Samples::new(), Samples::new());
    for number in 0..SIZES {
        let wanted = plan.pairs + plan.pairs * number / (8 * SIZES);
        let at = size(&mut service, &mut connections, log, wanted).await?;
        let push = |samples: &mut Samples, value| samples.push(Sample { value, ..Sample::default() });
        push(&mut resident, (at.resident_bytes - before.resident_bytes) / (at.pairs - before.pairs));
        push(&mut tables, at.tables_bytes / at.pairs);
        push(&mut redis, (at.redis_bytes - before.redis_bytes) / (at.pairs - before.pairs));
    }
    drop(connections);
    service.stop().await?;
    let reference = set_nx(log, plan.pairs / 4).await?;
    let what = format!("pair of a sliding window, {} pairs", grouped(plan.pairs));
    let row = |of: &str, samples: &Samples, goal| {
        let mean = samples.values().iter().sum::<f64>() / SIZES as f64;
        let (mut ours, mut theirs) = (Samples::new(), Samples::new());
        ours.push(Sample { value: mean, ..Sample::default() });
        theirs.push(Sample { value: reference, ..Sample::default() });
        Row::new(format!("{of} for each {what}"), "B", &ours, Reference::Measured("SET NX EX", &theirs), goal)
            .with("sizes", samples.values())
    };
    Ok(vec![
        row("tables of the view counter", &tables, Goal::AtMost(18.0)),
        row("resident memory of the view counter", &resident, Goal::AtMost(18.0)),
        row("Redis memory of the log", &redis, Goal::None),
    ])
}

/// What is in memory at one moment.
struct Sizes {
    pairs: f64,
    tables_bytes: f64,
    resident_bytes: f64,
    redis_bytes: f64,
}

/// Posts views until there is this number of pairs, and measures when all are counted.
async fn size<W: Wire>(service: &mut Service, connections: &mut Vec<W>, log: &Rig, pairs: u64) -> Result<Sizes> {
    let posted = service.caught_up().await?.get("accepted_total") as u64;
    let (driven, _) = drive(std::mem::take(connections), Until::Posted(pairs.saturating_sub(posted))).await?;
    *connections = driven;
    let metrics = service.caught_up().await?;
    tokio::time::sleep(SETTLE).await;
    Ok(Sizes {
        pairs: metrics.get("pairs"),
        tables_bytes: metrics.get("pairs_bytes"),
        resident_bytes: service.views.resident()?.now_mib * 1_048_576.0,
        redis_bytes: log.info_number("memory", "used_memory").await?,
    })
}

/// Redis memory for each pair that is a key with an expiry.
async fn set_nx(rig: &Rig, pairs: u64) -> Result<f64> {
    rig.flush().await?;
    let (mut connection, before) = (rig.connect().await?, rig.info_number("memory", "used_memory").await?);
    let numbers: Vec<u64> = (0..pairs).collect();
    for some in numbers.chunks(1_000) {
        let mut pipeline = redis::pipe();
        for number in some {
            let pair = format!("video-{:08}:user-{number:010}", number % 10_000);
            pipeline.cmd("SET").arg(pair).arg(1).arg("NX").arg("EX").arg(KEPT_S).ignore();
        }
        pipeline.query_async::<()>(&mut connection).await?;
    }
    Ok((rig.info_number("memory", "used_memory").await? - before) / pairs as f64)
}
