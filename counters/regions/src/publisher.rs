//! Publishes the checkpoints of counters that need attention. The script that commits a checkpoint also puts its counter into the
//! set of those, so none is forgotten, whatever process dies; and a counter leaves the set only after Kafka has its record.

use crate::catch_up::{CatchUp, behind_ms_max};
use crate::config::RegionOptions;
use crate::leader::{Led, Term};
use crate::metrics::{self, Failing};
use crate::pace::{PAUSE, Pace};
use crate::record::{Heartbeat, key_of, value_of};
use crate::sent::Sent;
use futures::future::join_all;
use rdkafka::message::OwnedHeaders;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_counters::namespace::SHARDS;
use tallystone_counters::redis::RedisNamespace;
use tallystone_counters::{Checkpoint, Checkpoints, CounterName, NamespaceName, Refusal, RegionName};
use tallystone_kafka::{KafkaConfigError, Producer, Record, Topic, TopicSpec};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// Counters of one shard that are published together.
const BATCH: usize = 500;
/// The pause after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A counter that lacks something needs attention again after this time, or when its own rollup is late.
const AGAIN_MS: u64 = 1_000;
/// One whose checkpoint cannot be read needs attention again after this time.
const UNREADABLE_AGAIN_MS: u64 = 60_000;
/// Between two heartbeats.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// Publishes for as long as this process has the lease.
pub(crate) struct Publisher {
    region: RegionName,
    topic: Topic,
    is_ensured: bool,
    producer: Producer,
    led: watch::Receiver<Led>,
    sent: Mutex<Sent>,
    catch_up: CatchUp,
    /// The namespaces that it has searched, which are those with a series of their counters that need attention.
    searched: BTreeMap<NamespaceName, Pace>,
    failing: Failing,
}

impl Publisher {
    pub(crate) fn new(options: &RegionOptions, led: watch::Receiver<Led>) -> Result<Publisher, KafkaConfigError> {
        let spec = TopicSpec {
            name: options.kafka.topic.clone(),
            partitions: options.kafka.partitions,
            retention_ms: None,
            message_bytes_max: None,
            has_append_time: false,
            is_compacted: true,
        };
        Ok(Publisher {
            region: options.region.clone(),
            topic: Topic::new(&options.kafka, spec)?,
            is_ensured: false,
            producer: Producer::new(&options.kafka)?,
            led,
            sent: Mutex::default(),
            catch_up: CatchUp::default(),
            searched: BTreeMap::new(),
            failing: Failing::to("publish"),
        })
    }

    /// Runs until it is dropped, or nothing leads any more.
    pub(crate) async fn run(mut self) {
        let (mut heartbeat_at, mut failing_since) = (Instant::now(), None);
        loop {
            if self.led.borrow().is_none() {
                // Another process reports it.
                failing_since = None;
                metrics::failing(Duration::ZERO);
                std::mem::take(&mut self.searched).keys().for_each(|name| metrics::behind(name, 0));
                self.failing.show(BTreeSet::new());
            }
            if self.led.wait_for(Option::is_some).await.is_err() {
                return;
            }
            let Some(term) = self.led.borrow_and_update().clone() else { continue };
            let published = self.publish_all(&term).await;
            let mut failure = published.as_ref().err().cloned();
            // Other regions take a region without heartbeats for one that publishes nothing: a namespace that fails is not that.
            if let Some(store) = term.namespaces.values().next()
                && Instant::now() >= heartbeat_at
                && self.is_ensured
            {
                heartbeat_at = Instant::now() + HEARTBEAT_EVERY;
                failure = self.send_heartbeat(store).await.err().or(failure);
            }
            match &failure {
                None => failing_since = None,
                Some(why) => {
                    if failing_since.is_none() {
                        tracing::warn!(why, "cannot publish to other regions; trying until it succeeds");
                    }
                    failing_since.get_or_insert_with(Instant::now);
                }
            }
            metrics::failing(failing_since.map_or(Duration::ZERO, |since| since.elapsed()));
            match published {
                Ok(due_at) if failure.is_none() => {
                    let next_at = due_at.min(heartbeat_at.max(Instant::now() + PAUSE));
                    tokio::select! {
                        () = sleep_until(next_at) => {}
                        changed = self.led.changed() => {
                            if changed.is_err() {
                                return;
                            }
                        }
                    }
                }
                _ => sleep(PAUSE_AFTER_FAILURE).await,
            }
        }
    }

