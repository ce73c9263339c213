//! What is published of a counter.

use crate::checkpoints::Checkpoint;
use crate::names::CounterName;

/// A count as a counter set has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedCount {
    /// The counter's name, which is a number.
    pub id: u64,
    /// The count.
    pub count: i64,
    /// The time to which the count is exact, in Unix ms. Of two counts of one counter, the set keeps the later one.
    pub exact_to_ms: u64,
}

impl PublishedCount {
    /// The bytes of a count in a command.
    pub(super) const PACKED_BYTES: usize = 24;

    /// What a checkpoint publishes; `None`: the counter's name is no number. A deleted counter counts 0 from the time of its
    /// deletion on.
    pub fn of(counter: &CounterName, checkpoint: &Checkpoint) -> Option<PublishedCount> {
        let Checkpoint { count, exact_to_ms, .. } = *checkpoint;
        Some(PublishedCount { id: number(counter.as_str())?, count, exact_to_ms })
    }

    pub(super) fn pack_into(self, packed: &mut Vec<u8>) {
        packed.extend_from_slice(&self.id.to_le_bytes());
        packed.extend_from_slice(&self.count.to_le_bytes());
        packed.extend_from_slice(&self.exact_to_ms.to_le_bytes());
    }
}

/// The number that a name writes without sign and leading zeros: then no two names have the same number.
fn number(name: &str) -> Option<u64> {
    let is_plain = name == "0" || name.starts_with(|first: char| ('1'..='9').contains(&first));
    // A later sign is no digit.
    if is_plain { name.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w6_each_number_has_one_name() {
        for (name, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("00", None),
            ("07", None),
            ("+7", None),
            ("-7", None),
            ("7.0", None),
            ("1e3", None),
            ("1_000", None),
            (" 7", None),
            ("7 ", None),
            ("٧", None),
            ("views", None),
        ] {
            assert_eq!(number(name), expected, "{name:?}");
        }
    }

    #[test]
    fn w6_a_count_takes_24_bytes() {
        let mut packed = Vec::new();
        PublishedCount { id: 1, count: -2, exact_to_ms: 3 }.pack_into(&mut packed);
        let numbers: Vec<i64> =
            packed.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("8 bytes"))).collect();
        assert_eq!((numbers, packed.len()), (vec![1, -2, 3], PublishedCount::PACKED_BYTES));
    }
}
