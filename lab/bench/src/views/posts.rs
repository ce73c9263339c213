//! Views over HTTP/2: how many in a second, and what each costs the view counter until it is counted. Each view is a new pair.

use super::closed::{Until, drive};
use super::crowd::Drawn;
use super::floor::RawAppends;
use super::frames::Shape;
use super::plan::{BATCH, BATCH_STREAMS, CONNECTIONS, STREAMS, ViewsPlan};
use super::service::{Service, ViewRigs};
use crate::report::{Goal, Reference, Row};
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::sync::Arc;

/// The goal: this number of views in a second of 1.2 cores.
const CORES: f64 = 1.2;

pub(super) async fn single(plan: &ViewsPlan, rigs: &ViewRigs) -> Result<Vec<Row>> {
    let shape = Shape { batch: 1, streams: STREAMS };
    rows(plan, rigs, shape, "views, one a request, h2c", 100_000.0).await
}

pub(super) async fn batches(plan: &ViewsPlan, rigs: &ViewRigs) -> Result<Vec<Row>> {
    let shape = Shape { batch: BATCH, streams: BATCH_STREAMS };
    rows(plan, rigs, shape, &format!("views, batches of {BATCH}, h2c"), 1_000_000.0).await
}

async fn rows(plan: &ViewsPlan, rigs: &ViewRigs, shape: Shape, what: &str, goal: f64) -> Result<Vec<Row>> {
    let drawn = Drawn::new(plan.videos);
    let (mut ours, mut floor, mut cores, mut complete) = Default::default();
    for run in 0..plan.runs {
        sample(plan, rigs, shape, &drawn, (&mut ours, &mut cores, &mut complete), goal).await?;
        reference(plan, rigs, shape, &drawn, &mut floor).await?;
        eprintln!("bench: sample {} of {}", run + 1, plan.runs);
    }
    let under_way = format!("{what}, {CONNECTIONS} × {} requests under way", shape.streams);
    let per_s = crate::report::grouped(goal as u64);
    Ok(vec![
        Row::new(under_way, "views/s", &ours, Reference::Measured("raw XADD", &floor), Goal::AtLeast(goal)),
        Row::new(
            format!("{what}: cores of the view counter for {per_s}/s"),
            "cores",
            &cores,
            Reference::None,
            Goal::AtMost(CORES),
        ),
        Row::new(format!("{what}: counted, on this machine"), "views/s", &complete, Reference::None, Goal::None),
    ])
}

/// One sample: views a second until their 202, the cores that the goal's rate needs, views a second until all are counted.
async fn sample(
    plan: &ViewsPlan,
    rigs: &ViewRigs,
    shape: Shape,
    drawn: &Arc<Drawn>,
    (ours, cores, complete): (&mut Samples, &mut Samples, &mut Samples),
    goal: f64,
) -> Result<()> {
    let service = Service::start(plan, rigs, "").await?;
    let connections = service.connections(shape, drawn)?;
    let (connections, _) = drive(connections, Until::Elapsed(plan.warm_up)).await?;
    service.caught_up().await?;
    let (before, began) = (service.cpu(&rigs.counters)?, std::time::Instant::now());
    let (_connections, driven) = drive(connections, Until::Elapsed(plan.sample)).await?;
    service.caught_up().await?;
    let (elapsed, cpu) = (began.elapsed(), service.cpu(&rigs.counters)?.since(&before));
    let views = driven.timed.stats.messages;
    eprintln!("µs of CPU a view: {}; generator {:.2}", cpu.line(views), driven.generator_s * 1e6 / views as f64);
    ours.push(driven.timed.rate());
    cores.push(Sample { value: cpu.views_s() / views as f64 * goal, ..Sample::default() });
    complete.push(Sample { value: views as f64 / elapsed.as_secs_f64(), ..Sample::default() });
    service.stop().await
}

/// As many views under way, appended by clients of Redis.
async fn reference(
    plan: &ViewsPlan,
    ViewRigs { log, .. }: &ViewRigs,
    shape: Shape,
    drawn: &Arc<Drawn>,
    floor: &mut Samples,
) -> Result<()> {
    log.flush().await?;
    let open = |stream| RawAppends::open(log.port(), stream, shape.streams, shape.batch, drawn.log_bytes());
    let connections = (0..CONNECTIONS).map(open).collect::<Result<Vec<_>>>()?;
    let (connections, _) = drive(connections, Until::Elapsed(plan.warm_up)).await?;
    let (_, driven) = drive(connections, Until::Elapsed(plan.sample)).await?;
    floor.push(driven.timed.rate());
    Ok(())
}