    /// Publishes a batch of each namespace that is due. One that fails does not keep the others from it. Returns when one is due
    /// again.
    async fn publish_all(&mut self, term: &Term) -> Result<Instant, String> {
        if !self.is_ensured {
            self.topic.ensure().await.map_err(|error| error.to_string())?;
            self.is_ensured = true;
        }
        self.sent().begin(&term.name, Instant::now());
        let (mut failed, mut failure) = (BTreeSet::new(), None);
        for (name, store) in &term.namespaces {
            if self.led.has_changed().unwrap_or(true) {
                return Ok(Instant::now());
            }
            if self.searched.get(name).is_some_and(|pace| !pace.is_due(Instant::now())) {
                continue;
            }
            match self.publish(store).await {
                Ok(found) => self.searched.entry(name.clone()).or_default().note(found, BATCH, Instant::now()),
                Err(why) => {
                    failed.insert(name.clone());
                    failure = Some(format!("'{name}': {why}"));
                }
            }
            if let Ok(behind) = store.num_behind().await {
                metrics::behind(name, behind);
                self.searched.entry(name.clone()).or_default();
            }
        }
        self.searched.retain(|name, _| {
            let is_searched = term.namespaces.contains_key(name);
            if !is_searched {
                metrics::behind(name, 0);
            }
            is_searched
        });
        self.failing.show(failed);
        let due_at = self.searched.values().map(Pace::due_at).min();
        failure.map_or(Ok(due_at.unwrap_or_else(|| Instant::now() + PAUSE)), Err)
    }

    /// Publishes a batch of each shard. Returns the largest number of counters that a shard had for it.
    async fn publish(&self, store: &RedisNamespace) -> Result<usize, String> {
        let shards = (0..SHARDS).map(|shard| self.publish_shard(store, shard));
        let published: Vec<Result<usize, String>> = join_all(shards).await;
        published.into_iter().try_fold(0, |most, found| Ok(most.max(found?)))
    }

    async fn publish_shard(&self, store: &RedisNamespace, shard: u16) -> Result<usize, String> {
        let counters = store.behind(shard, BATCH).await.map_err(|error| error.to_string())?;
        let count = counters.len();
        let published = read_each(store, counters).await.map_err(|error| error.to_string())?;
        if published.is_empty() {
            return Ok(count);
        }
        self.send(store, &published).await?;
        let lacking = match store.attend(shard, &published, AGAIN_MS, behind_ms_max(store)).await {
            // The leader reads the namespace's new configuration in a moment.
            Err(Refusal::Stale) => return Ok(0),
            attended => attended.map_err(|error| error.to_string())?,
        };
        let again = published.iter().zip(&lacking).filter(|(_, lacking)| lacking.is_something());
        again.for_each(|((counter, checkpoint), _)| {
            self.sent().note(store.tag(), counter, store.region_record(checkpoint), Instant::now());
        });
        let lacking = published.into_iter().zip(lacking).map(|((counter, own), lacking)| (counter, own, lacking));
        self.catch_up.all(store, lacking.collect()).await.map_err(|error| error.to_string())?;
        Ok(count)
    }

    async fn send(&self, store: &RedisNamespace, published: &[(CounterName, Checkpoint)]) -> Result<(), String> {
        let records: Vec<(String, Vec<u8>)> = {
            let sent = self.sent();
            let record =
                |(counter, checkpoint): &(CounterName, Checkpoint)| (counter.clone(), store.region_record(checkpoint));
            let records = published.iter().filter(|(_, checkpoint)| checkpoint.exact_to_ms > 0).map(record);
            let unsent = records.filter(|(counter, record)| !sent.has(store.tag(), counter, record));
            unsent.map(|(counter, record)| (key_of(&self.region, store.name(), &counter), value_of(&record))).collect()
        };
        if records.is_empty() {
            return Ok(());
        }
        let delivery = self.producer.begin().map_err(|error| error.to_string())?;
        for (key, value) in &records {
            delivery.send(self.record(key, value)).await.map_err(|error| error.to_string())?;
        }
        delivery.acknowledged().await.map_err(|error| error.to_string())?;
        metrics::published(records.len() as u64);
        Ok(())
    }

    async fn send_heartbeat(&self, store: &RedisNamespace) -> Result<(), String> {
        let delivery = self.producer.begin().map_err(|error| error.to_string())?;
        let value = value_of(&Heartbeat { sent_ms: store.now_ms() });
        delivery.send(self.record(self.region.as_str(), &value)).await.map_err(|error| error.to_string())?;
        delivery.acknowledged().await.map_err(|error| error.to_string())
    }

    fn record<'a>(&'a self, key: &'a str, value: &'a [u8]) -> Record<'a> {
        let (topic, headers) = (self.topic.name(), OwnedHeaders::new());
        Record { topic, partition: None, key: Some(key.as_bytes()), value: Some(value), headers, at_ms: None }
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checkpoints of counters, without those that cannot be read: these need attention again later.
async fn read_each(
    store: &RedisNamespace,
    counters: Vec<CounterName>,
) -> Result<Vec<(CounterName, Checkpoint)>, Refusal> {
    match store.read(&counters).await {
        Err(Refusal::Internal(_)) => {}
        read => return Ok(counters.into_iter().zip(read?).collect()),
    }
    let mut found = Vec::with_capacity(counters.len());
    for counter in counters {
        match store.read(std::slice::from_ref(&counter)).await {
            Err(Refusal::Internal(why)) => {
                tracing::error!(namespace = %store.name(), %counter, why, "its checkpoint cannot be published");
                metrics::unreadable_checkpoint();
                store.attend_later(&counter, UNREADABLE_AGAIN_MS).await?;
            }
            read => found.extend(read?.into_iter().map(|checkpoint| (counter.clone(), checkpoint))),
        }
    }
    Ok(found)
}
