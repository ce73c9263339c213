//! A batch: the records that are decided together, and what their partitions' ledgers become by it.

use crate::add::Add;
use crate::record::Record;
use crate::route::{Dead, Fate, Late, Route, route};
use std::collections::BTreeMap;
use tallystone_kafka::{Ledger, Position, TopicPartition};

/// Records as they are read, in the order of each partition.
#[derive(Default)]
pub(crate) struct Batch {
    records: Vec<Record>,
    bytes: usize,
}

/// A batch is full at this size, too: one record may have a megabyte.
const BYTES_MAX: usize = 16 * 1024 * 1024;

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn is_full(&self, records_max: usize) -> bool {
        self.records.len() >= records_max || self.bytes >= BYTES_MAX
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.bytes += record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len);
        self.records.push(record);
    }

    /// Decides which adds are sent, as of this time (Unix ms), and claims all records in the ledgers of their partitions. The
    /// claims must be durable before the first add is sent.
    pub(crate) fn claim(
        self,
        ledgers: &mut BTreeMap<TopicPartition, Ledger>,
        now_ms: i64,
        namespace: Option<&str>,
    ) -> Claimed {
        let mut claimed = Claimed::default();
        for record in self.records {
            let ledger = &ledgers[&record.place];
            match Add::read(record.value.as_deref(), namespace) {
                Err((dead, why)) => claimed.decide(record, Fate::Dead(dead, why)),
                Ok(add) => match route(record.offset, record.at_ms, record.origin.rewrites, &ledger.claim, now_ms) {
                    Route::Rewrite(late) => claimed.decide(record, Fate::Late(late)),
                    Route::Send { perhaps_counted } => claimed.sent.push(Sent { record, add, perhaps_counted }),
                },
            }
        }
        for (place, position) in &claimed.positions() {
            if let Some(ledger) = ledgers.get_mut(place) {
                ledger.claim(position.next_offset, now_ms);
            }
        }
        claimed
    }
}

/// An add that is sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) record: Record,
    pub(crate) add: Add,
    pub(crate) perhaps_counted: bool,
}

/// A batch whose records are claimed.
#[derive(Default)]
pub(crate) struct Claimed {
    pub(crate) sent: Vec<Sent>,
    decided: Vec<Decided>,
}

/// A record that is written again or given up.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) record: Record,
    pub(crate) what: Written,
}

/// What is written for a record.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    Again(Late),
    DeadLetter(Dead, String),
}

impl Claimed {
    /// The number of its records.
    pub(crate) fn len(&self) -> usize {
        self.sent.len() + self.decided.len()
    }

    fn decide(&mut self, record: Record, fate: Fate) {
        let what = match fate {
            Fate::Counted { .. } => return,
            Fate::Late(late) => Written::Again(late),
            Fate::Dead(dead, why) => Written::DeadLetter(dead, why),
        };
        self.decided.push(Decided { record, what });
    }

    /// Of each partition, the position after its last record.
    fn positions(&self) -> BTreeMap<TopicPartition, Position> {
        let mut positions: BTreeMap<TopicPartition, Position> = BTreeMap::new();
        let decided = self.decided.iter().map(|decided| &decided.record);
        for record in self.sent.iter().map(|sent| &sent.record).chain(decided) {
            let last = positions.entry(record.place).or_insert(record.position);
            if record.position.next_offset > last.next_offset {
                *last = record.position;
            }
        }
        positions
    }

    /// The batch once each add has its fate, in the order of `sent`.
    pub(crate) fn settled(mut self, fates: Vec<Fate>) -> Settled {
        let positions = self.positions();
        for (sent, fate) in std::mem::take(&mut self.sent).into_iter().zip(fates) {
            self.decide(sent.record, fate);
        }
        Settled { positions, decided: self.decided }
    }
}

/// A batch in which each record is decided.
#[derive(Default)]
pub(crate) struct Settled {
    /// Of each partition, the position after its last record.
    pub(crate) positions: BTreeMap<TopicPartition, Position>,
    /// What must be written.
    pub(crate) decided: Vec<Decided>,
}

impl Settled {
    pub(crate) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// How often the record that was written again most often was.
    pub(crate) fn rewrites(&self) -> u32 {
        self.decided.iter().map(|decided| decided.record.origin.rewrites).max().unwrap_or_default()
    }

    /// Both batches; `later` was read after this one.
    pub(crate) fn with(mut self, later: Settled) -> Settled {
        self.positions.extend(later.positions);
        self.decided.extend(later.decided);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    const NOW: i64 = 1_800_000_000_000;
    const PLACE: TopicPartition = TopicPartition { topic: 0, partition: 2 };

    fn message(offset: i64, at_ms: i64, value: &str) -> OwnedMessage {
        let time = Timestamp::CreateTime(at_ms);
        OwnedMessage::new(Some(value.into()), None, "adds".to_owned(), time, PLACE.partition, offset, None)
    }

    #[test]
    fn n17_a_batch_is_claimed_before_it_is_sent_and_settled_as_a_whole() {
        let add = r#"{"counter":"c","delta":1}"#;
        let messages = [
            message(5, NOW, add),
            message(6, NOW, "no add"),
            message(7, NOW - 86_400_000, add),
            message(9, NOW - 10, add),
        ];
        let mut batch = Batch::default();
        for message in &messages {
            batch.push(Record::of(message, PLACE, false));
        }
        assert!(batch.is_full(4) && !batch.is_full(5));
        let mut ledgers = BTreeMap::from([(PLACE, Ledger::begin(&messages[0]))]);
        let claimed = batch.claim(&mut ledgers, NOW, Some("n"));
        assert_eq!((ledgers[&PLACE].next_offset, ledgers[&PLACE].claim.to_offset), (5, 10), "also across a gap");
        let sent: Vec<(i64, bool)> =
            claimed.sent.iter().map(|sent| (sent.record.offset, sent.perhaps_counted)).collect();
        assert_eq!((sent, claimed.len()), (vec![(5, false), (9, false)], 4));
        let settled = claimed.settled(vec![Fate::Counted { duplicate: false }, Fate::Late(Late::TooOld)]);
        let written: Vec<(i64, bool)> = settled
            .decided
            .iter()
            .map(|decided| (decided.record.offset, matches!(decided.what, Written::Again(_))))
            .collect();
        assert_eq!(written, [(6, false), (7, true), (9, true)]);
        assert_eq!(settled.positions, BTreeMap::from([(PLACE, Position::after(&messages[3]))]));

        let position = Position::after(&messages[0]);
        let earlier =
            Settled { positions: BTreeMap::from([(PLACE, position)]), decided: settled.decided[..1].to_vec() };
        let both = earlier.with(settled);
        assert_eq!(both.positions, BTreeMap::from([(PLACE, Position::after(&messages[3]))]));
        assert_eq!((both.decided.len(), both.rewrites()), (4, 0));

        // The next member has the claim, and reads the same records.
        let mut batch = Batch::default();
        batch.push(Record::of(&messages[0], PLACE, false));
        let claimed = batch.claim(&mut ledgers, NOW + 1_000, Some("n"));
        assert!(claimed.sent[0].perhaps_counted);
        assert_eq!(ledgers[&PLACE].claim.to_offset, 10, "a claim does not shrink");
    }
}
