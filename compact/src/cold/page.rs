//! One page of a file: a head, the codes of its columns, an entry for each group of 16 records, and the records.
//!
//! ```text
//! byte 0   crc32c of all that follows, u32       bit 240  code of the gaps between ids, then one for each column of values
//!      4   file, u64                                  …   for each group: id of its first record - first id (`width` bits),
//!     12   number of the page, u32                        and the bit where it begins (15 bits)
//!     16   first id, u64                              …   records in rising order: gap to the id before - 1 (not at the
//!     24   records, u16                                   begin of a group), then its value in each column
//!     26   columns of values, u16 (at most 256)
//!     28   width, u8
//!     29   version of the format, u8
//! ```
//! Numbers of the head are little-endian. A search reads the groups, and decodes at most 16 records.

use super::bits::BitReader;
use super::code::{COLUMN_BITS, Column};
use super::{FileId, PAGE_BYTES, PageRef};
use crate::record::Record;
use std::fmt;

/// Bits of the head.
pub(super) const HEAD_BITS: usize = 240;
/// Records of a group.
pub(super) const GROUP: usize = 16;
/// Bits of the place of a group.
pub(super) const PLACE_BITS: u32 = 15;
/// Columns of values at most: one for each field number.
pub(super) const COLUMNS_MAX: usize = 256;
const VERSION: u8 = 1;

/// Why a page cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageFault {
    /// The host could not read it now, with the reason. That says nothing of its bytes.
    Unread(String),
    /// The file ends before it.
    Missing,
    /// Its bytes do not have the checksum that was written with them.
    Checksum,
    /// It is a page of another file, or another page of this one.
    Misplaced,
    /// The checksum holds, but the content has no meaning.
    Malformed,
}

impl fmt::Display for PageFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageFault::Unread(reason) => write!(out, "it cannot be read: {reason}"),
            PageFault::Missing => write!(out, "the file ends before it"),
            PageFault::Checksum => write!(out, "it fails its checksum"),
            PageFault::Misplaced => write!(out, "it is not the page that was written here"),
            PageFault::Malformed => write!(out, "it has no meaning"),
        }
    }
}

impl std::error::Error for PageFault {}

impl From<PageFault> for String {
    fn from(fault: PageFault) -> String {
        fault.to_string()
    }
}

/// The numbers in the head of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) place: PageRef,
    pub(super) first: u64,
    pub(super) records: u16,
    pub(super) columns: u16,
    pub(super) width: u8,
}

impl Head {
    fn read(bytes: &[u8; PAGE_BYTES]) -> Option<Head> {
        let u64_at = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_le_bytes);
        let u16_at = |at: usize| bytes[at..].first_chunk().copied().map(u16::from_le_bytes);
        let page = bytes[12..].first_chunk().copied().map(u32::from_le_bytes)?;
        let place = PageRef { file: FileId(u64_at(4)?), page };
        let head = Head { place, first: u64_at(16)?, records: u16_at(24)?, columns: u16_at(26)?, width: bytes[28] };
        let is_valid = usize::from(head.columns) <= COLUMNS_MAX && head.width <= 64 && head.records > 0;
        (is_valid && bytes[29] == VERSION).then_some(head)
    }

    /// Writes the head, and the checksum of the page.
    pub(super) fn seal(&self, bytes: &mut [u8; PAGE_BYTES]) {
        bytes[4..12].copy_from_slice(&self.place.file.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.place.page.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.records.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.columns.to_le_bytes());
        bytes[28] = self.width;
        bytes[29] = VERSION;
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The bit where the entries of the groups begin.
    pub(super) fn groups_at(columns: usize) -> usize {
        HEAD_BITS + (columns + 1) * COLUMN_BITS
    }
}

/// A page whose checksum, file and number were verified. To open one is the work of a reader thread, not of the engine's.
#[derive(Clone, Debug)]
pub struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    head: Head,
    gaps: Column,
    columns: Vec<Column>,
    /// Bits of the values of a record, if they are the same for each.
    values_width: Option<usize>,
}

