//! The read loop: records into batches, batches to the store, and backpressure while the store is slow.

use super::batch::Batch;
use super::dead_letters::DeadLetters;
use super::metrics::Metrics;
use super::options::{IndexerError, IndexerOptions};
use super::progress::Progress;
use super::rejoins::{Rejoins, SilenceRejoins};
use super::retry::retry_while;
use super::settle::{SettledBatch, Settler};
use super::topic_check::TopicCheck;
use crate::{HistoryError, HistoryStore};
use futures::FutureExt;
use futures::stream::{FuturesOrdered, StreamExt};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use std::sync::Arc;
use std::time::Duration;
use tallystone_kafka::{GroupReader, KafkaConfigError, Topic, Trouble};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// How long the reader is not polled while the store is slow. Then the partitions are paused and polling continues,
/// because the group drops a member that does not poll.
const UNPOLLED_MAX: Duration = Duration::from_secs(5);
/// How long a stop waits for batches that the store is working on.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Fills the store until `shutdown` completes. Waits through outages of Kafka and of the store. At the end the
/// offsets of everything recorded are committed.
pub async fn run<S: HistoryStore>(
    store: Arc<S>,
    options: IndexerOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), IndexerError> {
    let topic = Arc::new(Topic::events(&options.kafka)?);
    let dead_letters = DeadLetters::new(&options.kafka)?;
    let metrics = Metrics::new(topic.name());
    let settler =
        Arc::new(Settler { store: store.clone(), dead_letters, metrics: metrics.clone(), topic: topic.clone() });
    // Before the first wait, so that a bad option ends the program at once.
    let mut joined = join(&options, &metrics)?;
    tokio::pin!(shutdown);
    let ensured = retry_while("Kafka does not create the topic", || topic.ensure(), |_| true);
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        ensured = ensured => ensured?,
    }
    let (mut rejoins, mut silence_rejoins) = (Rejoins::default(), SilenceRejoins::default());
    loop {
        let (reader, troubles) = joined;
        reader.subscribe()?;
        let indexer = Indexer {
            reader: &reader,
            settler: settler.clone(),
            progress: Progress::new(store.clone(), topic.clone()),
            check: TopicCheck::new(),
            reading: 0,
            batch: Batch::default(),
            settling: FuturesOrdered::new(),
            intake: Intake::Open,
            troubles,
            silence_rejoins: &mut silence_rejoins,
            options: &options,
        };
        let ended = indexer.index(&mut shutdown).await;
        reader.close().await;
        match ended {
            Err(IndexerError::Replaced(name)) if rejoins.may_rejoin() => {
                tracing::warn!(name, "Kafka takes another member for the owner of this one's name; joining again");
            }
            Ok(End::NoBrokers) => tracing::warn!("the Kafka client knows no broker any more; joining again"),
            Ok(End::Silent { partition, state }) => {
                tracing::warn!(partition, state, "no records for long, not even watermarks; joining the group again");
            }
            Ok(End::Stopped) => return Ok(()),
            Err(error) => return Err(error),
        }
        metrics.left();
        joined = join(&options, &metrics)?;
    }
}

type Joined = (GroupReader<Metrics>, mpsc::UnboundedReceiver<Trouble>);

fn join(options: &IndexerOptions, metrics: &Metrics) -> Result<Joined, KafkaConfigError> {
    GroupReader::new(&options.kafka, &options.group, options.instance.as_deref(), metrics.clone())
}

/// Why the indexer has ended without an error.
enum End {
    /// It was stopped.
    Stopped,
    /// Its reader will not connect again.
    NoBrokers,
    /// Its reader reads nothing of this partition, or nothing is written.
    Silent { partition: i32, state: String },
}

/// Whether the indexer takes records from the reader.
enum Intake {
    /// It does.
    Open,
    /// The batch is full and the store is busy. At this time the partitions are paused.
    FullUntil(Instant),
    /// The partitions are paused; the reader is polled and returns no records.
    Paused,
}

struct Indexer<'a, S> {
    reader: &'a GroupReader<Metrics>,
    settler: Arc<Settler<S>>,
    progress: Progress<S>,
    check: TopicCheck,
    /// How often the reader has gone back to the beginning of the topic.
    reading: u64,
    /// Records read and not yet handed to the store.
    batch: Batch,
    settling: FuturesOrdered<AbortOnDropHandle<Result<SettledBatch, HistoryError>>>,
    intake: Intake,
    troubles: mpsc::UnboundedReceiver<Trouble>,
    silence_rejoins: &'a mut SilenceRejoins,
    options: &'a IndexerOptions,
}

