//! From the 202 of a view until a read shows it, and the time of reads, under a steady load. The load is open: batches and reads
//! have a fixed schedule. Some batches have a probe as one more view: the only view of its video. Reads of probes are not
//! among those that are timed. A read that the counters do not answer in time is timed until its refusal, and counted: a probe is
//! then read again.

use super::client::ViewClient;
use super::crowd::{Crowd, Drawn, body};
use super::plan::{BATCH, CONNECTIONS, ViewsPlan};
use super::service::{Service, ViewRigs};
use crate::pace::Pace;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{CallStats, Samples};
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::try_join;

/// How often a probe is read.
const POLL: Duration = Duration::from_millis(10);
/// How long the last probes may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The video of a probe, and when it was accepted.
type Probe = (String, Instant);

pub(super) async fn measure(plan: &ViewsPlan, rigs: &ViewRigs) -> Result<Vec<Row>> {
    let drawn = Drawn::new(plan.videos);
    let (mut lags, mut reads, mut posts) = (Samples::new(), Samples::new(), Samples::new());
    let unanswered = Arc::new(AtomicU64::new(0));
    for _ in 0..plan.runs {
        let [lag, read, post] = sample(plan, rigs, &drawn, &unanswered).await?;
        for (samples, stats) in [(&mut lags, lag), (&mut reads, read), (&mut posts, post)] {
            samples.push(stats.sample(stats.quantile_ms(0.99).unwrap_or_default()));
        }
    }
    let load =
        format!("{} views/s in batches of {BATCH}, {} reads/s", grouped(plan.views_per_s), grouped(plan.reads_per_s));
    let row = |what: &str, samples: &Samples, goal| {
        Row::new(format!("{what}: p99, {load}"), "ms", samples, Reference::None, goal)
    };
    Ok(vec![
        row("202 → a read shows the view", &lags, Goal::Below(2_000.0)).with("poll_ms", POLL.as_millis() as u64),
        row("a read", &reads, Goal::Below(5.0)).with_shown("without a count", unanswered.load(Relaxed) as f64),
        row("a batch → 202", &posts, Goal::None),
    ])
}

/// The times of probes, reads and batches. Adds the reads without a count to `unanswered`.
async fn sample(
    plan: &ViewsPlan,
    rigs: &ViewRigs,
    drawn: &Arc<Drawn>,
    unanswered: &Arc<AtomicU64>,
) -> Result<[CallStats; 3]> {
    let service = Service::start(plan, rigs, "").await?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(ViewClient::connect(&service.authority).await?);
    }
    let (reader, prober) =
        (ViewClient::connect(&service.authority).await?, ViewClient::connect(&service.authority).await?);
    let (accepted, probes) = unbounded_channel();
    let before = service.cpu(&rigs.counters)?;
    let posts = post(plan, clients, Crowd::new(drawn, 0, 1), accepted);
    let (posts, reads, lags) =
        try_join!(posts, read(plan, reader, drawn.clone(), unanswered.clone()), find(prober, probes))?;
    service.caught_up().await?;
    let views = ((plan.lag_warm_up + plan.lag).as_secs_f64() * plan.views_per_s as f64) as u64;
    eprintln!("µs of CPU a view: {}", service.cpu(&rigs.counters)?.since(&before).line(views));
    service.stop().await?;
    Ok([lags, reads, posts])
}

async fn post(
    plan: &ViewsPlan,
    clients: Vec<ViewClient>,
    mut crowd: Crowd,
    accepted: UnboundedSender<Probe>,
) -> Result<CallStats> {
    let pace = Pace::of_batches(plan.views_per_s, BATCH, plan.lag).after(plan.lag_warm_up);
    let (every, warm_up) = (plan.probe_every, pace.warm_up);
    let timed = pace.run(move |number| {
        let client = clients[number as usize % clients.len()].clone();
        let probe = (number >= warm_up && number % every == 0).then(|| format!("probe-{number}"));
        let mut batch = Vec::new();
        crowd.append_batch(BATCH, &mut batch);
        if let Some(video) = &probe {
            batch.truncate(batch.len() - "]}".len());
            batch.extend(format!(",{}]}}", body(video, "0")).bytes());
        }
        let accepted = accepted.clone();
        async move {
            client.post_batch(batch).await?;
            if let Some(video) = probe {
                // After a failure its receiver has gone.
                let _ = accepted.send((video, Instant::now()));
            }
            Ok(())
        }
    });
    Ok(timed.await?.stats)
}

async fn read(
    plan: &ViewsPlan,
    client: ViewClient,
    drawn: Arc<Drawn>,
    unanswered: Arc<AtomicU64>,
) -> Result<CallStats> {
    let pace = Pace::lasting(plan.reads_per_s as f64, plan.lag).after(plan.lag_warm_up);
    let timed = pace.run(move |number| {
        let (client, drawn, unanswered) = (client.clone(), drawn.clone(), unanswered.clone());
        async move {
            if client.view_count(drawn.video(number)).await?.is_none() {
                unanswered.fetch_add(1, Relaxed);
            }
            Ok(())
        }
    });
    Ok(timed.await?.stats)
}

/// Reads probes until each is counted.
async fn find(client: ViewClient, mut probes: UnboundedReceiver<Probe>) -> Result<CallStats> {
    let (mut waiting, mut stats, mut clock) = (Vec::<Probe>::new(), CallStats::new(), tokio::time::interval(POLL));
    let mut are_all_accepted = false;
    while !(are_all_accepted && waiting.is_empty()) {
        clock.tick().await;
        are_all_accepted = loop {
            match probes.try_recv() {
                Ok(probe) => waiting.push(probe),
                Err(error) => break error == tokio::sync::mpsc::error::TryRecvError::Disconnected,
            }
        };
        let counts = futures::future::try_join_all(waiting.iter().map(|(video, _)| client.view_count(video))).await?;
        let mut counts = counts.into_iter();
        waiting.retain(|(_, accepted)| {
            let is_counted = counts.next().flatten().is_some_and(|count| count > 0);
            if is_counted {
                stats.note(1, accepted.elapsed());
            }
            !is_counted
        });
        let is_late = waiting.first().is_some_and(|(_, accepted)| accepted.elapsed() > PATIENCE);
        ensure!(!is_late, "{} probes are not counted", waiting.len());
    }
    Ok(stats)
}
