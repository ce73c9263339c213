//! The state of a partition: pairs, the time of its log, up to where its views are deduplicated, and where the records of the
//! state are that are still needed. A function of the prefix of the partition, without I/O.

use super::records::{StateRecord, read, write_pairs, write_position};
use crate::config::ViewNamespace;
use crate::counting::Counting;
use crate::dedupe::PairHasher;
use crate::log::{Deltas, PairsRecord};
use rdkafka::Message;
use std::collections::VecDeque;
use tallystone_kafka::Position;

/// Records of the state are deleted in parts of so much time of the log.
const PART_MS: u64 = 60_000;

/// The state.
pub(super) struct PartitionState {
    counting: Counting,
    /// The time of the log, Unix ms: the highest of its records. It never goes back, whatever the clocks of brokers or
    /// producers do.
    at_ms: u64,
    /// After the last record that was taken.
    position: Option<Position>,
    /// Whether records were taken that are not committed.
    is_dirty: bool,
    parts: VecDeque<Part>,
}

/// Records of the state that are deleted together.
struct Part {
    begin_ms: u64,
    /// The latest time of the log of one of them.
    end_ms: u64,
    last_offset: i64,
}

/// What a commit writes.
pub(super) struct Written {
    /// Values of the records of the state, in their order.
    pub(super) state: Vec<Vec<u8>>,
    /// What to add.
    pub(super) deltas: Deltas,
    /// After the last record that was taken.
    pub(super) position: Position,
}

impl PartitionState {
    /// That of an empty log.
    pub(super) fn new(namespaces: &[ViewNamespace]) -> PartitionState {
        PartitionState {
            counting: Counting::new(namespaces),
            at_ms: 0,
            position: None,
            is_dirty: false,
            parts: VecDeque::new(),
        }
    }

