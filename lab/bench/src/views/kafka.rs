//! Views of one viral video with the log in Kafka, from their posts until the count has all of them. Each view is a new pair. All
//! of them are in one partition, so one thread deduplicates them.

use super::client::ViewClient;
use super::closed::{Until, drive};
use super::crowd::{Crowd, Drawn};
use super::frames::Shape;
use super::plan::{BATCH, BATCH_STREAMS, CONNECTIONS, ViewsPlan};
use super::service::{LogPlace, Service, ViewRigs};
use crate::report::{Goal, Reference, Row, grouped};
use crate::sample::{CallStats, Sample, Samples, TimedStats};
use anyhow::{Context, Result, ensure};
use rdkafka::message::OwnedHeaders;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_kafka::{KafkaOptions, Producer, Record, Topic, TopicSpec};
use tallystone_local::{PrivateKafka, PrivateKafkaOptions};
use tokio::task::JoinSet;

/// Views a second until they are counted.
const GOAL: f64 = 300_000.0;
/// How often the count is read after the last post, and how long it may take.
const POLL: Duration = Duration::from_millis(10);
const COUNTED_LIMIT: Duration = Duration::from_secs(300);
/// As the view counter has it.
const LINGER_MS: &str = "1";
const HEAP_MIB: u32 = 512;

/// When one broker acknowledges.
#[derive(Clone, Copy)]
struct Durability {
    name: &'static str,
    properties: &'static [(&'static str, &'static str)],
}

/// As Kafka is configured unless an operator says otherwise: its copies are on other brokers; and as one broker alone survives a
/// power cut.
const DURABILITIES: [Durability; 2] = [
    Durability { name: "acks=all of one broker, not flushed to its disk", properties: &[] },
    Durability { name: "acks=all of one broker, after fsync", properties: &[("log.flush.interval.messages", "1")] },
];

pub(super) async fn measure(plan: &ViewsPlan, rigs: &ViewRigs) -> Result<Vec<Row>> {
    let drawn = Drawn::new(1);
    let mut rows = Vec::new();
    for durability in DURABILITIES {
        let dir = tempfile::tempdir()?;
        let properties = durability.properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options = PrivateKafkaOptions { heap_mib: HEAP_MIB, ..PrivateKafkaOptions::new(dir.path().join("kafka")) };
        let options = PrivateKafkaOptions { properties: properties.collect(), ..options };
        let kafka = PrivateKafka::start(options).await.context("cannot start a Kafka for the bench")?;
        eprintln!("durability: {}", durability.name);
        let measured = of(plan, rigs, &kafka, &drawn, durability).await;
        kafka.stop().await;
        rows.extend(measured?);
    }
    Ok(rows)
}

async fn of(
    plan: &ViewsPlan,
    rigs: &ViewRigs,
    kafka: &PrivateKafka,
    drawn: &Arc<Drawn>,
    durability: Durability,
) -> Result<Vec<Row>> {
    let [mut counted, mut accepted, mut cores, mut floor] = [const { Samples::new() }; 4];
    for run in 0..plan.runs {
        let log = LogPlace {
            name: "kafka",
            pid: kafka.pid(),
            arguments: vec![
                "--kafka-brokers".to_owned(),
                kafka.address(),
                "--topic".to_owned(),
                format!("views-{run}"),
            ],
        };
        let service = Service::start_on(plan, &rigs.counters, log, "").await?;
        sample(plan, rigs, &service, drawn, (&mut counted, &mut accepted, &mut cores)).await?;
        service.stop().await?;
        floor.push(reference(plan, kafka, run, drawn).await?);
        eprintln!("bench: sample {} of {}", run + 1, plan.runs);
    }
    let what = |what: &str| format!("views of one video in Kafka, batches of {BATCH}, {}: {what}", durability.name);
    let cores_for = format!("cores of the view counter for {}/s", grouped(GOAL as u64));
    let raw = Reference::Measured("raw producer", &floor);
    let rows = [
        Row::new(what("counted"), "views/s", &counted, Reference::None, Goal::AtLeast(GOAL)),
        Row::new(what("202"), "views/s", &accepted, raw, Goal::None),
        Row::new(what(&cores_for), "cores", &cores, Reference::None, Goal::None),
    ];
    Ok(rows.into_iter().map(|row| row.with("durability", durability.name)).collect())
}

