//! Compares what the store has with what was written.

use crate::decode::decode;
use crate::encode::sha256;
use crate::error::ArchiveError;
use crate::event::ArchivedEvent;
use crate::footer::{Footer, ShardSums};
use bytes::Bytes;
use std::collections::BTreeMap;

/// An object as the store has it, with the bytes and the sums that were written.
pub(crate) struct Stored<'a> {
    path: &'a str,
    bytes: Bytes,
    footer: Footer,
}

impl Stored<'_> {
    /// # Errors
    /// [`ArchiveError::Damaged`]: it has other bytes or sums than were written.
    pub(crate) fn read<'a>(
        path: &'a str,
        sha: &str,
        sums: &BTreeMap<u16, ShardSums>,
        bytes: Bytes,
    ) -> Result<Stored<'a>, ArchiveError> {
        let damaged = |why: &str| ArchiveError::damaged(path, why);
        if sha256(&bytes) != sha {
            return Err(damaged("the store has other bytes than were written"));
        }
        let footer = Footer::of(&bytes).ok_or_else(|| damaged("it has no footer"))?;
        let footer = Footer::read(path, footer, bytes.len() as u64)?;
        if footer.sums != *sums {
            return Err(damaged("its sums are not those that were written"));
        }
        Ok(Stored { path, bytes, footer })
    }

    /// Compares each event, in its order.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`]: something differs.
    pub(crate) fn check_events(&self, events: &[ArchivedEvent]) -> Result<(), ArchiveError> {
        let damaged = || ArchiveError::damaged(self.path, "its events are not those that were written");
        let mut expected = events.iter();
        self.each_group(
            |rows| if rows.iter().all(|event| expected.next() == Some(event)) { Ok(()) } else { Err(damaged()) },
        )?;
        if expected.next().is_none() { Ok(()) } else { Err(damaged()) }
    }

    /// Hands over the events of each row group.
    pub(crate) fn each_group(
        &self,
        mut check: impl FnMut(&[ArchivedEvent]) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        for (number, group) in self.footer.groups.iter().enumerate() {
            let range = group.offset as usize..(group.offset + group.bytes) as usize;
            let bytes = self.bytes.get(range.clone()).map(|_| self.bytes.slice(range));
            let missing = || ArchiveError::damaged(self.path, "a row group is not where its footer says");
            check(&decode(self.path, &self.footer, number, bytes.ok_or_else(missing)?, |_| true)?)?;
        }
        Ok(())
    }

    pub(crate) fn damaged(&self, why: &str) -> ArchiveError {
        ArchiveError::damaged(self.path, why)
    }
}
