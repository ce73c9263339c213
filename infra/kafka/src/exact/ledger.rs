//! What is durable of a partition: up to where all is decided, by which records the log is recognized, and which records a
//! member may have processed beyond that.

use crate::position::{Position, RecordMark};
use rdkafka::Message;

/// A partition of one of a reader's topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The number of the topic in the reader's list.
    pub topic: usize,
    /// The partition.
    pub partition: i32,
}

/// Which records at or above the decided position a member may have processed already. It is durable before the member
/// processes the first of them. So what is not claimed was certainly never processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The offset after the last of them.
    pub to_offset: i64,
    /// When the first of them may have been processed, Unix ms.
    pub from_ms: i64,
    /// When the latest claim was made, Unix ms.
    pub until_ms: i64,
}

/// The durable state of a partition. The offset that is committed with its text is `next_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Every record before this offset is decided.
    pub next_offset: i64,
    /// A record of the log: the last that was decided, or the first that was read.
    pub latest: Position,
    /// An earlier one, which the log still had when `latest` had been read. If `latest` was read from a topic that had been
    /// created again, the log has another record here.
    pub anchor: Position,
    /// What may be processed beyond `next_offset`.
    pub claim: Claim,
}

/// The first word of a ledger's text.
const VERSION: &str = "exact1";
/// Words of a position: its offset, and the three of a mark.
const POSITION_WORDS: usize = 4;

impl Ledger {
    /// That of a partition of which this is the first record.
    pub fn begin(first: &impl Message) -> Ledger {
        let (next_offset, seen) = (first.offset(), Position::after(first));
        let claim = Claim { to_offset: next_offset, from_ms: 0, until_ms: 0 };
        Ledger { next_offset, latest: seen, anchor: seen, claim }
    }

    /// Claims all records before this offset, as of this time (Unix ms). A claim that is still open is extended, so that it
    /// never says less than before.
    pub fn claim(&mut self, to_offset: i64, now_ms: i64) {
        let open = self.claim;
        self.claim = if open.to_offset > self.next_offset {
            Claim {
                to_offset: open.to_offset.max(to_offset),
                from_ms: open.from_ms.min(now_ms),
                until_ms: open.until_ms.max(now_ms),
            }
        } else {
            Claim { to_offset, from_ms: now_ms, until_ms: now_ms }
        };
    }

    /// All records before this position are decided.
    pub fn decided(&mut self, position: Position) {
        self.next_offset = position.next_offset;
        self.latest = position;
    }

    /// The text that is committed with `next_offset`.
    pub(super) fn metadata(&self) -> String {
        let position = |position: &Position| format!("{} {}", position.next_offset, position.last);
        let Claim { to_offset, from_ms, until_ms } = self.claim;
        let (latest, anchor) = (position(&self.latest), position(&self.anchor));
        format!("{VERSION} {latest} {anchor} {to_offset} {from_ms} {until_ms}")
    }

    /// Reads it. `None`: another program has committed the offset.
    pub(super) fn read(next_offset: i64, metadata: &str) -> Option<Ledger> {
        let words: Vec<&str> = metadata.split(' ').collect();
        let (version, words) = words.split_first()?;
        let (positions, claim) = words.split_at_checked(2 * POSITION_WORDS)?;
        let position = |words: &[&str]| {
            let last: RecordMark = words[1..].join(" ").parse().ok()?;
            Some(Position { next_offset: words[0].parse().ok()?, last })
        };
        let [to_offset, from_ms, until_ms] = claim else { return None };
        let number = |word: &str| word.parse::<i64>().ok();
        let claim = Claim { to_offset: number(to_offset)?, from_ms: number(from_ms)?, until_ms: number(until_ms)? };
        let (latest, anchor) = positions.split_at(POSITION_WORDS);
        let ledger = Ledger { next_offset, latest: position(latest)?, anchor: position(anchor)?, claim };
        (*version == VERSION).then_some(ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    fn record(offset: i64, value: &str) -> OwnedMessage {
        let time = Timestamp::CreateTime(1_700_000_000_000 + offset);
        OwnedMessage::new(Some(value.into()), None, "t".to_owned(), time, 0, offset, None)
    }

    #[test]
    fn n17_a_ledger_is_read_as_it_was_written() {
        let mut ledger = Ledger::begin(&record(7, "a"));
        assert_eq!((ledger.next_offset, ledger.latest.next_offset, ledger.claim.to_offset), (7, 8, 7));
        ledger.claim(20, 5_000);
        assert_eq!(Ledger::read(7, &ledger.metadata()), Some(ledger));
        ledger.decided(Position::after(&record(9, "b")));
        assert_eq!(Ledger::read(10, &ledger.metadata()), Some(ledger));
        assert!(
            ledger.metadata().starts_with("exact1 10 1 1700000000009 "),
            "the text is stored, so it must not change"
        );
        for foreign in ["", "1 5 af63dc4c8601ec8c", "exact1", &format!("{} 1", ledger.metadata()), "exact2 1 2"] {
            assert_eq!(Ledger::read(10, foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn n17_an_open_claim_never_shrinks_and_a_settled_one_is_replaced() {
        let mut ledger = Ledger::begin(&record(0, "a"));
        ledger.claim(10, 1_000);
        // Another member takes over, with a clock that is behind, and reads less at once.
        ledger.claim(5, 900);
        assert_eq!(ledger.claim, Claim { to_offset: 10, from_ms: 900, until_ms: 1_000 });
        ledger.decided(Position::after(&record(4, "b")));
        ledger.claim(12, 2_000);
        assert_eq!(ledger.claim, Claim { to_offset: 12, from_ms: 900, until_ms: 2_000 });
        ledger.decided(Position::after(&record(11, "b")));
        ledger.claim(13, 1_500);
        assert_eq!(ledger.claim, Claim { to_offset: 13, from_ms: 1_500, until_ms: 1_500 });
    }
}
