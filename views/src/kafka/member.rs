//! One membership in the consumer group: it deduplicates the views of its partitions, and writes pairs, deltas and positions in
//! one transaction.
//!
//! Whatever is unexpected ends the membership. The next one continues from what is durable, so nothing in memory matters.

use super::connect::KafkaLog;
use super::owned::{Owned, forget_metrics};
use super::partition::Written;
use super::work::{Observer, ViewMembershipError, Work};
use rdkafka::message::{Message, OwnedHeaders, OwnedMessage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_kafka::{
    ExactOptions, ExactReader, Membership, NotVerified, Output, Position, RestoredTopic, TopicPartition, Transactions,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long one poll of an idle member waits.
const IDLE: Duration = Duration::from_millis(250);
/// A commit takes no more views when it has so many bytes of them, or of new pairs in one record. One more record of views adds 400 KB at
/// most, and brokers take 1 MB unless the topic was created with more.
const VIEWS_BYTES_MAX: usize = 16 * 1024 * 1024;
const PAIRS_BYTES_MAX: usize = 512 * 1024;
/// How often it is verified that the topic is still the one that was read.
const VERIFY_EVERY: Duration = Duration::from_secs(2);
/// For how long a commit waits until the topic is verified, as for each step of its transaction.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const VERIFY_AGAIN: Duration = Duration::from_millis(100);
/// How often a partition with pairs that gets no views is advanced: only that ends their windows, and so frees them.
const ADVANCE_EVERY: Duration = Duration::from_secs(5);

/// A member. Its calls of Kafka block, so it runs on a dedicated thread.
pub(super) struct Member<'a> {
    work: &'a Work,
    reader: ExactReader<Observer>,
    transactions: Transactions,
    state_topic: RestoredTopic,
    assignment: u64,
    partitions: BTreeMap<i32, Owned<'a>>,
    verify_at: Instant,
    verified: i32,
    advance_at: Instant,
    /// Whether something was written, so that Kafka works.
    has_committed: bool,
}

/// The value of a record of deltas: an add, as `tallystone-ingest` reads it.
#[derive(Serialize)]
struct Add<'a> {
    namespace: &'a str,
    counter: &'a str,
    delta: u32,
}

impl Membership for Member<'_> {
    type Error = ViewMembershipError;

    async fn run(&mut self, stopping: &CancellationToken) -> Result<(), ViewMembershipError> {
        while !stopping.is_cancelled() {
            self.gather(stopping)?;
            self.commit()?;
            self.verify_some()?;
            self.advance_some().await;
        }
        Ok(())
    }

    fn has_committed(&self) -> bool {
        self.has_committed
    }

    fn leave(self) {
        for partition in self.partitions.keys() {
            forget_metrics(*partition);
        }
        self.reader.close();
    }
}

impl<'a> Member<'a> {
    /// Joins the group.
    pub(super) fn join(work: &'a Work) -> Result<Member<'a>, ViewMembershipError> {
        let KafkaLog { options, topics, .. } = &*work.log;
        let exact = ExactOptions {
            kafka: options.clone(),
            topics: vec![topics.views.clone()],
            group: topics.views.clone(),
            instance: None,
        };
        let id = format!("{}.{}", topics.views, Uuid::new_v4().simple());
        let transactions = Transactions::new(&exact, &id)?;
        transactions.begin()?;
        let now = Instant::now();
        Ok(Member {
            work,
            reader: ExactReader::join(&exact, Observer { steps: work.log.steps().clone() })?,
            transactions,
            state_topic: RestoredTopic::new(options, &topics.state, &topics.views)?,
            assignment: 0,
            partitions: BTreeMap::new(),
            verify_at: now + VERIFY_EVERY,
            verified: -1,
            advance_at: now + ADVANCE_EVERY,
            has_committed: false,
        })
    }

    /// Takes records: the first one that comes, and those that follow soon.
    fn gather(&mut self, stopping: &CancellationToken) -> Result<(), ViewMembershipError> {
        let (mut bytes, mut until) = (0, Instant::now() + IDLE);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = match self.reader.poll(left.min(IDLE)) {
                Some(Ok(message)) => Some(message.detach()),
                Some(Err(error)) => {
                    tracing::debug!(%error, "nothing read");
                    None
                }
                None => None,
            };
            let assignment = self.reader.assignment_number();
            self.reassign()?;
            if self.assignment != assignment {
                // It was read for an assignment that has ended since.
                polled = None;
            }
            if let Some(message) = polled {
                if bytes == 0 {
                    until = Instant::now() + self.work.gather_time();
                }
                bytes += 1 + message.payload().map_or(0, <[u8]>::len);
                self.take(&message)?;
            }
            let is_full = bytes >= VIEWS_BYTES_MAX || self.new_bytes() >= PAIRS_BYTES_MAX;
            if is_full || left.is_zero() || stopping.is_cancelled() {
                return Ok(());
            }
        }
    }

