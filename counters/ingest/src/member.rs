//! One membership in the consumer group: it reads a batch, claims it, sends it, and writes what happened to it.
//!
//! Whatever is unexpected ends the membership. The next one continues from what is durable, so nothing in memory matters.

use crate::batch::{Batch, Settled};
use crate::clock::now_ms;
use crate::metrics::{self, Observer};
use crate::outputs::written;
use crate::record::Record;
use crate::route::REWRITES_MANY;
use crate::work::{LATE, MembershipError, SOURCE, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tallystone_kafka::{ExactReader, Ledger, Membership, NotVerified, Position, TopicPartition, Transactions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long one poll of an idle member waits.
const IDLE: Duration = Duration::from_millis(250);
/// How long results wait for more records, to be written in one transaction with their claim.
const LINGER: Duration = Duration::from_millis(50);
/// For how long more records are taken into a batch that is not full.
const GATHER: Duration = Duration::from_millis(20);
/// After this time without a poll the partitions are paused and polling continues, because the group drops a member that does
/// not poll.
const UNPOLLED_MAX: Duration = Duration::from_secs(5);
/// How often a paused member polls.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// How long a stop waits for adds that are sent.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// How often it is verified that a topic is still the one that was read.
const VERIFY_EVERY: Duration = Duration::from_secs(2);
/// How often ledgers are written again: Kafka forgets the offsets of a group without members after days.
const REFRESH_EVERY: Duration = Duration::from_secs(3_600);
/// The pause before a record is written again that has been far too often.
const REWRITE_PAUSE: Duration = Duration::from_secs(1);

/// A member. Its calls of Kafka block, so it runs on a dedicated thread.
pub(crate) struct Member<'a> {
    work: &'a Work,
    reader: ExactReader<Observer>,
    transactions: Transactions,
    assignment: u64,
    ledgers: BTreeMap<TopicPartition, Ledger>,
    /// The ledgers as they were written or read last.
    durable: BTreeMap<TopicPartition, Ledger>,
    /// Of each partition, the offset after the last record that was read.
    read_to: BTreeMap<TopicPartition, i64>,
    /// The last record that this member has written to each of its partitions of late records, and not read back. Until it
    /// has, it reads no other records: late ones must not become late again in a growing queue.
    unread_late: BTreeMap<i32, i64>,
    settled: Settled,
    verify_at: Instant,
    /// Of each topic, the partition that was verified last.
    verified: [i32; 2],
    refresh_at: Instant,
    /// Whether something was written, so that Kafka works.
    has_committed: bool,
}

impl Membership for Member<'_> {
    type Error = MembershipError;

    /// Works until it is stopped. What was decided is committed then.
    async fn run(&mut self, stopping: &CancellationToken) -> Result<(), MembershipError> {
        while !stopping.is_cancelled() {
            let batch = self.gather()?;
            if self.refresh_at <= Instant::now() {
                self.refresh_at = Instant::now() + REFRESH_EVERY;
                self.durable.clear();
                self.commit(self.ledgers.clone(), Settled::default())?;
            }
            if !batch.is_empty() || !self.settled.is_empty() {
                self.step(batch, stopping).await?;
            }
            self.verify_some()?;
        }
        if !self.settled.is_empty() {
            self.step(Batch::default(), stopping).await?;
        }
        Ok(())
    }

    fn has_committed(&self) -> bool {
        self.has_committed
    }

    fn leave(self) {
        self.reader.close();
    }
}

