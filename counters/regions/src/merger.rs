//! Merges what other regions have published. The positions in the topics are stored after their records are merged, so a process
//! that dies merges some records twice, which changes nothing.
//!
//! A namespace is covered if everything up to the positions is merged into it. Before a position passes a record of a namespace
//! that is not, the store notes that records were skipped: the topics are merged from their beginning when it can be covered again.

use crate::config::RegionOptions;
use crate::gather::{Covered, Gatherer};
use crate::leader::{Led, Term};
use crate::metrics::{self, Failing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tallystone_counters::redis::{
    MergedNamespace, MergedTopics, RedisNamespace, RedisNamespaces, SKIPPED, TopicPosition,
};
use tallystone_counters::regions::RegionRecord;
use tallystone_counters::{CounterName, NamespaceName, Refusal, RegionName};
use tallystone_kafka::{KafkaConfigError, TopicFollower};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// How often records are merged into a namespace that fails before the others go on without it.
const TRIES: usize = 5;
/// How soon such a namespace is tried again, if it does not change.
const RETRY_AFTER: Duration = Duration::from_secs(120);
/// How soon a namespace is merged again of which records were ahead of the clock.
const AHEAD_AGAIN_AFTER: Duration = Duration::from_secs(3_600);
/// How often the partitions are read again.
const CHECK_EVERY: Duration = Duration::from_secs(30);

/// Why nothing is merged.
#[derive(Debug, thiserror::Error)]
enum MergeError {
    #[error(transparent)]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error(transparent)]
    Options(#[from] KafkaConfigError),
    #[error(transparent)]
    Store(#[from] Refusal),
    #[error("another process has the lease")]
    LeaseLost,
}

/// Merges for as long as this process has the lease.
pub(crate) struct Merger {
    options: Arc<RegionOptions>,
    namespaces: RedisNamespaces,
    led: watch::Receiver<Led>,
    gatherer: Gatherer,
    /// The namespaces that failed, and when each is tried again.
    failed: BTreeMap<NamespaceName, Instant>,
    /// The namespaces of which records were ahead of the clock, and when the topics are merged from their beginning for each.
    ahead: BTreeMap<NamespaceName, Instant>,
    failing: Failing,
}

impl Merger {
    pub(crate) fn new(options: Arc<RegionOptions>, namespaces: RedisNamespaces, led: watch::Receiver<Led>) -> Merger {
        let (gatherer, failing) = (Gatherer::default(), Failing::to("merge"));
        Merger { options, namespaces, led, gatherer, failed: BTreeMap::new(), ahead: BTreeMap::new(), failing }
    }

    /// Runs until it is dropped, or nothing leads any more.
    pub(crate) async fn run(mut self) {
        let mut last: Led = None;
        loop {
            if self.led.borrow().is_none() {
                // Another process reports it.
                self.gatherer.expect(BTreeSet::new());
                self.failing.show(BTreeSet::new());
            }
            if self.led.wait_for(Option::is_some).await.is_err() {
                return;
            }
            let Some(term) = self.led.borrow_and_update().clone() else { continue };
            if !last.replace(term.clone()).is_some_and(|last| Arc::ptr_eq(&last, &term)) {
                // What has failed may be another one now.
                self.failed.clear();
                self.ahead.clear();
            }
            if let Err(error) = self.read(&term).await {
                tracing::debug!(%error, "cannot merge other regions; trying until it succeeds");
                sleep(PAUSE).await;
            }
        }
    }

    /// Reads the topics until the term ends, the namespaces have changed, one is due again, or the topics have other partitions.
    async fn read(&mut self, term: &Term) -> Result<(), MergeError> {
        let (mut covered, positions) = self.cover(term).await?;
        let expected = covered.values().flat_map(RedisNamespace::other_regions).cloned().collect();
        self.gatherer.expect(expected);
        let follower = TopicFollower::new(&self.options.kafka, &self.options.topics, "tallystone-regions")?;
        let partitions = follower.partitions().await?;
        let position = |(topic, partition): &(String, i32)| {
            let is_of = |position: &&TopicPosition| position.topic == *topic && position.partition == *partition;
            let next_offset = positions.iter().find(is_of).map(|position| position.next_offset);
            (topic.clone(), *partition, next_offset)
        };
        follower.read_from(&partitions.iter().map(position).collect::<Vec<_>>())?;
        let mut check_at = Instant::now() + CHECK_EVERY;
        loop {
            let now = Instant::now();
            let due_at = self.failed.values().chain(self.ahead.values()).min();
            if self.led.has_changed().unwrap_or(true) || due_at.is_some_and(|due_at| *due_at <= now) {
                return Ok(());
            }
            let Some(batch) = self.gatherer.gather(&follower, &covered, &self.led).await? else { return Ok(()) };
            if !self.merge_all(term, &mut covered, batch.records).await? {
                return Ok(());
            }
            let new: Vec<NamespaceName> =
                batch.ahead.into_iter().filter(|name| !self.ahead.contains_key(name)).collect();
            if !new.is_empty() {
                self.skip(term, new.iter().filter_map(|name| covered.get(name))).await?;
                self.ahead.extend(new.into_iter().map(|name| (name, now + AHEAD_AGAIN_AFTER)));
            }
            if !self.namespaces.store_positions(&term.name, &batch.positions).await? {
                return Err(MergeError::LeaseLost);
            }
            if now >= check_at {
                check_at = now + CHECK_EVERY;
                if follower.partitions().await? != partitions {
                    return Ok(());
                }
            }
        }
    }

    /// Merges the records of each namespace. One that fails is covered no longer. False: the term or its namespaces have changed,
    /// and the records must be read once more.
    async fn merge_all(
        &mut self,
        term: &Term,
        covered: &mut Covered,
        records: BTreeMap<NamespaceName, Vec<(CounterName, RegionName, RegionRecord)>>,
    ) -> Result<bool, MergeError> {
        for (name, records) in records {
            let Some(store) = covered.get(&name) else { continue };
            let mut tries = 1;
            let merged = loop {
                match store.merge(&records).await {
                    Err(_) if self.led.has_changed().unwrap_or(true) => return Ok(false),
                    Err(_) if tries < TRIES => {
                        tries += 1;
                        sleep(PAUSE).await;
                    }
                    merged => break merged,
                }
            };
            match merged {
                Ok(later) => metrics::merged(later),
                Err(refusal) => {
                    self.skip(term, [store].into_iter()).await?;
                    self.fail(&name, &refusal);
                    covered.remove(&name);
                }
            }
        }
        Ok(true)
    }

    /// The store notes that records of these namespaces were skipped.
    async fn skip(&self, term: &Term, stores: impl Iterator<Item = &RedisNamespace>) -> Result<(), MergeError> {
        let stood = stores.map(|store| (store.tag().to_owned(), self.regions_of(store))).collect();
        match self.namespaces.skip_namespaces(&term.name, &stood).await? {
            true => Ok(()),
            false => Err(MergeError::LeaseLost),
        }
    }

    /// What stands for a namespace that is covered.
    fn regions_of(&self, store: &RedisNamespace) -> String {
        let regions = store.config().regions.iter().map(RegionName::as_str).collect::<Vec<_>>().join(",");
        format!("{regions} of {}", self.options.topics.join(","))
    }

    fn fail(&mut self, name: &NamespaceName, refusal: &Refusal) {
        tracing::warn!(namespace = %name, error = %refusal, "records of other regions cannot be merged into it yet");
        self.failed.insert(name.clone(), Instant::now() + RETRY_AFTER);
        self.failing.show(self.failed.keys().cloned().collect());
    }

    /// Sees that namespaces which are not covered get everything: records of them were skipped, and some of their counters may
    /// not be published. Returns those that are covered then, and up to where the topics are merged.
    async fn cover(&mut self, term: &Term) -> Result<(Covered, Vec<TopicPosition>), MergeError> {
        let now = Instant::now();
        self.failed.retain(|name, due_at| *due_at > now && term.namespaces.contains_key(name));
        self.ahead.retain(|name, due_at| *due_at > now && term.namespaces.contains_key(name));
        let MergedTopics { mut positions, namespaces: mut stood } = self.namespaces.merged_topics().await?;
        let (mut covered, mut wanted, mut is_new) = (Covered::new(), BTreeMap::new(), false);
        for (name, store) in &term.namespaces {
            let (regions, stood) = (self.regions_of(store), stood.remove(store.tag()));
            let is_skipped = stood.as_deref() == Some(SKIPPED);
            if self.failed.contains_key(name) {
                wanted.extend(is_skipped.then(|| (store.tag().to_owned(), skipped())));
                continue;
            }
            let regions = match stood.as_ref() == Some(&regions) {
                true => regions,
                // It has everything but what is ahead of the clock.
                false if is_skipped && self.ahead.contains_key(name) => SKIPPED.to_owned(),
                false => {
                    is_new = true;
                    // It may have had other regions, or none: then some of its counters are not published.
                    if !is_skipped {
                        tracing::info!(namespace = %name, "publishing all its counters, and merging those of other regions");
                        if let Err(refusal) = store.put_all_behind().await {
                            tracing::warn!(namespace = %name, error = %refusal, "its counters cannot be published yet");
                            self.failed.insert(name.clone(), now + RETRY_AFTER);
                            continue;
                        }
                    }
                    regions
                }
            };
            wanted.insert(store.tag().to_owned(), MergedNamespace { stood, regions });
            covered.insert(name.clone(), store.clone());
        }
        self.failing.show(self.failed.keys().cloned().collect());
        let gone: Vec<String> = stood.into_keys().collect();
        let is_stored = match (is_new, gone.is_empty()) {
            (true, _) => {
                positions.clear();
                self.namespaces.merge_from_beginning(&term.name, &wanted).await?
            }
            (false, false) => self.namespaces.forget_namespaces(&term.name, &gone).await?,
            (false, true) => true,
        };
        if is_stored { Ok((covered, positions)) } else { Err(MergeError::LeaseLost) }
    }
}

/// What stands for a namespace that fails.
fn skipped() -> MergedNamespace {
    MergedNamespace { stood: Some(SKIPPED.to_owned()), regions: SKIPPED.to_owned() }
}