    fn new_bytes(&self) -> usize {
        self.partitions.values().map(|owned| owned.state.new_bytes()).max().unwrap_or_default()
    }

    /// Takes over what was durable of the partitions, if they have changed: everything that was taken before and is not
    /// committed is void.
    fn reassign(&mut self) -> Result<(), ViewMembershipError> {
        if let Some(why) = self.reader.failed() {
            return Err(ViewMembershipError::Reader(why));
        }
        while self.assignment != self.reader.assignment_number() {
            let (assignment, ledgers) = (self.reader.assignment_number(), self.reader.ledgers());
            // Reading pairs takes a while, and the member polls meanwhile.
            self.reader.pause(true, |_| true)?;
            let mut before = std::mem::take(&mut self.partitions);
            for (place, ledger) in ledgers {
                let same = before.remove(&place.partition).filter(|owned| owned.is_at(ledger));
                let owned = match same {
                    Some(owned) => Some(owned.kept(ledger)),
                    None => Owned::read_back(self.work, &self.reader, &self.state_topic, (place, ledger))?,
                };
                let Some(owned) = owned else { break };
                self.partitions.insert(place.partition, owned);
            }
            before.keys().for_each(|partition| forget_metrics(*partition));
            if self.reader.assignment_number() == assignment {
                self.assignment = assignment;
                self.reader.pause(false, |_| true)?;
            }
        }
        Ok(())
    }

    /// Takes a record of the views.
    fn take(&mut self, message: &OwnedMessage) -> Result<(), ViewMembershipError> {
        let Some(owned) = self.partitions.get_mut(&message.partition()) else {
            let partition = message.partition();
            return Err(ViewMembershipError::Reader(format!(
                "a record of partition {partition} was read, which is not assigned"
            )));
        };
        owned.take(self.work, message)
    }

    /// Writes what the records that were taken have changed, and the positions after them.
    fn commit(&mut self) -> Result<(), ViewMembershipError> {
        let topics = &self.work.log.topics;
        let (mut outputs, mut ledgers) = (Vec::new(), BTreeMap::new());
        for (partition, owned) in &mut self.partitions {
            let Some(Written { state, deltas, position }) = owned.state.commit() else { continue };
            let Some(mut ledger) = owned.ledger else { continue };
            ledger.anchor = ledger.latest;
            ledger.decided(position);
            ledgers.insert(TopicPartition { topic: 0, partition: *partition }, ledger);
            let record = |value| output(&topics.state, Some(*partition), None, value);
            outputs.extend(state.into_iter().map(record));
            for ((namespace, counter), delta) in &deltas {
                let value = serde_json::to_vec(&Add { namespace, counter, delta: *delta });
                let value = value.map_err(|error| ViewMembershipError::Reader(error.to_string()))?;
                outputs.push(output(&topics.deltas, None, Some(counter.as_bytes()), value));
            }
        }
        if ledgers.is_empty() {
            return Ok(());
        }
        // A topic that was created again may have as many records as the old one. Then the records that were read are not the first of
        // the new topic. If they were counted, a later member could not know which records of the new topic count already.
        self.verify(&ledgers.iter().map(|(place, ledger)| (*place, ledger.anchor)).collect())?;
        let offsets = self.transactions.commit(&self.reader, outputs, &ledgers)?;
        self.has_committed = true;
        for (place, ledger) in ledgers {
            let Some(owned) = self.partitions.get_mut(&place.partition) else { continue };
            owned.ledger = Some(ledger);
            let last_offset = offsets.get(&(topics.state.clone(), place.partition));
            let last_offset =
                last_offset.ok_or_else(|| ViewMembershipError::Reader("a position has no offset".to_owned()))?;
            if let Some(before) = owned.state.committed(*last_offset) {
                self.state_topic.delete_before(place.partition, before);
            }
            owned.measure(place.partition);
        }
        Ok(())
    }

