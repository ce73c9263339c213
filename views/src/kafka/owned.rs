//! A partition that a member has: how its state is read back, and how it takes records.

use super::partition::PartitionState;
use super::work::{Observer, ViewMembershipError, Work};
use crate::metrics;
use crate::owner::PartitionMemory;
use rdkafka::message::{Message, OwnedMessage};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;
use tallystone_kafka::{Claim, ExactReader, Ledger, NotVerified, Restored, RestoredTopic, TopicPartition};
use tokio::time::Instant;

/// How often a member polls while it reads pairs: the group drops a member that does not.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// A state that does not continue for so long is not there. An open transaction before it ends sooner.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(60);

/// A partition of this member.
pub(super) struct Owned<'a> {
    pub(super) state: PartitionState,
    memory: PartitionMemory<'a>,
    /// As it was written or read last; `None`: none of its records was ever read.
    pub(super) ledger: Option<Ledger>,
    /// The offset after the last record that was read.
    next_offset: i64,
    /// Records before this offset are in the state already, although the reader begins before it.
    skip_to: i64,
    /// Whether views were taken since the partition was last advanced.
    pub(super) has_views: bool,
}

impl<'a> Owned<'a> {
    /// Reads the state of a partition back. `None`: the partitions have changed meanwhile.
    pub(super) fn read_back(
        work: &'a Work,
        reader: &ExactReader<Observer>,
        state_topic: &RestoredTopic,
        (place, ledger): (TopicPartition, Option<Ledger>),
    ) -> Result<Option<Owned<'a>>, ViewMembershipError> {
        let assignment = reader.assignment_number();
        let mut state = PartitionState::new(&work.namespaces);
        let (mut polled_at, mut continued_at) = (Instant::now(), Instant::now());
        let done: Result<bool, String> = state_topic.read(place.partition, |next| {
            if polled_at.elapsed() >= POLL_EVERY {
                polled_at = Instant::now();
                if matches!(reader.poll(Duration::ZERO), Some(Ok(_))) {
                    return ControlFlow::Break(Err("a record was read while pairs were read back".to_owned()));
                }
                if reader.assignment_number() != assignment {
                    return ControlFlow::Break(Ok(false));
                }
            }
            match next {
                Restored::Record(record) => {
                    continued_at = Instant::now();
                    if let Err(why) = state.restore(record) {
                        return ControlFlow::Break(Err(why));
                    }
                }
                Restored::End if ledger.is_none() => return ControlFlow::Break(Ok(true)),
                Restored::End | Restored::Nothing => {}
            }
            // The ledger was written in the same transaction as this position. Offsets alone are not compared: the state may
            // have positions of a topic that was deleted.
            match ledger.is_some_and(|ledger| state.position() == Some(ledger.latest)) {
                true => ControlFlow::Break(Ok(true)),
                false if continued_at.elapsed() < RESTORE_TIMEOUT => ControlFlow::Continue(()),
                false => ControlFlow::Break(Err(format!(
                    "the topic {} does not have the state of partition {}: its records were deleted",
                    work.log.topics.state, place.partition
                ))),
            }
        })?;
        if !done.map_err(ViewMembershipError::Reader)? {
            return Ok(None);
        }
        let mut owned = Owned {
            next_offset: ledger.map_or(0, |ledger| ledger.next_offset),
            state,
            memory: work.memory.partition(),
            ledger,
            skip_to: 0,
            has_views: false,
        };
        if owned.ledger.is_none() {
            owned.continue_from_state(reader, place)?;
        }
        owned.measure(place.partition);
        Ok(Some(owned))
    }

    /// The group has forgotten its position, or the topic was created again. The state has its own position, and knows the
    /// record before it.
    fn continue_from_state(
        &mut self,
        reader: &ExactReader<Observer>,
        place: TopicPartition,
    ) -> Result<(), ViewMembershipError> {
        let Some(position) = self.state.position() else { return Ok(()) };
        match reader.verify(&BTreeMap::from([(place, position)])) {
            Ok(()) => {
                let next_offset = position.next_offset;
                let claim = Claim { to_offset: next_offset, from_ms: 0, until_ms: 0 };
                self.ledger = Some(Ledger { next_offset, latest: position, anchor: position, claim });
                self.skip_to = next_offset;
            }
            Err(NotVerified::CreatedAgain) => self.state.forget_position(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes over what was durable when the partitions changed, which is the state that this partition had.
    pub(super) fn kept(self, ledger: Option<Ledger>) -> Owned<'a> {
        Owned { ledger, skip_to: 0, ..self }
    }

    /// Takes a record of the views.
    pub(super) fn take(&mut self, work: &Work, message: &OwnedMessage) -> Result<(), ViewMembershipError> {
        let (offset, partition) = (message.offset(), message.partition());
        if offset < self.next_offset {
            // The log is shorter than it was. The next membership finds out why.
            return Err(ViewMembershipError::Reader(format!(
                "record {offset} of partition {partition} was read again"
            )));
        }
        self.next_offset = offset + 1;
        if offset < self.skip_to {
            return Ok(());
        }
        self.ledger.get_or_insert_with(|| Ledger::begin(message));
        self.state.take(&work.log.hasher, message);
        self.has_views |= message.payload().is_some_and(|views| !views.is_empty());
        Ok(())
    }

    /// Reports how much memory it has.
    pub(super) fn measure(&mut self, partition: i32) {
        let size = self.state.size();
        self.memory.set(size.1);
        metrics::pairs(number(partition), size);
    }

    /// Whether this is the durable state of a partition with this ledger. A state is a function of the prefix, so the one that
    /// ends at the durable position is it.
    pub(super) fn is_at(&self, durable: Option<Ledger>) -> bool {
        let is_same =
            |(own, durable): (Ledger, Ledger)| (own.next_offset, own.latest) == (durable.next_offset, durable.latest);
        self.state.is_durable() && self.ledger.zip(durable).is_some_and(is_same)
    }
}

/// Another member has it, and reports it.
pub(super) fn forget_metrics(partition: i32) {
    metrics::pairs(number(partition), (0, 0));
    metrics::lag(partition, 0);
}

fn number(partition: i32) -> u16 {
    u16::try_from(partition).unwrap_or(u16::MAX)
}
