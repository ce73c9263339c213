//! The queue's throughput with a relay; reference: without. 8 clients and batches of 32, enqueue everything, then dequeue
//! and complete everything, as in the figure `simple` of the queue. Kafka runs all the time and shares the machine.

use super::plan::HistoryPlan;
use super::process::{group_cpu_s, librdkafka_cpu_s, process_cpu_s};
use super::services::{Services, kafka_section};
use crate::load::{Traffic, drain, enqueue_all};
use crate::ours::{Ours, config_of, simple_queue};
use crate::report::{Goal, Reference, Row};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{BATCH, CLIENTS, time_limit};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use tallystone_kafka::KafkaOptions;
use tallystone_model::{QueueName, Shard};
use tallystone_server::store::RedisStore;
use tempfile::TempDir;

const QUEUE: &str = "bench";
/// Events of one message: enqueued, leased, completed, collected.
const EVENTS: u64 = 4;
/// How often to check whether everything is relayed.
const POLL: Duration = Duration::from_millis(20);

/// Where the relay's events go.
enum Into {
    Nowhere,
    Kafka(Box<KafkaOptions>),
    Embedded(TempDir),
}

/// The result of one sample.
struct Round {
    /// Messages per second through the queue.
    rate: Sample,
    /// Messages per second of CPU that Kafka did not use.
    rate_without_kafka_cpu: Sample,
    kafka_cores: f64,
    librdkafka_cores: f64,
    own_us_per_message: f64,
    /// Events that the relay had not yet delivered when the last message was completed, and the time until it had.
    behind: u64,
    catch_up_s: f64,
}

/// The samples of one side.
#[derive(Default)]
struct Side {
    rate: Samples,
    rate_without_kafka_cpu: Samples,
    rounds: Vec<Round>,
}

pub(super) async fn measure(plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
    services.kafka().await?;
    let rig = Rig::start().await?;
    let [mut without, mut kafka, mut embedded] = [const { Side::new() }; 3];
    let into_kafka = async |name: String| anyhow::Ok(Into::Kafka(Box::new(services.topic(&name).await?)));
    // The first samples on a new Kafka include Java's warm-up and are not counted.
    for round in 0..2 * plan.warm_up_rounds {
        sample(plan, services, &rig, into_kafka(format!("relay-warm-up-{round}")).await?).await?;
    }
    for run in 0..plan.runs {
        without.push(sample(plan, services, &rig, Into::Nowhere).await?);
        kafka.push(sample(plan, services, &rig, into_kafka(format!("relay-{run}")).await?).await?);
        embedded.push(sample(plan, services, &rig, Into::Embedded(tempfile::tempdir()?)).await?);
    }
    rig.stop().await;
    let row = |what: &str, unit, ours: &Samples, reference: &Samples, goal| {
        let reference = Reference::Measured("without a relay", reference);
        Row::new(what, unit, ours, reference, goal).with("messages", plan.sizes.messages)
    };
    let what = format!("enqueue, dequeue + complete, {CLIENTS} clients, batches of {BATCH}: with");
    Ok(vec![
        kafka.with_cpu(
            row(&format!("{what} a relay into Kafka"), "/s", &kafka.rate, &without.rate, Goal::RatioAtLeast(0.9)),
            &without,
        ),
        row(
            &format!("{what} a relay into Kafka, per second of CPU that is not Kafka's"),
            "/CPU s",
            &kafka.rate_without_kafka_cpu,
            &without.rate_without_kafka_cpu,
            Goal::RatioAtLeast(0.95),
        ),
        embedded.with_cpu(
            row(&format!("{what} a relay into the embedded store"), "/s", &embedded.rate, &without.rate, Goal::None),
            &without,
        ),
    ])
}