    /// Verifies that the topic still has these records. Kafka may be away for a moment, which must not end the membership: the next
    /// one reads all pairs back.
    fn verify(&self, marks: &BTreeMap<TopicPartition, Position>) -> Result<(), NotVerified> {
        let give_up_at = Instant::now() + VERIFY_TIMEOUT;
        loop {
            match self.reader.verify(marks) {
                Err(NotVerified::Unanswered(error)) if Instant::now() < give_up_at => {
                    tracing::debug!(%error, "the topic is not verified yet");
                    std::thread::sleep(VERIFY_AGAIN);
                }
                verified => return verified,
            }
        }
    }

    /// Verifies one partition now and then, also where nothing comes: a topic that was created again may have as many records as
    /// the old one. All partitions of a topic are from the same creation.
    fn verify_some(&mut self) -> Result<(), ViewMembershipError> {
        if self.verify_at > Instant::now() {
            return Ok(());
        }
        self.verify_at = Instant::now() + VERIFY_EVERY;
        let anchor = |(partition, owned): (&i32, &Owned<'_>)| Some((*partition, owned.ledger?.anchor));
        let anchors: Vec<(i32, Position)> = self.partitions.iter().filter_map(anchor).collect();
        let next = anchors.iter().find(|(partition, _)| *partition > self.verified).or_else(|| anchors.first());
        let Some((partition, anchor)) = next.copied() else { return Ok(()) };
        self.verified = partition;
        match self.reader.verify(&BTreeMap::from([(TopicPartition { topic: 0, partition }, anchor)])) {
            Ok(()) => {}
            Err(NotVerified::Unanswered(error)) => {
                tracing::debug!(%error, "the topic is not verified now");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        // It was the same topic when the latest position was read.
        if let Some(ledger) = self.partitions.get_mut(&partition).and_then(|owned| owned.ledger.as_mut()) {
            ledger.anchor = ledger.latest;
        }
        Ok(())
    }

    /// Advances the time of partitions that have pairs and got no views for a while.
    async fn advance_some(&mut self) {
        if self.advance_at > Instant::now() {
            return;
        }
        self.advance_at = Instant::now() + ADVANCE_EVERY;
        for (number, owned) in &mut self.partitions {
            let is_idle = !std::mem::take(&mut owned.has_views) && owned.state.size().0 > 0;
            let partition = usize::try_from(*number).ok().and_then(|number| self.work.partitions.get(number));
            if let Some(partition) = partition.filter(|_| is_idle)
                && let Err(error) = partition.advance().await
            {
                tracing::debug!(%error, "the time of the log does not advance");
                return;
            }
        }
    }
}

fn output(topic: &str, partition: Option<i32>, key: Option<&[u8]>, value: Vec<u8>) -> Output {
    let (topic, key, headers) = (topic.to_owned(), key.map(<[u8]>::to_vec), OwnedHeaders::new());
    Output { topic, partition, key, value: Some(value), at_ms: None, headers }
}
