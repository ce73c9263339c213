//! A consumer-group reader of one topic: how it is configured, paused, restarted and closed.
//!
//! The caller decides when a record is processed: it stores the position in each partition with
//! [`GroupReader::store_positions`], and librdkafka commits stored offsets every second.

use crate::context::{KnownPosition, ReaderContext, ReaderObserver};
use crate::coverage::Coverage;
use crate::error::KafkaConfigError;
use crate::options::{KafkaOptions, MEMBER};
use crate::position::Position;
use crate::stuck::{StuckPartition, Trouble};
use crate::verifier::{Verdict, Verifier};
use futures::Stream;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// For how long a partition may have no member. Between the two steps of a rebalance, a member may be slow.
const UNCOVERED_MAX: Duration = Duration::from_secs(20);
/// How long [`GroupReader::close`] waits for Kafka.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A member of a consumer group that reads one topic. Closing it waits for Kafka, so a drop closes it on another
/// thread.
pub struct GroupReader<O: ReaderObserver> {
    topic: String,
    consumer: Option<Arc<StreamConsumer<ReaderContext<O>>>>,
}

impl<O: ReaderObserver> GroupReader<O> {
    /// Checks the options. A group that knows a member by its `instance` gives it its partitions back when it restarts
    /// within eight seconds, and does not redistribute them. Also returns the channel that reports why
    /// librdkafka has stopped reading; the caller passes a partition to [`GroupReader::restart`], and replaces a reader
    /// without brokers.
    pub fn new(
        options: &KafkaOptions,
        group: &str,
        instance: Option<&str>,
        observer: O,
    ) -> Result<(GroupReader<O>, mpsc::UnboundedReceiver<Trouble>), KafkaConfigError> {
        let own = [("partition.assignment.strategy", "cooperative-sticky"), ("auto.commit.interval.ms", "1000")];
        let defaults = [&MEMBER[..], &own].concat();
        let mut fixed = vec![
            ("group.id", group),
            ("enable.auto.commit", "true"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
            // The source of the lag and of the stuck partitions.
            ("statistics.interval.ms", "5000"),
        ];
        fixed.extend(instance.map(|instance| ("group.instance.id", instance)));
        let config = options.client_config(&defaults, &fixed)?;
        let (troubles, reported) = mpsc::unbounded_channel();
        let topic = options.topic.clone();
        let verifier = Arc::new(Verifier::new(options, group)?);
        let (positions, waits) = (Mutex::default(), Mutex::default());
        let (silences, is_paused) = (Mutex::default(), AtomicBool::new(false));
        let coverage = Coverage::new(group, std::slice::from_ref(&topic), &config, UNCOVERED_MAX);
        let context = ReaderContext {
            observer,
            topic: topic.clone(),
            verifier,
            coverage,
            positions,
            waits,
            silences,
            is_paused,
            troubles,
        };
        let consumer = config.create_with_context(context)?;
        Ok((GroupReader { topic, consumer: Some(Arc::new(consumer)) }, reported))
    }

    fn consumer(&self) -> &StreamConsumer<ReaderContext<O>> {
        self.consumer.as_ref().expect("only `close` takes it, and consumes the reader")
    }

    /// Joins the group. The topic must exist: librdkafka would find a new one only after minutes.
    pub fn subscribe(&self) -> Result<(), KafkaError> {
        self.consumer().subscribe(&[&self.topic])
    }

    /// The records of all assigned partitions, in order within each.
    pub fn records(&self) -> impl Stream<Item = Result<BorrowedMessage<'_>, KafkaError>> + Unpin {
        self.consumer().stream()
    }

    /// Why the client has failed for good: no call of it succeeds any more.
    pub fn fatal_error(&self) -> Option<RDKafkaErrorCode> {
        self.consumer().client().fatal_error().map(|(code, _)| code)
    }

    /// Marks records as processed: of each partition, the position after the last one. librdkafka commits the offsets
    /// every second, before it gives a partition away, and on close. Fails for partitions that another reader has
    /// taken over; that reader commits them.
    pub fn store_positions(&self, positions: &BTreeMap<i32, Position>) -> Result<(), KafkaError> {
        let mut offsets = TopicPartitionList::new();
        for (partition, position) in positions {
            let mut stored = offsets.add_partition(&self.topic, *partition);
            stored.set_offset(Offset::Offset(position.next_offset))?;
            stored.set_metadata(position.last.to_string());
        }
        self.consumer().store_offsets(&offsets)?;
        let mut known = self.positions();
        for (partition, position) in positions {
            known.entry(*partition).or_insert_with(|| KnownPosition::new(*position)).latest = *position;
        }
        Ok(())
    }

