//! The records of pairs and of deltas, as bytes. Numbers are big-endian.

use crate::dedupe::{PAIR_BYTES, Pair};
use std::collections::BTreeMap;

/// Pairs that counted: runs of the pairs of one time, each with the time (8 bytes), their number (4 bytes) and the pairs.
#[derive(Default)]
pub struct PairsRecord {
    bytes: Vec<u8>,
    /// Where the number of the last run is, and its time.
    run: Option<(usize, u64)>,
}

impl PairsRecord {
    /// Appends a pair that counted at this time (Unix ms), which is not before those of earlier pairs.
    pub(crate) fn push(&mut self, pair: &Pair, at_ms: u64) {
        let at = match self.run {
            Some((at, run_ms)) if run_ms == at_ms => at,
            _ => {
                self.bytes.extend(at_ms.to_be_bytes());
                self.bytes.extend([0; 4]);
                self.bytes.len() - 4
            }
        };
        self.run = Some((at, at_ms));
        self.bytes.extend(pair);
        let pairs = (self.bytes.len() - at - 4) / PAIR_BYTES;
        self.bytes[at..at + 4].copy_from_slice(&(pairs as u32).to_be_bytes());
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The pairs of a record, with their times. Ends before what cannot be read.
    pub(crate) fn read(mut bytes: &[u8], mut pair: impl FnMut(&Pair, u64)) {
        while let Some((head, rest)) = bytes.split_first_chunk::<12>() {
            let (ms, pairs) = head.split_at(8);
            let at_ms = u64::from_be_bytes(ms.try_into().unwrap_or_default());
            let pairs = u32::from_be_bytes(pairs.try_into().unwrap_or_default()) as usize;
            let Some((run, rest)) = rest.split_at_checked(pairs * PAIR_BYTES) else { return };
            run.as_chunks::<PAIR_BYTES>().0.iter().for_each(|one| pair(one, at_ms));
            bytes = rest;
        }
    }
}

/// What to add: by namespace and name of the counter. Each counter is in a record once, so the log and the record's id, with the
/// name, are a token.
pub type Deltas = BTreeMap<(String, String), u32>;

/// What a record of deltas begins with if its token names the log. Earlier versions wrote records without it, whose tokens do
/// not. They cannot read it, because no text has the byte 0xFF; so they send no such record with another token.
const NAMED: [u8; 3] = [0, 1, 0xFF];

/// The bytes of deltas; none: empty.
pub(super) fn write_deltas(deltas: &Deltas) -> Vec<u8> {
    if deltas.is_empty() {
        return Vec::new();
    }
    let mut bytes = NAMED.to_vec();
    for ((namespace, counter), delta) in deltas {
        for text in [namespace, counter] {
            // Names of counters have at most 128 bytes.
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        }
        bytes.extend(delta.to_be_bytes());
    }
    bytes
}

/// Reads deltas, and whether their token names the log; `None`: they cannot be read.
pub(super) fn read_deltas(bytes: &[u8]) -> Option<(Deltas, bool)> {
    fn text(bytes: &mut &[u8]) -> Option<String> {
        let (length, rest) = bytes.split_first()?;
        let (text, rest) = rest.split_at_checked(usize::from(*length))?;
        *bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    }
    let (mut bytes, is_named) = bytes.strip_prefix(&NAMED).map_or((bytes, false), |named| (named, true));
    let mut deltas = Deltas::new();
    while !bytes.is_empty() {
        let key = (text(&mut bytes)?, text(&mut bytes)?);
        let (delta, rest) = bytes.split_first_chunk::<4>()?;
        bytes = rest;
        deltas.insert(key, u32::from_be_bytes(*delta));
    }
    Some((deltas, is_named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v3_records_are_read_as_they_were_written() {
        let written = [([1; 12], 5), ([2; 12], 5), ([3; 12], 9)];
        let mut record = PairsRecord::default();
        written.iter().for_each(|(pair, at_ms)| record.push(pair, *at_ms));
        assert_eq!(record.bytes().len(), 2 * 12 + 3 * PAIR_BYTES);
        let mut read = Vec::new();
        PairsRecord::read(record.bytes(), |pair, at_ms| read.push((*pair, at_ms)));
        assert_eq!(read, written);

        let key = |counter: &str| ("views-default".to_owned(), counter.to_owned());
        let deltas = Deltas::from([(key("a"), 1), (key("é"), u32::MAX)]);
        let bytes = write_deltas(&deltas);
        assert_eq!(read_deltas(&bytes[NAMED.len()..]), Some((deltas.clone(), false)), "of an earlier version");
        assert_eq!(read_deltas(&bytes), Some((deltas, true)));
        assert_eq!(read_deltas(&[NAMED, NAMED].concat()), None, "an earlier version cannot read the mark");
        assert_eq!((write_deltas(&Deltas::new()), read_deltas(&[3, 0])), (Vec::new(), None));
    }
}
