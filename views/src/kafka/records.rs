//! The records of the state, as bytes. Numbers are big-endian. The bytes are stored, so they must not change.

use crate::log::PairsRecord;
use tallystone_kafka::{Position, RecordMark};

/// The first byte of each kind of record.
const PAIRS: u8 = 1;
const POSITION: u8 = 2;
/// Bytes of a record before what is only in its kind: the kind, and the time of the log.
const HEAD_BYTES: usize = 9;

/// A record of the state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StateRecord<'a> {
    /// New pairs, in the format of [`PairsRecord`].
    Pairs {
        /// Names the pairs.
        name: &'a str,
        /// The pairs.
        pairs: &'a [u8],
    },
    /// The last record of a commit: all views before it are deduplicated.
    Position(Position),
}

/// A record of new pairs that are written when the log has this time (Unix ms).
pub(super) fn write_pairs(at_ms: u64, name: &str, pairs: &PairsRecord) -> Vec<u8> {
    let mut bytes = head(PAIRS, at_ms);
    // Names have at most 100 bytes.
    bytes.push(name.len() as u8);
    bytes.extend(name.as_bytes());
    bytes.extend(pairs.bytes());
    bytes
}

/// A record of a position at which the log has this time (Unix ms).
pub(super) fn write_position(at_ms: u64, position: &Position) -> Vec<u8> {
    let mut bytes = head(POSITION, at_ms);
    bytes.extend(position.next_offset.to_be_bytes());
    bytes.extend(position.last.to_string().as_bytes());
    bytes
}

fn head(kind: u8, at_ms: u64) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(at_ms.to_be_bytes());
    bytes
}

/// Reads a record and the time of the log at which it was written; `None`: it cannot be read.
pub(super) fn read(bytes: &[u8]) -> Option<(u64, StateRecord<'_>)> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (kind, at_ms) = head.split_first()?;
    let at_ms = u64::from_be_bytes(at_ms.try_into().ok()?);
    let record = match *kind {
        PAIRS => {
            let (length, rest) = rest.split_first()?;
            let (name, pairs) = rest.split_at_checked(usize::from(*length))?;
            StateRecord::Pairs { name: std::str::from_utf8(name).ok()?, pairs }
        }
        POSITION => {
            let (next_offset, mark) = rest.split_first_chunk::<8>()?;
            let last: RecordMark = std::str::from_utf8(mark).ok()?.parse().ok()?;
            StateRecord::Position(Position { next_offset: i64::from_be_bytes(*next_offset), last })
        }
        _ => return None,
    };
    Some((at_ms, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    #[test]
    fn v3_records_of_the_state_are_read_as_they_were_written() {
        let mut pairs = PairsRecord::default();
        pairs.push(&[7; 12], 5);
        let name = "pairs:default:sliding-3600000";
        let bytes = write_pairs(9, name, &pairs);
        assert_eq!(read(&bytes), Some((9, StateRecord::Pairs { name, pairs: pairs.bytes() })));
        assert_eq!((bytes[0], bytes.len()), (1, 9 + 1 + name.len() + 12 + 12));
        let time = Timestamp::LogAppendTime(1_700_000_000_000);
        let message = OwnedMessage::new(Some(b"a".to_vec()), None, "t".to_owned(), time, 0, 41, None);
        let position = Position::after(&message);
        let bytes = write_position(10, &position);
        assert_eq!(read(&bytes), Some((10, StateRecord::Position(position))));
        assert_eq!(&bytes[9..], [&42_u64.to_be_bytes()[..], b"1 1700000000000 af63dc4c8601ec8c"].concat());
        for bad in [&b""[..], &[3; 20], &bytes[..20], &write_pairs(9, name, &pairs)[..12]] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