    /// Up to where each assigned partition is read, as far as it is known.
    fn positions(&self) -> MutexGuard<'_, BTreeMap<i32, KnownPosition>> {
        self.consumer().context().positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the record before a position again: that of the next partition after this one. Sends `false` if the log has
    /// another one there: then the topic was deleted and created again. `None`: no position is known.
    pub fn verify_after(&self, partition: i32) -> Option<(i32, oneshot::Receiver<bool>)> {
        let (partition, position) = {
            let known = self.positions();
            let next = known.range((Excluded(partition), Unbounded)).next().or_else(|| known.first_key_value());
            next.map(|(partition, position)| (*partition, *position))?
        };
        let (verified, is_verified) = oneshot::channel();
        let context = self.consumer().context().clone();
        // Not a blocking task of the runtime, for the reason in `close`.
        std::thread::spawn(move || {
            let verdicts = context.verifier.verify(&BTreeMap::from([(partition, position.anchor)]));
            // The topic was still the same when the latest position was stored: that one is verified next.
            if matches!(verdicts.get(&partition), Some(Verdict::Same | Verdict::Empty)) {
                let mut known = context.positions.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(known) = known.get_mut(&partition) {
                    known.anchor = position.latest;
                }
            }
            // The receiver is gone if the indexer is.
            let _ = verified.send(verdicts.get(&partition) != Some(&Verdict::Different));
        });
        Some((partition, is_verified))
    }

    /// Reads all assigned partitions from their beginning.
    pub fn read_from_beginning(&self) -> Result<(), KafkaError> {
        self.positions().clear();
        for assigned in self.consumer().assignment()?.elements() {
            self.consumer().seek(&self.topic, assigned.partition(), Offset::Beginning, Duration::ZERO)?;
        }
        Ok(())
    }

    /// Stops reading the assigned partitions. Partitions assigned later are not paused. The caller continues polling
    /// [`GroupReader::records`], because the group drops a member that does not poll.
    pub fn pause(&self) -> Result<(), KafkaError> {
        self.consumer().context().is_paused.store(true, Ordering::Relaxed);
        self.consumer().pause(&self.consumer().assignment()?)
    }

    /// Reads the assigned partitions again.
    pub fn resume(&self) -> Result<(), KafkaError> {
        self.consumer().context().is_paused.store(false, Ordering::Relaxed);
        self.consumer().resume(&self.consumer().assignment()?)
    }

    /// Restarts a stuck partition at the current position, without a validation by Kafka. After a second
    /// restart librdkafka has forgotten the position; then reading restarts at the committed offset, and some records
    /// are read again.
    pub fn restart(&self, stuck: &StuckPartition) {
        let position = self.consumer().position().ok();
        let position = position.and_then(|all| Some(all.find_partition(&self.topic, stuck.partition)?.offset()));
        let offset = match (position, stuck.committed) {
            (Some(Offset::Offset(next)), _) | (_, Some(next)) => Offset::Offset(next),
            _ => Offset::Beginning,
        };
        tracing::warn!(partition = stuck.partition, ?offset, "the Kafka client stopped reading; restarting it");
        if let Err(error) = self.consumer().seek(&self.topic, stuck.partition, offset, Duration::ZERO) {
            tracing::warn!(%error, partition = stuck.partition, "the Kafka client did not restart");
        }
    }

    /// Commits the stored offsets, and leaves the group unless this member has an instance name: such a member keeps its
    /// partitions for a restart until its session times out. Waits at most ten seconds for Kafka.
    pub async fn close(mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        let (closed, is_closed) = oneshot::channel();
        // Not a blocking task of the runtime: the end of the program would wait for it, and so for Kafka.
        std::thread::spawn(move || {
            match consumer.commit_consumer_state(CommitMode::Sync) {
                Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
                Err(error) => {
                    tracing::warn!(%error, "the last offsets are not committed: some records will be read again")
                }
            }
            drop(consumer);
            let _ = closed.send(());
        });
        if tokio::time::timeout(CLOSE_TIMEOUT, is_closed).await.is_err() {
            tracing::warn!("Kafka did not answer; the group removes this consumer when its session times out");
        }
    }
}

impl<O: ReaderObserver> Drop for GroupReader<O> {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_broker::FakeBroker;
    use futures::StreamExt;
    use tokio::time::{Instant, sleep, timeout};

    /// The reader checks every few seconds, and now and then the client connects again in time: half of a minute on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(180);

    struct Unobserved;

    impl ReaderObserver for Unobserved {
        fn lag(&self, _: &BTreeMap<i32, i64>) {}
        fn assigned(&self, _: &[i32]) {}
        fn revoked(&self, _: &[i32]) {}
    }

    async fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let give_up_at = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < give_up_at, "{what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// librdkafka #5301: a reader that has lost all brokers never connects again.
    #[tokio::test]
    async fn q19_a_reader_without_brokers_reports_it() {
        let broker = FakeBroker::start();
        let properties = [("topic.metadata.refresh.interval.ms".to_owned(), "200".to_owned())].into();
        let options = KafkaOptions { properties, ..broker.options() };
        let (reader, mut troubles) = GroupReader::new(&options, "g", None, Unobserved).unwrap();
        reader.subscribe().unwrap();
        let mut records = reader.records();
        let reading = async { while records.next().await.is_some() {} };
        // Now and then it connects again in time.
        let outages = async {
            loop {
                until("it connects", || broker.described() > 1).await;
                broker.set_registered(false);
                until("it reads that there is no broker", || broker.described() > 0).await;
                broker.set_registered(true);
            }
        };
        tokio::select! {
            () = reading => panic!("the stream has ended"),
            () = outages => {}
            trouble = timeout(PATIENCE, troubles.recv()) => {
                assert_eq!(trouble, Ok(Some(Trouble::NoBrokers)));
            }
        }
    }
}
