//! The id of an entry of a stream of Redis.

use std::fmt;

/// The time at which an entry was written, by Redis's clock, and its number among those of the same ms. Ids of a stream only rise, also if
/// the clock is set back. The default: before the first entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Unix ms.
    pub ms: u64,
    /// From 0.
    pub number: u64,
}

impl StreamId {
    /// Reads `MS-NUMBER`.
    pub fn parse(text: &str) -> Option<StreamId> {
        let (ms, number) = text.split_once('-')?;
        Some(StreamId { ms: ms.parse().ok()?, number: number.parse().ok()? })
    }

    /// The least id after it.
    pub fn next(self) -> StreamId {
        StreamId { number: self.number + 1, ..self }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_no_other_text_does() {
        let id = StreamId { ms: u64::MAX, number: 7 };
        assert_eq!(StreamId::parse(&id.to_string()), Some(id));
        assert!(id < id.next());
        for bad in ["", "-", "1", "1-", "-1", "1-2-3", "a-1", "18446744073709551616-0"] {
            assert_eq!(StreamId::parse(bad), None, "{bad}");
        }
    }
}