impl<'a> Member<'a> {
    /// Joins the group.
    pub(crate) fn join(work: &'a Work) -> Result<Member<'a>, MembershipError> {
        let transactions = Transactions::new(&work.reader, &work.transactional_id)?;
        transactions.begin()?;
        let observer = Observer::new(&work.reader.topics, work.undecided.clone(), work.steps.clone());
        let now = Instant::now();
        Ok(Member {
            work,
            reader: ExactReader::join(&work.reader, observer)?,
            transactions,
            assignment: 0,
            ledgers: BTreeMap::new(),
            durable: BTreeMap::new(),
            read_to: BTreeMap::new(),
            unread_late: BTreeMap::new(),
            settled: Settled::default(),
            verify_at: now + VERIFY_EVERY,
            verified: [-1; 2],
            refresh_at: now + REFRESH_EVERY,
            has_committed: false,
        })
    }

    /// Takes records: the first one that comes, and those that follow at once.
    fn gather(&mut self) -> Result<Batch, MembershipError> {
        let mut batch = Batch::default();
        let mut until = Instant::now() + if self.settled.is_empty() { IDLE } else { LINGER };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let polled = match self.reader.poll(left) {
                Some(Ok(message)) => {
                    let place = self.reader.topic_partition(&message);
                    place.map(|place| (Record::of(&message, place, place.topic == LATE), Ledger::begin(&message)))
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "nothing read");
                    None
                }
                None => None,
            };
            if self.is_reassigned()? {
                batch = Batch::default();
            }
            if let Some((record, begin)) = polled {
                if batch.is_empty() {
                    until = Instant::now() + GATHER;
                }
                self.take(&record, begin)?;
                batch.push(record);
            }
            if batch.is_full(self.work.batch_records_max) || left.is_zero() {
                return Ok(batch);
            }
        }
    }

    /// Takes over what was durable of the partitions, if they have changed. Returns whether they have: then everything that
    /// was read before is void.
    fn is_reassigned(&mut self) -> Result<bool, MembershipError> {
        if let Some(why) = self.reader.failed() {
            return Err(MembershipError::Reader(why));
        }
        let assignment = self.reader.assignment_number();
        if assignment == self.assignment {
            return Ok(false);
        }
        self.assignment = assignment;
        let ledgers = self.reader.ledgers();
        self.ledgers = ledgers.into_iter().filter_map(|(place, ledger)| Some((place, ledger?))).collect();
        self.durable = self.ledgers.clone();
        self.read_to = self.ledgers.iter().map(|(place, ledger)| (*place, ledger.next_offset)).collect();
        (self.unread_late, self.settled) = (BTreeMap::new(), Settled::default());
        // A partition that this member had before may still be paused.
        self.reader.pause(false, |_| true)?;
        self.serving(true);
        Ok(true)
    }

    /// Notes that a record was read.
    fn take(&mut self, record: &Record, begin: Ledger) -> Result<(), MembershipError> {
        let place = record.place;
        self.ledgers.entry(place).or_insert(begin);
        let read_to = self.read_to.entry(place).or_insert(record.offset);
        if record.offset < *read_to {
            // The log is shorter than it was. The next membership finds out why.
            return Err(MembershipError::Reader(format!(
                "record {} of {} was read again",
                record.offset, record.topic
            )));
        }
        *read_to = record.position.next_offset;
        let is_last = |last: &i64| place.topic == LATE && record.offset >= *last;
        if self.unread_late.get(&place.partition).is_some_and(is_last) {
            self.unread_late.remove(&place.partition);
            if self.unread_late.is_empty() {
                self.reader.pause(false, |place| place.topic == SOURCE)?;
            }
        }
        Ok(())
    }

    /// Writes what happened to the last batch, and claims this one; then sends it.
    async fn step(&mut self, batch: Batch, stopping: &CancellationToken) -> Result<(), MembershipError> {
        let mut settled = std::mem::take(&mut self.settled);
        // The pause before records are written again must not delay the adds of this batch: they would be late by it, and then
        // delay the next ones, for ever. What is held stays claimed, and is written once nothing else is there to be sent.
        let is_held = settled.rewrites() >= REWRITES_MANY
            && !batch.is_empty()
            && settled.decided.len() < self.work.batch_records_max;
        let held = if is_held { std::mem::take(&mut settled) } else { Settled::default() };
        let mut ledgers = self.ledgers.clone();
        for (place, position) in &settled.positions {
            if let Some(ledger) = ledgers.get_mut(place) {
                ledger.decided(*position);
            }
        }
        let claimed = batch.claim(&mut ledgers, now_ms(), self.work.namespace.as_deref());
        self.slow_down(&settled).await;
        self.commit(ledgers, settled)?;
        if claimed.len() == 0 {
            return Ok(());
        }
        metrics::read(claimed.len());
        let work = self.work;
        let settling = work.sender.settle(&claimed.sent);
        let Some(fates) = self.poll_while(settling, stopping).await? else { return Ok(()) };
        work.steps.reach("adds are answered");
        metrics::decided(&fates);
        self.settled = held.with(claimed.settled(fates));
        Ok(())
    }

    /// Waits for the fates of adds. `None`: the partitions have changed, or the process stops.
    async fn poll_while<T>(
        &mut self,
        settling: impl Future<Output = T>,
        stopping: &CancellationToken,
    ) -> Result<Option<T>, MembershipError> {
        tokio::pin!(settling);
        let (mut is_paused, mut wait, began) = (false, UNPOLLED_MAX, Instant::now());
        loop {
            let stopped = async {
                stopping.cancelled().await;
                tokio::time::sleep(STOP_WAIT).await;
            };
            tokio::select! {
                settled = &mut settling => {
                    if is_paused {
                        let is_held = !self.unread_late.is_empty();
                        self.reader.pause(false, |place| !is_held || place.topic == LATE)?;
                        self.serving(true);
                    }
                    return Ok(Some(settled));
                }
                () = stopped => return Ok(None),
                () = tokio::time::sleep(wait) => {}
            }
            if !is_paused {
                tracing::warn!(after = ?began.elapsed(), "adds have no definite answer yet; waiting");
                self.serving(false);
                self.reader.pause(true, |_| true)?;
                (is_paused, wait) = (true, POLL_EVERY);
            }
            let has_read = matches!(self.reader.poll(Duration::ZERO), Some(Ok(_)));
            if self.is_reassigned()? {
                if has_read {
                    return Err(MembershipError::Reader("a record was read during a rebalance".to_owned()));
                }
                return Ok(None);
            }
            if has_read {
                return Err(MembershipError::Reader("a record was read although the partitions are paused".to_owned()));
            }
        }
    }

    /// Writes records, and the ledgers that have changed, in one transaction.
    fn commit(&mut self, ledgers: BTreeMap<TopicPartition, Ledger>, settled: Settled) -> Result<(), MembershipError> {
        self.verify_sources(&settled)?;
        let now_ms = now_ms();
        let outputs = settled.decided.iter().map(|decided| self.work.targets.output(decided, now_ms)).collect();
        let is_changed = |(place, ledger): &(&TopicPartition, &Ledger)| self.durable.get(place) != Some(ledger);
        let changed: BTreeMap<TopicPartition, Ledger> =
            ledgers.iter().filter(is_changed).map(|(place, ledger)| (*place, *ledger)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let offsets = self.transactions.commit(&self.reader, outputs, &changed)?;
        self.has_committed = true;
        self.durable.extend(changed);
        self.ledgers = ledgers;
        written(&settled.decided);
        for ((topic, partition), offset) in offsets {
            let place = TopicPartition { topic: LATE, partition };
            if topic == self.work.targets.late && self.reader.ledgers().contains_key(&place) {
                self.unread_late.insert(partition, offset);
            }
        }
        if !self.unread_late.is_empty() {
            self.reader.pause(true, |place| place.topic == SOURCE)?;
        }
        Ok(())
    }

    /// Verifies that the topics in which records were read are still the same, before other records are written for them. A
    /// topic that was created again meanwhile will be read from its beginning, and such a record would be written twice.
    fn verify_sources(&self, settled: &Settled) -> Result<(), MembershipError> {
        let places: BTreeSet<TopicPartition> = settled.decided.iter().map(|decided| decided.record.place).collect();
        let anchor = |place: TopicPartition| Some((place, self.ledgers.get(&place)?.anchor));
        let anchors: BTreeMap<TopicPartition, Position> = places.into_iter().filter_map(anchor).collect();
        if anchors.is_empty() { Ok(()) } else { Ok(self.reader.verify(&anchors)?) }
    }

    /// Verifies one partition of each topic now and then, also where nothing comes: a topic that was created again may have as
    /// many records as the old one. All partitions of a topic are from the same creation.
    fn verify_some(&mut self) -> Result<(), MembershipError> {
        if self.verify_at > Instant::now() {
            return Ok(());
        }
        self.verify_at = Instant::now() + VERIFY_EVERY;
        let mut anchors = BTreeMap::new();
        for topic in [SOURCE, LATE] {
            let mut places = self.ledgers.iter().filter(|(place, _)| place.topic == topic);
            let last = self.verified[topic];
            let next = places.clone().find(|(place, _)| place.partition > last).or_else(|| places.next());
            if let Some((place, ledger)) = next {
                self.verified[topic] = place.partition;
                anchors.insert(*place, ledger.anchor);
            }
        }
        match self.reader.verify(&anchors) {
            Ok(()) => {}
            Err(NotVerified::Unanswered(error)) => {
                tracing::debug!(%error, "the topics are not verified now");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        // It was the same topic when the latest position was read.
        for place in anchors.keys() {
            if let Some(ledger) = self.ledgers.get_mut(place) {
                ledger.anchor = ledger.latest;
            }
        }
        Ok(())
    }

    /// Pauses if records are written again for ever.
    async fn slow_down(&self, settled: &Settled) {
        let rewrites = settled.rewrites();
        if rewrites >= REWRITES_MANY {
            tracing::warn!(
                rewrites,
                "records are too late again and again: compare the clocks of this machine and of Redis"
            );
            tokio::time::sleep(REWRITE_PAUSE).await;
        }
    }

    fn serving(&self, is_serving: bool) {
        self.work.is_serving.send_if_modified(|was| std::mem::replace(was, is_serving) != is_serving);
    }
}
