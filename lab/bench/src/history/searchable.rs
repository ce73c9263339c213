//! From a transition until it can be found. A queue lives at a fixed rate: messages are enqueued, leased, completed and
//! collected. Some of them are probes: they are looked for all the time, as a user would, by SearchMessages and
//! TraceMessage. A transition is found when the search shows the message in its version or a later one and the trace
//! lists it; the time counts from its `at_ms`, which is by the clock of the same machine.

use super::plan::HistoryPlan;
use super::services::{Services, kafka_section};
use crate::load::{Client, Draft, Traffic};
use crate::ours::{OurClient, Ours, config_of, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Samples, Tally};
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
/// One batch of messages goes through its life at a time, so often.
const TICK: Duration = Duration::from_millis(20);
/// One batch in so many has a probe.
const PROBE_EVERY: u64 = 10;
const PROBE: (&str, &str) = ("probe", "yes");
/// The load without probes that comes before: new indices, a cold Java.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long the last transitions may take to be found.
const PATIENCE: Duration = Duration::from_secs(30);
/// How far back to look for what is new.
const LOOK_BACK_MS: i64 = 40_000;

/// Between two looks: what the figure cannot tell apart.
const POLL_ELASTIC: Duration = Duration::from_millis(50);
const POLL_EMBEDDED: Duration = Duration::from_millis(5);

pub(super) async fn measure(plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
    let [mut elastic, mut embedded] = [const { Samples::new() }; 2];
    let mut found = [0, 0];
    for number in 0..plan.runs {
        let tally = through_kafka(plan, services, &format!("searchable-{number}")).await?;
        found[0] = tally.messages;
        elastic.push(tally.sample(tally.quantile_ms(0.99).unwrap_or_default()));
        let tally = through_embedded(plan).await?;
        found[1] = tally.messages;
        embedded.push(tally.sample(tally.quantile_ms(0.99).unwrap_or_default()));
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

async fn through_kafka(plan: &HistoryPlan, services: &Services, name: &str) -> Result<Tally> {
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
    let tally = tokio::select! {
        found = find(plan, &ours, POLL_ELASTIC) => found?,
        ended = indexer => bail!("the indexer has ended: {:?}", ended?),
    };
    stop.cancel();
    ours.stop().await?;
    rig.stop().await;
    services.drop_indices(name).await?;
    Ok(tally)
}

async fn through_embedded(plan: &HistoryPlan) -> Result<Tally> {
    let rig = Rig::start().await?;
    let dir = tempfile::tempdir()?;
    let mut config = config_of(&rig);
    config.history.file = Some(dir.path().join("history.db"));
    let ours = Ours::start_with(config, 0).await?;
    let tally = find(plan, &ours, POLL_EMBEDDED).await?;
    ours.stop().await?;
    rig.stop().await;
    Ok(tally)
}

/// The load, and meanwhile the looking.
async fn find(plan: &HistoryPlan, ours: &Ours, poll: Duration) -> Result<Tally> {
    ours.create_queue(QUEUE, simple_queue()).await?;
    let client = ours.clients(QUEUE, 1, 1).await?.pop().context("a client was asked for")?;
    let per_tick = (plan.sizes.searchable_per_s as f64 * TICK.as_secs_f64() / EVENTS as f64).round() as u64;
    let ticks = |time: Duration| (time.as_secs_f64() / TICK.as_secs_f64()).round() as u64;
    let load =
        Load { per_tick, warm_up: ticks(WARM_UP.min(plan.sizes.searchable / 2)), ticks: ticks(plan.sizes.searchable) };
    let probes = load.ticks.div_ceil(PROBE_EVERY);
    let mut looking = Looking {
        history: HistoryClient::new(ours.channel().await?),
        found: HashMap::new(),
        tally: Tally::new(),
        left: probes * EVENTS,
    };
    let mut load = AbortOnDropHandle::new(tokio::spawn(load.run(client)));
    let mut give_up_at = None;
    while looking.left > 0 {
        let next_at = tokio::time::Instant::now() + poll;
        looking.look().await?;
        if give_up_at.is_none() && load.is_finished() {
            (&mut load).await??;
            give_up_at = Some(Instant::now() + PATIENCE);
        }
        ensure!(
            give_up_at.is_none_or(|at| Instant::now() < at),
            "{} of {} transitions were not found",
            looking.left,
            probes * EVENTS
        );
        tokio::time::sleep_until(next_at).await;
    }
    Ok(looking.tally)
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

/// Looks for the probes.
struct Looking {
    history: HistoryClient<Channel>,
    /// Of each message, up to which version all is found.
    found: HashMap<String, u32>,
    tally: Tally,
    /// Transitions not found yet.
    left: u64,
}

impl Looking {
    async fn look(&mut self) -> Result<()> {
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
                self.tally.note(1, Duration::from_millis((answered_ms - transition.at_ms).max(0) as u64));
            }
        }
        Ok(())
    }
}

/// The answer; `None`: there is none now, as while an index is being made. Then nothing is found yet.
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
