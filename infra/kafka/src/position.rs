//! Where a reader continues in a partition, and the mark by which it recognizes that place in the log.

use rdkafka::Message;
use std::fmt;
use std::str::FromStr;

/// Where to continue in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The offset of the next record.
    pub next_offset: i64,
    /// The record before it.
    pub last: RecordMark,
}

impl Position {
    /// The position after this record.
    pub fn after(record: &impl Message) -> Position {
        Position { next_offset: record.offset() + 1, last: RecordMark::of(record) }
    }
}

/// Identifies a record by its time and content. It is committed with each offset: the same offset of a topic that was
/// deleted and created again has another record. The Rust binding of librdkafka does not have the topic's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    at_ms: i64,
    checksum: u64,
}

/// The offset basis and the prime of FNV-1a, 64 bits. The mark outlives the program, so its hash must not change with a
/// release of a library.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// The first word of a mark's text.
const VERSION: &str = "1";

impl RecordMark {
    /// The mark of this record.
    pub fn of(record: &impl Message) -> RecordMark {
        let key = record.key().unwrap_or_default();
        let value = record.payload().unwrap_or_default();
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
        let checksum = key.iter().chain(value).fold(FNV_BASIS, hash);
        RecordMark { at_ms: record.timestamp().to_millis().unwrap_or_default(), checksum }
    }
}

impl fmt::Display for RecordMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION} {} {:016x}", self.at_ms, self.checksum)
    }
}

impl FromStr for RecordMark {
    type Err = ();

    /// Reads the text that `Display` writes. Another text is that of another program, or of another version.
    fn from_str(text: &str) -> Result<RecordMark, ()> {
        let mut words = text.split(' ');
        let (Some(VERSION), Some(at_ms), Some(checksum), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(());
        };
        let checksum = u64::from_str_radix(checksum, 16).map_err(drop)?;
        Ok(RecordMark { at_ms: at_ms.parse().map_err(drop)?, checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    fn mark(value: &str, at_ms: i64) -> RecordMark {
        let time = Timestamp::CreateTime(at_ms);
        RecordMark::of(&OwnedMessage::new(Some(value.into()), None, "t".to_owned(), time, 0, 0, None))
    }

    #[test]
    fn q19_a_mark_is_read_as_it_was_written() {
        for read in [mark("", 0), mark("a", 1_700_000_000_000)] {
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        assert_eq!(mark("a", 5).to_string(), "1 5 af63dc4c8601ec8c", "the text is stored, so it must not change");
        for foreign in ["", "1", "1 2", "2 5 af63dc4c8601ec8c", "1 5 af63dc4c8601ec8c x", "1 x af63dc4c8601ec8c"] {
            assert_eq!(foreign.parse::<RecordMark>(), Err(()), "{foreign:?}");
        }
        assert_ne!(mark("a", 5), mark("b", 5));
        assert_ne!(mark("a", 5), mark("a", 6));
    }
}
