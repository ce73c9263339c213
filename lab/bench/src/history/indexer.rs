//! From Kafka into Elasticsearch by the indexer. Reference: the same requests, prepared and sent directly, as many at once,
//! to the same server, into indices with the same templates.

use super::plan::HistoryPlan;
use super::process::group_cpu_s;
use super::services::{Services, produce};
use super::straight;
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{Sample, Samples};
use crate::shape::time_limit;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tallystone_indexer::Elastic;
use tallystone_indexer::kafka::{IndexerOptions, run};
use tallystone_indexer::store::*;
use tallystone_model::{Loss, Recorded};
use tallystone_proto::history::v1::{Activity, IndexedMessage};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

const STRAIGHT: &str = "indexer-straight";

pub(super) async fn measure(plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
    let options = IndexerOptions { kafka: services.topic("indexer").await?, ..IndexerOptions::default() };
    services.elasticsearch().await?;
    let (events, _) = produce(&options.kafka, plan.sizes.events).await?;
    let straight = Arc::new(services.indices(STRAIGHT).await?);
    straight.prepare().await?;
    let transport = services.transport().await?;

    // The first round warms up the server and captures the requests that the indexer sends.
    let requests = Arc::new(Mutex::new(Vec::new()));
    index(services, &options, "indexer-warm-up", events, Some((straight, requests.clone()))).await?;
    let requests = std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner));
    let bytes: usize = requests.iter().map(Bytes::len).sum();

    let [mut indexed, mut sent] = [const { Samples::new() }; 2];
    let (mut joined, mut cores) = (Vec::new(), Vec::new());
    for number in 0..plan.warm_up_rounds + plan.runs {
        let round = index(services, &options, &format!("indexer-{number}"), events, None).await?;
        let elapsed = straight::send(&transport, &requests, options.batches_max).await?;
        services.drop_indices(STRAIGHT).await?;
        // While Java compiles, the first side is slow: these rounds do not count.
        if number >= plan.warm_up_rounds {
            indexed.push(per_second(events, round.elapsed));
            joined.push(rounded(round.joined.as_secs_f64()));
            cores.push(rounded(round.kafka_cores));
            sent.push(per_second(events, elapsed));
        }
    }
    let what = format!("{} events from Kafka into Elasticsearch", grouped(events));
    let reference = Reference::Measured("the same _bulk requests sent straight", &sent);
    let row = Row::new(what, "/s", &indexed, reference, Goal::RatioAtLeast(0.8));
    Ok(vec![
        row.with("requests", requests.len())
            .with("request_bytes", bytes)
            .with("requests_at_once", options.batches_max)
            .with("seconds_to_the_first_batch", joined)
            .with("kafka_cores", cores),
    ])
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn per_second(events: u64, elapsed: Duration) -> Sample {
    Sample { value: events as f64 / elapsed.as_secs_f64(), ..Sample::default() }
}

/// The result of one round.
struct Round {
    /// Until the group had its partitions and the first batch arrived.
    joined: Duration,
    /// From then until the last event was acknowledged.
    elapsed: Duration,
    kafka_cores: f64,
}

/// A store that builds the requests, and the list that collects them.
type RequestCapture = (Arc<Elastic>, Arc<Mutex<Vec<Bytes>>>);

/// Indexes all events with a new group into new indices, which are then removed.
async fn index(
    services: &Services,
    options: &IndexerOptions,
    prefix: &str,
    events: u64,
    capture: Option<RequestCapture>,
) -> Result<Round> {
    let elastic = services.indices(prefix).await?;
    elastic.prepare().await?;
    let watched = Arc::new(Watched { elastic, capture, events, seen: Mutex::default(), all: Notify::new() });
    let options = IndexerOptions { group: prefix.to_owned(), ..options.clone() };
    let stop = CancellationToken::new();
    let kafka = services.kafka().await?.pid();
    let (began, cpu_s) = (Instant::now(), group_cpu_s(kafka)?);
    let mut running =
        AbortOnDropHandle::new(tokio::spawn(run(watched.clone(), options, stop.clone().cancelled_owned())));
    let limit = time_limit(events);
    tokio::select! {
        () = watched.all.notified() => {}
        ended = &mut running => bail!("the indexer has ended: {:?}", ended?),
        () = tokio::time::sleep(limit) => bail!("not indexed after {} s", limit.as_secs()),
    }
    let (wall_s, cpu_s) = (began.elapsed().as_secs_f64(), group_cpu_s(kafka)? - cpu_s);
    stop.cancel();
    running.await??;
    let seen = watched.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(seen.rejected == 0, "{} events were rejected", seen.rejected);
    let first = seen.first.context("nothing was indexed")?;
    services.drop_indices(prefix).await?;
    let elapsed = seen.last.context("nothing was indexed")?.duration_since(first);
    Ok(Round { joined: first.duration_since(began), elapsed, kafka_cores: cpu_s / wall_s })
}

/// Elasticsearch, and when it received which events.
struct Watched {
    elastic: Elastic,
    capture: Option<RequestCapture>,
    /// The number of events to wait for.
    events: u64,
    seen: Mutex<Seen>,
    all: Notify,
}

#[derive(Clone, Default)]
struct Seen {
    first: Option<Instant>,
    last: Option<Instant>,
    events: u64,
    rejected: usize,
}

impl HistoryStore for Watched {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen().first.get_or_insert_with(Instant::now);
        if let Some((straight, requests)) = &self.capture {
            let made = straight.bulk_requests(events).await?;
            requests.lock().unwrap_or_else(PoisonError::into_inner).extend(made);
        }
        let rejected = self.elastic.record(events).await?;
        let mut seen = seen();
        seen.events += events.len() as u64;
        seen.rejected += rejected.len();
        seen.last = Some(Instant::now());
        if seen.events >= self.events {
            self.all.notify_one();
        }
        Ok(rejected)
    }

    async fn record_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        self.elastic.record_losses(losses).await
    }

    async fn losses(&self, queues: &Queues) -> Result<Vec<Loss>, HistoryError> {
        self.elastic.losses(queues).await
    }

    async fn settle_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        self.elastic.settle_losses(losses).await
    }

    async fn repair(&self, messages: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
        self.elastic.repair(messages).await
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        self.elastic.advance(source, up_to_ms).await
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        self.elastic.watermark().await
    }

    async fn trace(&self, query: &TraceQuery) -> Result<Trace, HistoryError> {
        self.elastic.trace(query).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        self.elastic.search(query).await
    }

    async fn stats(&self, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        self.elastic.stats(query).await
    }

    async fn depth(&self, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        self.elastic.depth(query).await
    }

    async fn depth_by(&self, query: &DepthQuery, grouping: &Grouping) -> Result<Vec<(String, [u64; 6])>, HistoryError> {
        self.elastic.depth_by(query, grouping).await
    }

    async fn prune(&self, now_ms: u64) -> Result<bool, HistoryError> {
        self.elastic.prune(now_ms).await
    }
}
