//! The indexer: every partition's records into a history store, by a consumer group.
//!
//! What lives here: reading (this file, by `reader`), what a record is (`batch`), handing on what was read (`settle`), what can
//! never be indexed (`dead`), and how far all of it is (`progress`). What may not: how a store keeps it.
//!
//! The order that nothing may change: a batch is recorded by the store, its dead letters are acknowledged by Kafka,
//! then its offsets may be committed and its watermarks told, and only when all of that is true of the batches before
//! it too. Whatever ends in between is read again, and changes nothing.

mod batch;
mod dead;
mod metrics;
mod progress;
mod reader;
mod settle;

use super::options::{KafkaConfigError, KafkaOptions};
use super::topic::Topic;
use crate::{HistoryError, HistoryStore};
use batch::Batch;
use dead::DeadLetters;
use futures::FutureExt;
use futures::stream::{FuturesOrdered, StreamExt};
use metrics::Metrics;
use progress::Progress;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Offset, TopicPartitionList};
use reader::{Reader, Stuck};
use settle::{Settled, Settler, patiently};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// How long nothing is taken from Kafka's client while the store is slow. Then the partitions are paused, and the
/// client is asked again for what is not events: who does not ask is taken for dead by the group.
const STALL: Duration = Duration::from_secs(5);
/// How long a stop waits for what is on its way to the store, and then for Kafka.
const GRACE: Duration = Duration::from_secs(10);

/// What the indexer reads, and how much at a time.
#[derive(Clone, Debug)]
pub struct IndexerOptions {
    /// Which Kafka and topic.
    pub kafka: KafkaOptions,
    /// The consumer group: all indexers of one store.
    pub group: String,
    /// How many events are handed to the store at a time.
    pub batch_events_max: usize,
    /// The same in bytes as they stand in Kafka. The memory of the indexer is bounded by this times one more than
    /// `batches_max`, and 16 MiB that Kafka's client has fetched ahead (`queued.max.messages.kbytes`).
    pub batch_bytes_max: usize,
    /// How many batches are on their way to the store.
    pub batches_max: usize,
}

impl Default for IndexerOptions {
    fn default() -> Self {
        IndexerOptions {
            kafka: KafkaOptions::default(),
            group: "tallystone-indexer".to_owned(),
            batch_events_max: 4_000,
            batch_bytes_max: 4 * 1024 * 1024,
            batches_max: 4,
        }
    }
}

/// Why an indexer ended.
#[derive(Debug, thiserror::Error)]
pub enum IndexerError {
    /// It never began.
    #[error(transparent)]
    Config(#[from] KafkaConfigError),
    /// The store says that waiting will not mend it.
    #[error(transparent)]
    Store(#[from] HistoryError),
    /// Kafka's client cannot go on.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
}

/// Indexes until `shutdown` comes to its end; Kafka and the store may come and go. What is done is committed then.
pub async fn run<S: HistoryStore>(
    store: Arc<S>,
    options: IndexerOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), IndexerError> {
    let topic = Arc::new(Topic::events(&options.kafka)?);
    let dead = DeadLetters::new(&options.kafka)?;
    let metrics = Metrics::new();
    let (consumer, stuck) = Reader::new(&options, metrics.clone())?;
    let settler = Arc::new(Settler { store: store.clone(), dead, metrics: metrics.clone(), topic: topic.clone() });
    tokio::pin!(shutdown);
    // Subscribed to what is not there, the client would look for it again in minutes only.
    let ensured = patiently("Kafka does not make the topic", || topic.ensure(), |_| true);
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        ensured = ensured => ensured?,
    }
    consumer.get().subscribe(&[&options.kafka.topic])?;
    let indexer = Indexer {
        consumer: &consumer,
        settler,
        progress: Progress::new(store, topic),
        batch: Batch::default(),
        settling: FuturesOrdered::new(),
        stalled: Stalled::No,
        stuck,
        options: &options,
    };
    let ended = indexer.index(shutdown).await;
    consumer.close().await;
    ended
}

/// Whether records are taken from the client.
enum Stalled {
    /// They are.
    No,
    /// There is no room; the partitions are paused then.
    Until(Instant),
    /// They are paused.
    Paused,
}

struct Indexer<'a, S> {
    consumer: &'a Reader,
    settler: Arc<Settler<S>>,
    progress: Progress<S>,
    /// What is being gathered.
    batch: Batch,
    settling: FuturesOrdered<AbortOnDropHandle<Result<Settled, HistoryError>>>,
    stalled: Stalled,
    stuck: mpsc::UnboundedReceiver<Stuck>,
    options: &'a IndexerOptions,
}