impl<S: HistoryStore> Indexer<'_, S> {
    async fn index(mut self, mut shutdown: impl Future<Output = ()> + Unpin) -> Result<End, IndexerError> {
        let mut records = self.reader.records();
        loop {
            self.hand_over();
            self.update_intake()?;
            let pause_at = match self.intake {
                Intake::FullUntil(at) => Some(at),
                _ => None,
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(settled) = self.settling.next() => self.settled(settled.unwrap_or_else(task_failed)?),
                advanced = self.progress.advance() => advanced?,
                is_recreated = self.check.advance(self.reader) => {
                    if is_recreated {
                        self.read_again()?;
                    }
                }
                Some(trouble) = self.troubles.recv() => match trouble {
                    Trouble::Stuck(partition) => self.reader.restart(&partition),
                    Trouble::NoBrokers => return Ok(End::NoBrokers),
                    Trouble::Silent { partition, state } => {
                        if self.silence_rejoins.may_rejoin() {
                            return Ok(End::Silent { partition, state });
                        }
                    }
                },
                () = sleep_until(pause_at.unwrap_or_else(Instant::now)), if pause_at.is_some() => {
                    self.reader.pause()?;
                    self.intake = Intake::Paused;
                }
                Some(record) = records.next(), if pause_at.is_none() => {
                    self.take(record)?;
                    // Takes what librdkafka has fetched already, up to a full batch.
                    while !self.batch.is_full(self.options)
                        && let Some(Some(record)) = records.next().now_or_never()
                    {
                        self.take(record)?;
                    }
                }
            }
        }
        self.finish().await?;
        Ok(End::Stopped)
    }

    /// Hands the batch to the store: any batch if the store is idle, else only a full one.
    fn hand_over(&mut self) {
        let is_due = match self.settling.len() {
            0 => !self.batch.is_empty(),
            in_flight => in_flight < self.options.batches_max && self.batch.is_full(self.options),
        };
        if is_due {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.batch.reading = self.reading;
        let settling = tokio::spawn(self.settler.clone().settle(batch));
        self.settling.push_back(AbortOnDropHandle::new(settling));
    }

    fn settled(&mut self, settled: SettledBatch) {
        // The records of an earlier reading are stored, but there may be others before them.
        if settled.reading < self.reading {
            return;
        }
        if let Err(error) = self.reader.store_positions(&settled.positions) {
            tracing::debug!(%error, "offsets of partitions that another indexer has taken over");
        }
        self.progress.reached(settled.watermarks);
    }

    /// Reads the topic from its beginning, because it is no longer the one that was read.
    fn read_again(&mut self) -> Result<(), KafkaError> {
        tracing::warn!("the topic was created again; reading it from its beginning");
        self.reading += 1;
        // Records that are read from now on belong to the next batch.
        self.settle();
        self.progress.forget();
        self.reader.read_from_beginning()
    }

    /// Stops the intake while the batch is full, and opens it again once it is not.
    fn update_intake(&mut self) -> Result<(), KafkaError> {
        let is_full = self.batch.is_full(self.options);
        match self.intake {
            Intake::Open if is_full => self.intake = Intake::FullUntil(Instant::now() + UNPOLLED_MAX),
            Intake::FullUntil(_) if !is_full => self.intake = Intake::Open,
            Intake::Paused if !is_full => {
                self.reader.resume()?;
                self.intake = Intake::Open;
            }
            _ => {}
        }
        Ok(())
    }

    fn take(&mut self, record: Result<BorrowedMessage<'_>, KafkaError>) -> Result<(), IndexerError> {
        match record {
            Ok(record) => {
                self.batch.push(&record);
                if matches!(self.intake, Intake::Paused) {
                    // The record is of a partition that was assigned after the pause.
                    self.reader.pause()?;
                }
            }
            Err(error) => match self.reader.fatal_error() {
                None => tracing::debug!(%error, "nothing read"),
                Some(RDKafkaErrorCode::FencedInstanceId) => {
                    return Err(IndexerError::Replaced(self.options.instance.clone().unwrap_or_default()));
                }
                Some(code) => return Err(KafkaError::MessageConsumptionFatal(code).into()),
            },
        }
        Ok(())
    }

    /// Waits for the batches that the store is working on, for a bounded time, and stores their offsets.
    async fn finish(mut self) -> Result<(), IndexerError> {
        let give_up_at = Instant::now() + STOP_TIMEOUT;
        while let Ok(Some(settled)) = tokio::time::timeout_at(give_up_at, self.settling.next()).await {
            self.settled(settled.unwrap_or_else(task_failed)?);
        }
        Ok(())
    }
}

/// A batch's task ended without a result: it panicked, or the runtime is shutting down.
fn task_failed(error: tokio::task::JoinError) -> Result<SettledBatch, HistoryError> {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(HistoryError::Unavailable("the program is shutting down".to_owned())),
    }
}
