//! Where a member begins to read a partition: at the durable position of the decided group, unless the topic was created again.

use super::ledger::{Ledger, TopicPartition};
use crate::logging::LogContext;
use crate::position::Position;
use crate::verifier::{Verdict, Verifier};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long one request for offsets waits. It also waits while a transaction is pending on one of them.
const OFFSETS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all of them may take. A transaction of a member that was killed is pending until Kafka aborts it: for 10 s, and
/// Kafka searches for such transactions every 10 s.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// What finds durable positions.
pub(super) struct Positions {
    pub(super) topics: Vec<String>,
    /// Reads the offsets of the decided group; it never joins it.
    pub(super) decided: BaseConsumer<LogContext>,
    /// One for each topic.
    pub(super) verifiers: Vec<Verifier>,
}

/// Sets where to read each of these partitions, and returns its ledger, if it has one. Blocks until Kafka has answered.
///
/// # Errors
/// Kafka has not answered in time.
pub(super) fn starts<C: ConsumerContext>(
    positions: &Positions,
    consumer: &BaseConsumer<C>,
    assigned: &mut TopicPartitionList,
) -> Result<BTreeMap<TopicPartition, Option<Ledger>>, KafkaError> {
    let give_up_at = Instant::now() + START_TIMEOUT;
    loop {
        match attempt(positions, consumer, assigned) {
            Err(error) if Instant::now() < give_up_at => {
                tracing::debug!(%error, "the durable positions are not known yet");
            }
            done => return done,
        }
    }
}

fn attempt<C: ConsumerContext>(
    positions: &Positions,
    consumer: &BaseConsumer<C>,
    assigned: &mut TopicPartitionList,
) -> Result<BTreeMap<TopicPartition, Option<Ledger>>, KafkaError> {
    // The order matters: see `exact/mod.rs`.
    let committed = offsets(positions, &consumer.committed_offsets(assigned.clone(), OFFSETS_TIMEOUT)?)?;
    let decided = offsets(positions, &positions.decided.committed_offsets(assigned.clone(), OFFSETS_TIMEOUT)?)?;
    let mut ledgers: BTreeMap<TopicPartition, Option<Ledger>> = committed.keys().map(|place| (*place, None)).collect();
    // Where both groups have one, that of the decided group counts.
    for (place, (offset, metadata)) in committed.iter().chain(&decided) {
        if let Some(ledger) = offset.and_then(|offset| Ledger::read(offset, metadata)) {
            ledgers.insert(*place, Some(ledger));
        }
    }
    let is_again = created_again(positions, &ledgers)?;
    for (place, ledger) in &mut ledgers {
        let of = |offsets: &BTreeMap<TopicPartition, (Option<i64>, String)>| {
            offsets.get(place).and_then(|(offset, _)| *offset)
        };
        // Where the group is ahead of the decided group, an operator has skipped records.
        let next = of(&committed).max(of(&decided));
        let offset = match next {
            Some(next) if !is_again.contains(place) => Offset::Offset(next),
            _ => Offset::Beginning,
        };
        if is_again.contains(place) {
            let (topic, partition) = (&positions.topics[place.topic], place.partition);
            tracing::warn!(topic, partition, "the topic was created again: reading the partition from its beginning");
            *ledger = None;
        }
        assigned.set_partition_offset(&positions.topics[place.topic], place.partition, offset)?;
    }
    Ok(ledgers)
}

/// The offset and metadata of each partition.
fn offsets(
    positions: &Positions,
    found: &TopicPartitionList,
) -> Result<BTreeMap<TopicPartition, (Option<i64>, String)>, KafkaError> {
    let mut offsets = BTreeMap::new();
    for one in found.elements() {
        one.error()?;
        let Some(topic) = positions.topics.iter().position(|topic| topic == one.topic()) else { continue };
        let offset = match one.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        offsets.insert(TopicPartition { topic, partition: one.partition() }, (offset, one.metadata().to_owned()));
    }
    Ok(offsets)
}

/// The partitions whose log has other records than those by which their ledgers recognize it.
fn created_again(
    positions: &Positions,
    ledgers: &BTreeMap<TopicPartition, Option<Ledger>>,
) -> Result<Vec<TopicPartition>, KafkaError> {
    let mut again = Vec::new();
    for mark in [|ledger: &Ledger| ledger.latest, |ledger: &Ledger| ledger.anchor] {
        let marks = ledgers.iter().filter_map(|(place, ledger)| Some((*place, mark(ledger.as_ref()?))));
        let verdicts = verdicts(positions, &marks.collect())?;
        again.extend(verdicts.into_iter().filter(|(_, is_same)| !is_same).map(|(place, _)| place));
    }
    Ok(again)
}

/// Whether the log of each of these partitions still has this record, or can no longer have it because it was too old.
pub(super) fn verdicts(
    positions: &Positions,
    marks: &BTreeMap<TopicPartition, Position>,
) -> Result<BTreeMap<TopicPartition, bool>, KafkaError> {
    let mut verified = BTreeMap::new();
    for (topic, verifier) in positions.verifiers.iter().enumerate() {
        let of_topic = marks.iter().filter(|(place, _)| place.topic == topic);
        let of_topic: BTreeMap<i32, Position> = of_topic.map(|(place, mark)| (place.partition, *mark)).collect();
        if of_topic.is_empty() {
            continue;
        }
        for (partition, verdict) in verifier.verify(&of_topic) {
            let is_same = match verdict {
                Verdict::Same | Verdict::Empty => true,
                Verdict::Different => false,
                Verdict::Unanswered => return Err(KafkaError::OffsetFetch(RDKafkaErrorCode::OperationTimedOut)),
            };
            verified.insert(TopicPartition { topic, partition }, is_same);
        }
    }
    Ok(verified)
}