/// One sample: views a second until the count has them, until their 202, and the cores that the goal's rate needs.
async fn sample(
    plan: &ViewsPlan,
    rigs: &ViewRigs,
    service: &Service,
    drawn: &Arc<Drawn>,
    (counted, accepted, cores): (&mut Samples, &mut Samples, &mut Samples),
) -> Result<()> {
    let client = ViewClient::connect(&service.authority).await?;
    let connections = service.connections(Shape { batch: BATCH, streams: BATCH_STREAMS }, drawn)?;
    let (connections, warm_up) = drive(connections, Until::Elapsed(plan.warm_up)).await?;
    let before = warm_up.timed.stats.messages;
    until_counted(&client, drawn.video(0), before).await?;
    let (cpu, began) = (service.cpu(&rigs.counters)?, Instant::now());
    let (_connections, driven) = drive(connections, Until::Elapsed(plan.sample)).await?;
    let views = driven.timed.stats.messages;
    until_counted(&client, drawn.video(0), before + views).await?;
    let (elapsed, cpu) = (began.elapsed(), service.cpu(&rigs.counters)?.since(&cpu));
    eprintln!("µs of CPU a view: {}; generator {:.2}", cpu.line(views), driven.generator_s * 1e6 / views as f64);
    counted.push(Sample { value: views as f64 / elapsed.as_secs_f64(), ..Sample::default() });
    accepted.push(driven.timed.rate());
    cores.push(Sample { value: cpu.views_s() / views as f64 * GOAL, ..Sample::default() });
    Ok(())
}

/// Waits until the service says that the video has so many views.
async fn until_counted(client: &ViewClient, video: &str, views: u64) -> Result<()> {
    let give_up_at = Instant::now() + COUNTED_LIMIT;
    loop {
        let count = client.view_count(video).await?.unwrap_or(0);
        ensure!(count <= views, "{views} views were posted, {count} are counted");
        if count == views {
            return Ok(());
        }
        ensure!(Instant::now() < give_up_at, "{views} views were posted, only {count} are counted");
        tokio::time::sleep(POLL).await;
    }
}

/// As many views under way, as records of a producer with the same options, in one partition of another topic.
async fn reference(plan: &ViewsPlan, kafka: &PrivateKafka, run: u32, drawn: &Arc<Drawn>) -> Result<Sample> {
    let properties = [("linger.ms".to_owned(), LINGER_MS.to_owned())].into();
    let options = KafkaOptions { brokers: kafka.address(), properties, ..KafkaOptions::default() };
    let spec = TopicSpec {
        name: format!("raw-{run}"),
        partitions: 1,
        retention_ms: None,
        message_bytes_max: None,
        has_append_time: true,
        is_compacted: false,
    };
    let topic = Topic::new(&options, spec)?;
    topic.ensure().await?;
    let (producer, topic) = (Arc::new(Producer::new(&options)?), topic.name().to_owned());
    // Text of views, because the producer compresses.
    let mut value = Vec::new();
    Crowd::new(drawn, 0, 1).append_batch(BATCH, &mut value);
    value.truncate(BATCH * drawn.log_bytes());
    // The first delivery waits until the producer is connected.
    write(&producer, &topic, &value).await?;
    let (value, sample, began) = (Arc::new(value), plan.sample, Instant::now());
    let mut under_way = JoinSet::new();
    for _ in 0..CONNECTIONS * BATCH_STREAMS {
        let (producer, topic, value) = (producer.clone(), topic.clone(), value.clone());
        under_way.spawn(async move {
            let mut stats = CallStats::new();
            while began.elapsed() < sample {
                let sent = Instant::now();
                write(&producer, &topic, &value).await?;
                stats.note(BATCH, sent.elapsed());
            }
            anyhow::Ok(stats)
        });
    }
    let mut all = CallStats::new();
    for stats in under_way.join_all().await {
        all.add(&stats?);
    }
    Ok(TimedStats::since(began, all).rate())
}

/// Writes a record, and returns when it is acknowledged.
async fn write(producer: &Producer, topic: &str, value: &[u8]) -> Result<()> {
    let (delivery, value, headers) = (producer.begin()?, Some(value), OwnedHeaders::new());
    delivery.send(Record { topic, partition: Some(0), key: None, value, headers, at_ms: None }).await?;
    Ok(delivery.acknowledged().await?)
}
