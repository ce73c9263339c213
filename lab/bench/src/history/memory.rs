//! Memory of the relay and of the indexer while they catch up. Each runs in its own process, as users run it; the figure is
//! its peak beyond that of an idle one. There are two backlogs, one four times the other: bounded memory does not grow with
//! the backlog.

use super::plan::HistoryPlan;
use super::relay::relayed;
use super::services::{Services, produce};
use crate::load::{Traffic, enqueue_all};
use crate::ours::{Ours, config_of, simple_queue};
use crate::program::Program;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::{CLIENTS, time_limit};
use anyhow::{Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};
use tallystone_indexer::HistoryStore;
use tallystone_kafka::KafkaOptions;
use tallystone_server::store::RedisStore;

const QUEUE: &str = "bench";
/// Messages per call when filling a queue.
const FILL_BATCH: usize = 500;
/// Time for an idle program to reach its final size.
const SETTLE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);
/// The larger backlog divided by the smaller one.
const PART: u64 = 4;

pub(super) async fn measure(plan: &HistoryPlan, services: &Services) -> Result<Vec<Row>> {
    let (large, small) = (plan.sizes.events, plan.sizes.events / PART);
    let dir = tempfile::tempdir()?;
    let relay = Growth {
        idle_mib: relay(services, dir.path(), 0).await?,
        small_mib: relay(services, dir.path(), small).await?,
        large_mib: relay(services, dir.path(), large).await?,
    };
    let indexer = Growth {
        idle_mib: indexer(services, dir.path(), 0).await?,
        small_mib: indexer(services, dir.path(), small).await?,
        large_mib: indexer(services, dir.path(), large).await?,
    };
    Ok(vec![relay.row("server with a relay into Kafka", small, large), indexer.row("indexer", small, large)])
}

/// The peaks.
struct Growth {
    idle_mib: f64,
    small_mib: f64,
    large_mib: f64,
}

impl Growth {
    fn row(&self, who: &str, small: u64, large: u64) -> Row {
        let sample = |mib: f64| {
            let mut samples = Samples::new();
            samples.push(Sample { value: mib - self.idle_mib, ..Sample::default() });
            samples
        };
        let what =
            format!("memory of the {who} while it catches up {} events, beyond that of an idle one", grouped(large));
        let (reference, name) = (sample(self.small_mib), format!("the same with {} events", grouped(small)));
        let reference = Reference::Measured(&name, &reference);
        let goal = Goal::RatioAtMost(1.5);
        Row::new(what, "MiB", &sample(self.large_mib), reference, goal)
            .with("idle_mib", self.idle_mib.round())
            .with("peak_mib", self.large_mib.round())
    }
}

/// The peak of a server whose relay finds `events` events in the outbox.
async fn relay(services: &Services, dir: &Path, events: u64) -> Result<f64> {
    let rig = Rig::start().await?;
    let topic = services.topic(&format!("memory-relay-{events}")).await?;
    let events_max = (2 * events).max(1_000_000);
    // Fills it without a relay.
    let mut config = config_of(&rig);
    config.outbox.events_max = Some(events_max);
    let ours = Ours::start_with(config.clone(), 0).await?;
    ours.create_queue(QUEUE, simple_queue()).await?;
    if events > 0 {
        enqueue_all(ours.clients(QUEUE, CLIENTS, CLIENTS).await?, 0..events, FILL_BATCH, &Traffic::plain()).await?;
    }
    ours.stop().await?;

    let arguments =
        ["server", "--listen", "127.0.0.1:0", "--redis-url", &config.redis.url, "--kafka-brokers", &topic.brokers];
    let events_max = events_max.to_string();
    let environment = [("TALLYSTONE_KAFKA_TOPIC", topic.topic.as_str()), ("TALLYSTONE_OUTBOX_EVENTS_MAX", &events_max)];
    let mut server = Program::start(dir, &arguments, &environment)?;
    let store = RedisStore::connect(config.redis_options()?).await?;
    if events == 0 {
        tokio::time::sleep(SETTLE).await;
    }
    relayed(&store, time_limit(events)).await?;
    let resident = server.resident()?;
    server.stop().await?;
    rig.stop().await;
    Ok(resident.peak_mib)
}

/// The peak of an indexer that finds `events` events in Kafka.
async fn indexer(services: &Services, dir: &Path, events: u64) -> Result<f64> {
    let name = format!("memory-indexer-{events}");
    let topic = services.topic(&name).await?;
    let store = services.indices(&name).await?;
    let up_to_ms = match events {
        0 => None,
        _ => Some(produce(&topic, events).await?.1),
    };
    let mut indexer = start_indexer(dir, &topic, &services.elasticsearch().await?.url(), &name)?;
    let give_up_at = Instant::now() + time_limit(events);
    match up_to_ms {
        None => tokio::time::sleep(SETTLE).await,
        Some(up_to_ms) => {
            // While the indices are being created there is no response.
            let indexed_to_ms = async || store.watermark().await.ok().flatten();
            while indexed_to_ms().await.is_none_or(|indexed_to_ms| indexed_to_ms < up_to_ms) {
                indexer.resident()?;
                if Instant::now() > give_up_at {
                    bail!("{events} events are not indexed in {} s", time_limit(events).as_secs());
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }
    let resident = indexer.resident()?;
    indexer.stop().await?;
    services.drop_indices(&name).await?;
    Ok(resident.peak_mib)
}

fn start_indexer(dir: &Path, topic: &KafkaOptions, elasticsearch: &str, name: &str) -> Result<Program> {
    let arguments = [
        "indexer",
        "--listen",
        "127.0.0.1:0",
        "--kafka-brokers",
        &topic.brokers,
        "--elasticsearch-url",
        elasticsearch,
        "--group",
        name,
    ];
    let environment = [
        ("TALLYSTONE_KAFKA_TOPIC", topic.topic.as_str()),
        ("TALLYSTONE_ELASTICSEARCH_INDEX_PREFIX", name),
        ("TALLYSTONE_ELASTICSEARCH_REPLICAS", "0"),
    ];
    Program::start(dir, &arguments, &environment)
}
