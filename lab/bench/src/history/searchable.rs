//! From a transition until a search finds it. Messages are enqueued, leased, completed and collected at a fixed rate. Some
//! of them are probes: the bench searches for them continuously with SearchMessages and TraceMessage, as a user would. A
//! transition is found when the search returns the message in that version or a later one and the trace lists it. The time
//! counts from its `at_ms`, by the clock of the same machine.

use super::plan::HistoryPlan;
use super::services::{Services, kafka_section};
use crate::load::{Draft, LoadClient, Traffic};
use crate::ours::{OurClient, Ours, config_of, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{CallStats, Samples};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tallystone_indexer::kafka::{IndexerOptions, run};
use tallystone_proto::history::v1::history_client::HistoryClient;
use tallystone_proto::history::v1::{SearchMessagesRequest, TraceMessageRequest};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

const QUEUE: &str = "bench";
/// Events of one message: enqueued, leased, completed, collected.
const EVENTS: u64 = 4;
/// The interval between two batches.
const TICK: Duration = Duration::from_millis(20);
/// One batch in this many contains a probe.
const PROBE_EVERY: u64 = 10;
const PROBE: (&str, &str) = ("probe", "yes");
/// Load without probes before the measurement: the indices are new and Java is cold.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long it may take until the last transitions are found.
const PATIENCE: Duration = Duration::from_secs(30);
/// How far back the search for changes reaches.
const LOOK_BACK_MS: i64 = 40_000;

/// The interval between two searches, which is the resolution of the figure.
const POLL_ELASTIC: Duration = Duration::from_millis(50);
const POLL_EMBEDDED: Duration = Duration::from_millis(5);

pub(super) async fn measure(plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
    let [mut elastic, mut embedded] = [const { Samples::new() }; 2];
    let mut found = [0, 0];
    for number in 0..plan.runs {
        let stats = through_kafka(plan, services, &format!("searchable-{number}")).await?;
        found[0] = stats.messages;
        elastic.push(stats.sample(stats.quantile_ms(0.99).unwrap_or_default()));
        let stats = through_embedded(plan).await?;
        found[1] = stats.messages;
        embedded.push(stats.sample(stats.quantile_ms(0.99).unwrap_or_default()));
    }
    let row = |path: &str, samples: &Samples, goal_ms, poll: Duration, found: u64| {
        let what = format!("transition → found at {}/s, {path}: p99", grouped(plan.sizes.searchable_per_s));
        Row::new(what, "ms", samples, Reference::None, Goal::Below(goal_ms))
            .with("seconds", plan.sizes.searchable.as_secs())
            .with("transitions_looked_for", found)
            .with("poll_ms", poll.as_millis() as u64)
    };
    Ok(vec![
        row("Kafka and Elasticsearch", &elastic, 1_500.0, POLL_ELASTIC, found[0]),
        row("embedded store", &embedded, 200.0, POLL_EMBEDDED, found[1]),
    ])
}

async fn through_kafka(plan: &HistoryPlan, services: &Services, name: &str) -> Result<CallStats> {
    let rig = Rig::start().await?;
    let kafka = services.topic(name).await?;
    let elastic = Arc::new(services.indices(name).await?);
    let mut config = config_of(&rig);
    config.kafka = kafka_section(&kafka);
    config.elasticsearch.url = Some(services.elasticsearch().await?.url());
    config.elasticsearch.index_prefix = name.to_owned();
    config.elasticsearch.replicas = 0;
    let options = IndexerOptions { kafka: kafka.clone(), group: name.to_owned(), ..IndexerOptions::default() };
    let stop = CancellationToken::new();
    let indexer = AbortOnDropHandle::new(tokio::spawn(run(elastic.clone(), options, stop.clone().cancelled_owned())));
    let ours = Ours::start_with(config, 0).await?;
    let stats = tokio::select! {
        found = find(plan, &ours, POLL_ELASTIC) => found?,
        ended = indexer => bail!("the indexer has ended: {:?}", ended?),
    };
    stop.cancel();
    ours.stop().await?;
    rig.stop().await;
    services.drop_indices(name).await?;
    Ok(stats)
}

async fn through_embedded(plan: &HistoryPlan) -> Result<CallStats> {
    let rig = Rig::start().await?;
    let dir = tempfile::tempdir()?;
    let mut config = config_of(&rig);
    config.history.file = Some(dir.path().join("history.db"));
    let ours = Ours::start_with(config, 0).await?;
    let stats = find(plan, &ours, POLL_EMBEDDED).await?;
    ours.stop().await?;
    rig.stop().await;
    Ok(stats)
}

/// Runs the load and searches for its probes meanwhile.
async fn find(plan: &HistoryPlan, ours: &Ours, poll: Duration) -> Result<CallStats> {
    ours.create_queue(QUEUE, simple_queue()).await?;
    let client = ours.clients(QUEUE, 1, 1).await?.pop().context("one client was created")?;
    let per_tick = (plan.sizes.searchable_per_s as f64 * TICK.as_secs_f64() / EVENTS as f64).round() as u64;
    let ticks = |time: Duration| (time.as_secs_f64() / TICK.as_secs_f64()).round() as u64;
    let load =
        Load { per_tick, warm_up: ticks(WARM_UP.min(plan.sizes.searchable / 2)), ticks: ticks(plan.sizes.searchable) };
    let probes = load.ticks.div_ceil(PROBE_EVERY);
    let mut search = ProbeSearch {
        history: HistoryClient::new(ours.channel().await?),
        found: HashMap::new(),
        stats: CallStats::new(),
        left: probes * EVENTS,
    };
    let mut load = AbortOnDropHandle::new(tokio::spawn(load.run(client)));
    let mut give_up_at = None;
    while search.left > 0 {
        let next_at = tokio::time::Instant::now() + poll;
        search.poll().await?;
        if give_up_at.is_none() && load.is_finished() {
            (&mut load).await??;
            give_up_at = Some(Instant::now() + PATIENCE);
        }
        ensure!(
            give_up_at.is_none_or(|at| Instant::now() < at),
            "{} of {} transitions were not found",
            search.left,
            probes * EVENTS
        );
        tokio::time::sleep_until(next_at).await;
    }
    Ok(search.stats)
}

/// Batches of messages at a fixed rate.
struct Load {
    per_tick: u64,
    /// Ticks without probes, then those with.
    warm_up: u64,
    ticks: u64,
}

impl Load {
    async fn run(self, mut client: OurClient) -> Result<()> {
        // First in, first out.
        let mut source = Traffic::new(|number, _| (number as i64, BTreeMap::new())).source(0);
        let mut clock = tokio::time::interval(TICK);
        for tick in 0..self.warm_up + self.ticks {
            clock.tick().await;
            let first = tick * self.per_tick;
            let mut drafts: Vec<Draft> = (first..first + self.per_tick).map(|number| source.draft(number)).collect();
            let is_probed = tick >= self.warm_up && (tick - self.warm_up).is_multiple_of(PROBE_EVERY);
            if let Some(probe) = drafts.first_mut().filter(|_| is_probed) {
                probe.metadata = BTreeMap::from([(PROBE.0.to_owned(), PROBE.1.to_owned())]);
            }
            client.enqueue(drafts).await?;
            let held = client.dequeue(self.per_tick as usize).await?;
            client.complete(held).await?;
        }
        Ok(())
    }
}

/// The search for the probes.
struct ProbeSearch {
    history: HistoryClient<Channel>,
    /// The version up to which everything is found, by message.
    found: HashMap<String, u32>,
    stats: CallStats,
    /// Transitions not found yet.
    left: u64,
}

impl ProbeSearch {
    async fn poll(&mut self) -> Result<()> {
        let request = SearchMessagesRequest {
            queue: QUEUE.to_owned(),
            metadata: [(PROBE.0.to_owned(), PROBE.1.to_owned())].into(),
            changed_from_ms: now_ms() - LOOK_BACK_MS,
            include_gone: true,
            page_size: 1_000,
            ..SearchMessagesRequest::default()
        };
        let Some(found) = there(self.history.search_messages(request).await)? else { return Ok(()) };
        for message in found.messages {
            if message.version > self.found.get(&message.id).copied().unwrap_or(0) {
                self.trace(message.id, message.version).await?;
            }
        }
        Ok(())
    }

    async fn trace(&mut self, id: String, version: u32) -> Result<()> {
        let request = TraceMessageRequest { queue: QUEUE.to_owned(), id: id.clone(), ..TraceMessageRequest::default() };
        let Some(trace) = there(self.history.trace_message(request).await)? else { return Ok(()) };
        let answered_ms = now_ms();
        let found = self.found.entry(id).or_default();
        for transition in trace.transitions {
            if transition.version == *found + 1 && transition.version <= version {
                *found += 1;
                self.left = self.left.saturating_sub(1);
                self.stats.note(1, Duration::from_millis((answered_ms - transition.at_ms).max(0) as u64));
            }
        }
        Ok(())
    }
}

/// The response; `None` while the service is unavailable, for example while an index is created.
fn there<T>(answer: Result<Response<T>, Status>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::Unavailable => Ok(None),
        Err(status) => Err(status.into()),
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64)
}