    /// Takes the next record of the state.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn restore(&mut self, record: &impl Message) -> Result<(), String> {
        let offset = record.offset();
        let bytes = record.payload().unwrap_or_default();
        let (at_ms, read) = read(bytes).ok_or_else(|| format!("record {offset} of the state cannot be read"))?;
        self.at_ms = self.at_ms.max(at_ms);
        match read {
            StateRecord::Pairs { name, pairs } => {
                // Pairs of another window, or of a namespace that was removed, count no more.
                if let Some(restored) = self.counting.restored(name) {
                    PairsRecord::read(pairs, restored);
                }
            }
            StateRecord::Position(position) => self.position = Some(position),
        }
        self.wrote(at_ms, offset);
        Ok(())
    }

    /// The position that was restored belongs to a topic that was deleted. The pairs stay: their windows have not ended.
    pub(super) fn forget_position(&mut self) {
        self.position = None;
    }

    /// Takes the next record of the views.
    pub(super) fn take(&mut self, hasher: &PairHasher, record: &impl Message) {
        let record_ms = record.timestamp().to_millis().unwrap_or_default();
        self.at_ms = self.at_ms.max(u64::try_from(record_ms).unwrap_or_default());
        self.counting.take(hasher, self.at_ms, record.payload().unwrap_or_default());
        self.position = Some(Position::after(record));
        self.is_dirty = true;
    }

    /// What the records since the last commit have changed; `None`: there were none.
    pub(super) fn commit(&mut self) -> Option<Written> {
        let position = self.position.filter(|_| self.is_dirty)?;
        let taken = self.counting.commit(self.at_ms);
        let new = taken.pairs.iter().filter(|(_, _, pairs)| !pairs.bytes().is_empty());
        let mut state: Vec<_> = new.map(|(name, _, pairs)| write_pairs(self.at_ms, name, pairs)).collect();
        state.push(write_position(self.at_ms, &position));
        Some(Written { state, deltas: taken.deltas, position })
    }

    /// The commit is durable; `last_offset` is that of its last record of the state. Returns before which offset the records of
    /// the state are of no more use, if there are new ones.
    pub(super) fn committed(&mut self, last_offset: i64) -> Option<i64> {
        self.is_dirty = false;
        self.wrote(self.at_ms, last_offset);
        let needed_from_ms = self.counting.needed_from_ms(self.at_ms);
        let mut before = None;
        // The last part has the position.
        while self.parts.len() > 1 && self.parts.front().is_some_and(|oldest| oldest.end_ms < needed_from_ms) {
            before = self.parts.pop_front().map(|oldest| oldest.last_offset + 1);
        }
        before
    }

    fn wrote(&mut self, at_ms: u64, offset: i64) {
        match self.parts.back_mut().filter(|last| at_ms < last.begin_ms + PART_MS) {
            Some(last) => (last.end_ms, last.last_offset) = (last.end_ms.max(at_ms), offset),
            None => self.parts.push_back(Part { begin_ms: at_ms, end_ms: at_ms, last_offset: offset }),
        }
    }

    /// After the last record that was taken.
    pub(super) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Whether all of it is durable.
    pub(super) fn is_durable(&self) -> bool {
        !self.is_dirty
    }

    /// The bytes of the largest record that the next commit writes.
    pub(super) fn new_bytes(&self) -> usize {
        self.counting.new_bytes()
    }

    /// The number of pairs, and their memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        self.counting.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::View;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;
    use std::collections::BTreeMap;

    const HOUR_MS: i64 = 3_600_000;
    const AT_MS: i64 = 1_790_000_000_000;

    fn views(offset: i64, at_ms: i64, users: &[&str]) -> OwnedMessage {
        let mut value = Vec::new();
        for user in users {
            let view = View { video: "v".into(), user: (*user).into(), client_ms: 0 };
            view.write("default", &mut value);
        }
        OwnedMessage::new(Some(value), None, "t".to_owned(), Timestamp::CreateTime(at_ms), 0, offset, None)
    }

    fn state(number: i64, value: Vec<u8>) -> OwnedMessage {
        OwnedMessage::new(Some(value), None, "s".to_owned(), Timestamp::CreateTime(1), 0, number, None)
    }

    fn counted(written: &Written) -> BTreeMap<&str, u32> {
        written.deltas.iter().map(|((namespace, _), delta)| (namespace.as_str(), *delta)).collect()
    }

    #[test]
    fn v2_a_state_that_is_read_back_decides_as_the_one_that_wrote_it() {
        let (hasher, namespaces) = (PairHasher::new(&[3; 32]), [ViewNamespace::default()]);
        let mut first = PartitionState::new(&namespaces);
        assert!(first.commit().is_none());
        first.take(&hasher, &views(7, AT_MS, &["a", "b", "a"]));
        // The clock of a broker is behind: the time of the log stays.
        first.take(&hasher, &views(8, AT_MS - HOUR_MS, &["c"]));
        let written = first.commit().unwrap();
        assert_eq!(written.position.next_offset, 9);
        assert_eq!(
            counted(&written),
            [("daily-visitors-default", 3), ("page-views-default", 4), ("views-default", 3)].into()
        );
        assert_eq!(first.committed(2), None);

        let mut second = PartitionState::new(&namespaces);
        for (value, number) in written.state.into_iter().zip(0..) {
            second.restore(&state(number, value)).unwrap();
        }
        assert_eq!((second.position(), second.is_durable()), (first.position(), true));
        for state in [&mut first, &mut second] {
            state.take(&hasher, &views(9, AT_MS + HOUR_MS - 1, &["a", "c", "d"]));
            assert_eq!(counted(&state.commit().unwrap())["views-default"], 1, "d");
            state.take(&hasher, &views(10, AT_MS + HOUR_MS, &["a", "c", "d"]));
            assert_eq!(counted(&state.commit().unwrap())["views-default"], 2, "a and c");
        }
        assert!(second.restore(&state(9, vec![9])).unwrap_err().contains("record 9"));
    }

    #[test]
    fn v2_records_of_the_state_are_deleted_when_no_window_needs_them() {
        let namespaces = [ViewNamespace { daily_visitors: false, ..ViewNamespace::default() }];
        let (hasher, mut state) = (PairHasher::new(&[3; 32]), PartitionState::new(&namespaces));
        let mut commit = |minute: i64| {
            state.take(&hasher, &views(minute, AT_MS + minute * 60_000, &["a"]));
            let _ = state.commit();
            state.committed(2 * minute)
        };
        for minute in 0..60 {
            assert_eq!(commit(minute), None, "minute {minute}");
        }
        // The view of minute 0 counts until the window ends, and the next one to the millisecond after it.
        assert_eq!([commit(60), commit(61)], [Some(1), Some(3)]);
        assert_eq!(commit(1_000), Some(123), "all but the last one, which has the position");
    }
}
