//! Compares what the store has with what was written.

use crate::decode::decode;
use crate::encode::sha256;
use crate::error::ArchiveError;
use crate::event::ArchivedEvent;
use crate::footer::{Footer, ShardSums};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Compares the hash of the bytes, each event in its order, and the sums of each shard.
///
/// # Errors
/// [`ArchiveError::Damaged`]: something differs.
pub(crate) fn verify(
    path: &str,
    sha: &str,
    events: &[ArchivedEvent],
    sums: &BTreeMap<u16, ShardSums>,
    stored: &Bytes,
) -> Result<(), ArchiveError> {
    let damaged = |why: &str| ArchiveError::damaged(path, why);
    if sha256(stored) != sha {
        return Err(damaged("the store has other bytes than were written"));
    }
    let footer = Footer::read(path, Footer::of(stored).ok_or_else(|| damaged("it has no footer"))?)?;
    let mut expected = events.iter();
    for (number, group) in footer.groups.iter().enumerate() {
        let range = group.offset as usize..(group.offset + group.bytes) as usize;
        let bytes = stored.get(range.clone()).map(|_| stored.slice(range));
        let bytes = bytes.ok_or_else(|| damaged("a row group is not where its footer says"))?;
        for event in decode(path, &footer, number, bytes, |_| true)? {
            if expected.next() != Some(&event) {
                return Err(damaged("an event is not the one that was written"));
            }
        }
    }
    let is_whole = expected.next().is_none() && footer.sums == *sums;
    if is_whole { Ok(()) } else { Err(damaged("its sums are not those that were written")) }
}