impl<S: HistoryStore> Indexer<'_, S> {
    async fn index(mut self, shutdown: impl Future<Output = ()>) -> Result<(), IndexerError> {
        tokio::pin!(shutdown);
        let consumer = self.consumer.get();
        let mut records = consumer.stream();
        loop {
            self.hand_on();
            self.stall()?;
            let stalled_until = match self.stalled {
                Stalled::Until(at) => Some(at),
                _ => None,
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(settled) = self.settling.next() => self.settled(settled.unwrap_or_else(gone)?),
                advanced = self.progress.advance() => advanced?,
                Some(stuck) = self.stuck.recv() => self.begin_again(&stuck),
                () = sleep_until(stalled_until.unwrap_or_else(Instant::now)), if stalled_until.is_some() => {
                    self.pause()?;
                }
                Some(record) = records.next(), if stalled_until.is_none() => {
                    self.take(record)?;
                    // All that is there already, as far as there is room.
                    while !self.batch.is_full(self.options)
                        && let Some(Some(record)) = records.next().now_or_never()
                    {
                        self.take(record)?;
                    }
                }
            }
        }
        self.finish().await
    }

    /// Gives what was gathered to the store: at once if it has nothing to do, else when it is as much as may be.
    fn hand_on(&mut self) {
        let is_due = match self.settling.len() {
            0 => !self.batch.is_empty(),
            on_the_way => on_the_way < self.options.batches_max && self.batch.is_full(self.options),
        };
        if is_due {
            let batch = std::mem::take(&mut self.batch);
            let settling = tokio::spawn(self.settler.clone().settle(batch));
            self.settling.push_back(AbortOnDropHandle::new(settling));
        }
    }

    fn settled(&mut self, settled: Settled) {
        let mut offsets = TopicPartitionList::new();
        for (partition, next_offset) in &settled.next_offsets {
            // Fails for numbers below zero only.
            let _ = offsets.add_partition_offset(&self.options.kafka.topic, *partition, Offset::Offset(*next_offset));
        }
        // The client commits them every second, before a partition is given away, and when it ends. Partitions that
        // have been taken away are refused: they are somebody else's to commit.
        if let Err(error) = self.consumer.get().store_offsets(&offsets) {
            tracing::debug!(%error, "offsets of partitions that are no longer ours");
        }
        self.progress.reached(settled.watermarks);
    }

    /// Begins or ends not to take records.
    fn stall(&mut self) -> Result<(), KafkaError> {
        let is_full = self.batch.is_full(self.options);
        match self.stalled {
            Stalled::No if is_full => self.stalled = Stalled::Until(Instant::now() + STALL),
            Stalled::Until(_) if !is_full => self.stalled = Stalled::No,
            Stalled::Paused if !is_full => {
                let consumer = self.consumer.get();
                consumer.resume(&consumer.assignment()?)?;
                self.stalled = Stalled::No;
            }
            _ => {}
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<(), KafkaError> {
        let consumer = self.consumer.get();
        consumer.pause(&consumer.assignment()?)?;
        self.stalled = Stalled::Paused;
        Ok(())
    }

    /// Has the client read on from where we are, without asking Kafka whether that is still there; a second time, from
    /// what is committed: the client forgets where we were. What is read twice changes nothing.
    fn begin_again(&self, stuck: &Stuck) {
        let (consumer, topic) = (self.consumer.get(), &self.options.kafka.topic);
        let position = consumer.position().ok();
        let position = position.and_then(|all| Some(all.find_partition(topic, stuck.partition)?.offset()));
        let offset = match (position, stuck.committed) {
            (Some(Offset::Offset(next)), _) | (_, Some(next)) => Offset::Offset(next),
            _ => Offset::Beginning,
        };
        tracing::warn!(partition = stuck.partition, ?offset, "Kafka's client has stopped reading; it begins again");
        if let Err(error) = consumer.seek(topic, stuck.partition, offset, Duration::ZERO) {
            tracing::warn!(%error, partition = stuck.partition, "Kafka's client does not read on");
        }
    }

    fn take(&mut self, record: Result<BorrowedMessage<'_>, KafkaError>) -> Result<(), KafkaError> {
        match record {
            Ok(record) => {
                self.batch.take(&record);
                if matches!(self.stalled, Stalled::Paused) {
                    // Of a partition that has come since.
                    self.pause()?;
                }
            }
            Err(error @ KafkaError::MessageConsumptionFatal(_)) => return Err(error),
            Err(error) => tracing::debug!(%error, "nothing read"),
        }
        Ok(())
    }

    /// Waits a while for what is on its way, and commits what is done.
    async fn finish(mut self) -> Result<(), IndexerError> {
        let give_up_at = Instant::now() + GRACE;
        while let Ok(Some(settled)) = tokio::time::timeout_at(give_up_at, self.settling.next()).await {
            self.settled(settled.unwrap_or_else(gone)?);
        }
        Ok(())
    }
}

/// A task of ours that has no answer has panicked, or the program is ending.
fn gone(error: tokio::task::JoinError) -> Result<Settled, HistoryError> {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(HistoryError::Unavailable("the program ends".to_owned())),
    }
}