impl Page {
    /// Verifies the bytes that were read for a page.
    pub fn open(place: PageRef, bytes: Box<[u8; PAGE_BYTES]>) -> Result<Page, PageFault> {
        let sum = bytes.first_chunk().copied().map(u32::from_le_bytes);
        if sum != Some(crc32c::crc32c(&bytes[4..])) {
            return Err(PageFault::Checksum);
        }
        let head = Head::read(&bytes).ok_or(PageFault::Malformed)?;
        if head.place != place {
            return Err(PageFault::Misplaced);
        }
        let mut reader = BitReader::new(&bytes, HEAD_BITS);
        let gaps = Column::take_code(&mut reader).ok_or(PageFault::Malformed)?;
        let columns: Option<Vec<Column>> = (0..head.columns).map(|_| Column::take_code(&mut reader)).collect();
        let columns = columns.ok_or(PageFault::Malformed)?;
        let values_width = columns.iter().map(|column| column.width().map(|width| width as usize)).sum();
        Ok(Page { bytes, head, gaps, columns, values_width })
    }

    /// The record of an id; `None`: the page has none.
    pub fn find(&self, id: u64) -> Result<Option<Record>, PageFault> {
        self.search(id).ok_or(PageFault::Malformed)
    }

    /// All records in rising order of their ids.
    pub fn records(&self) -> Result<Vec<(u64, Record)>, PageFault> {
        self.decode().ok_or(PageFault::Malformed)
    }

    /// `None` where the content has no meaning.
    fn search(&self, id: u64) -> Option<Option<Record>> {
        let Some(offset) = id.checked_sub(self.head.first) else { return Some(None) };
        // The last group that begins at or before the id.
        let (mut from, mut to) = (0, self.groups());
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            if self.group(middle)?.0 <= offset {
                from = middle;
            } else {
                to = middle;
            }
        }
        let (mut found, mut reader) = self.group(from)?;
        for place in 0..self.records_of(from) {
            if place > 0 {
                found = self.next(found, &mut reader)?;
            }
            if found > offset {
                return Some(None);
            }
            if found == offset {
                return self.values(&mut reader).map(Some);
            }
            self.skip_values(&mut reader)?;
        }
        Some(None)
    }

    fn decode(&self) -> Option<Vec<(u64, Record)>> {
        let mut records = Vec::with_capacity(usize::from(self.head.records));
        let mut last = None;
        for group in 0..self.groups() {
            let (mut offset, mut reader) = self.group(group)?;
            for place in 0..self.records_of(group) {
                if place > 0 {
                    offset = self.next(offset, &mut reader)?;
                }
                if last.is_some_and(|last| last >= offset) || (last.is_none() && offset != 0) {
                    return None;
                }
                last = Some(offset);
                records.push((self.head.first.checked_add(offset)?, self.values(&mut reader)?));
            }
        }
        Some(records)
    }

    fn groups(&self) -> usize {
        usize::from(self.head.records).div_ceil(GROUP)
    }

    fn records_of(&self, group: usize) -> usize {
        (usize::from(self.head.records) - group * GROUP).min(GROUP)
    }

    /// The offset of a group's first id from the first id of the page, and its records.
    #[inline]
    fn group(&self, group: usize) -> Option<(u64, BitReader<'_>)> {
        let width = u32::from(self.head.width);
        let at = Head::groups_at(self.columns.len()) + group * (width + PLACE_BITS) as usize;
        let mut reader = BitReader::new(&self.bytes, at);
        let offset = reader.take(width)?;
        let place = reader.take(PLACE_BITS)?;
        Some((offset, BitReader::new(&self.bytes, place as usize)))
    }

    #[inline]
    fn next(&self, offset: u64, reader: &mut BitReader<'_>) -> Option<u64> {
        offset.checked_add(self.gaps.take(reader)? as u64)?.checked_add(1)
    }

    #[inline]
    fn skip_values(&self, reader: &mut BitReader<'_>) -> Option<()> {
        match self.values_width {
            Some(width) => reader.skip(width),
            None => {
                for column in &self.columns {
                    column.take(reader)?;
                }
            }
        }
        Some(())
    }

    #[inline]
    fn values(&self, reader: &mut BitReader<'_>) -> Option<Record> {
        let mut values = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            values.push(column.take(reader)?);
        }
        Some(Record::new(values))
    }
}