async fn sample(plan: &HistoryPlan, services: &Services, rig: &Rig, into: Into) -> Result<Round> {
    rig.flush().await?;
    let messages = plan.sizes.messages;
    let mut config = config_of(rig);
    match &into {
        Into::Nowhere => {}
        Into::Kafka(options) => config.kafka = kafka_section(options),
        Into::Embedded(dir) => config.history.file = Some(dir.path().join("history.db")),
    }
    if !matches!(into, Into::Nowhere) {
        // The default, unless there are more events than that in all.
        config.outbox.events_max = Some(1_000_000.max((EVENTS + 1) * messages));
    }
    let ours = Ours::start_with(config.clone(), 0).await?;
    ours.create_queue(QUEUE, simple_queue()).await?;
    let clients = ours.clients(QUEUE, CLIENTS, CLIENTS).await?;

    let cpu = Cpu::now(services).await?;
    let (clients, mut total) = enqueue_all(clients, 0..messages, BATCH, &Traffic::plain()).await?;
    total.add(&drain(clients, messages, BATCH).await?.1);
    let cpu = Cpu::now(services).await?.since(&cpu);

    let store = RedisStore::connect(config.redis_options()?).await?;
    let (behind, catch_up) = match &into {
        Into::Nowhere => (0, Duration::ZERO),
        _ => catch_up(&store, messages).await?,
    };
    ours.stop().await?;
    let (wall_s, count) = (total.elapsed.as_secs_f64(), messages as f64);
    let cores = std::thread::available_parallelism()?.get() as f64;
    // Each message counts once, although the statistics contain its enqueue and its completion.
    let rate = Sample { value: count / wall_s, ..Sample::default() };
    Ok(Round {
        rate,
        rate_without_kafka_cpu: Sample { value: count / (wall_s * cores - cpu.kafka_s), ..Sample::default() },
        kafka_cores: cpu.kafka_s / wall_s,
        librdkafka_cores: cpu.librdkafka_s / wall_s,
        own_us_per_message: cpu.own_s * 1e6 / count,
        behind,
        catch_up_s: catch_up.as_secs_f64(),
    })
}

/// The number of events that are not relayed yet, and the time until all are.
async fn catch_up(store: &RedisStore, messages: u64) -> Result<(u64, Duration)> {
    let began = Instant::now();
    let behind = waiting(store).await?;
    relayed(store, time_limit(EVENTS * messages)).await?;
    Ok((behind, began.elapsed()))
}

/// Waits until the sink has everything from the outbox.
pub(super) async fn relayed(store: &RedisStore, limit: Duration) -> Result<()> {
    let give_up_at = Instant::now() + limit;
    while waiting(store).await? > 0 {
        if Instant::now() > give_up_at {
            bail!("events are still in the outbox after {} s", limit.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn waiting(store: &RedisStore) -> Result<u64> {
    let shard = Shard::first(&QueueName::parse("queue", QUEUE)?);
    Ok(store.outbox_lengths(&[&shard]).await?[0].unwrap_or(0))
}

/// CPU used so far, or between two readings.
struct Cpu {
    kafka_s: f64,
    own_s: f64,
    librdkafka_s: f64,
}

impl Cpu {
    async fn now(services: &Services) -> Result<Cpu> {
        let kafka_s = group_cpu_s(services.kafka().await?.pid())?;
        Ok(Cpu { kafka_s, own_s: process_cpu_s()?, librdkafka_s: librdkafka_cpu_s()? })
    }

    fn since(&self, before: &Cpu) -> Cpu {
        Cpu {
            kafka_s: self.kafka_s - before.kafka_s,
            own_s: self.own_s - before.own_s,
            librdkafka_s: self.librdkafka_s - before.librdkafka_s,
        }
    }
}

impl Side {
    const fn new() -> Side {
        Side { rate: Samples::new(), rate_without_kafka_cpu: Samples::new(), rounds: Vec::new() }
    }

    fn push(&mut self, round: Round) {
        self.rate.push(round.rate);
        self.rate_without_kafka_cpu.push(round.rate_without_kafka_cpu);
        self.rounds.push(round);
    }

    /// The round with the median rate.
    fn median(&self) -> Option<&Round> {
        let median = self.rate.median()?;
        self.rounds.iter().find(|round| round.rate.value == median.value)
    }

    /// Adds the CPU use to the row.
    fn with_cpu(&self, row: Row, without: &Side) -> Row {
        let (Some(round), Some(other)) = (self.median(), without.median()) else { return row };
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        row.with("kafka_cores", rounded(round.kafka_cores))
            .with("kafka_cores_without_relay", rounded(other.kafka_cores))
            .with("librdkafka_cores", rounded(round.librdkafka_cores))
            .with("own_cpu_us_per_message", rounded(round.own_us_per_message))
            .with("own_cpu_us_per_message_without_relay", rounded(other.own_us_per_message))
            .with("events_not_relayed_at_the_end", round.behind)
            .with("seconds_until_all_relayed", rounded(round.catch_up_s))
    }
}
