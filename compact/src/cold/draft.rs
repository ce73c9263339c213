//! The records of the page that is being filled, and the codes under which they need the fewest bits.

use super::bits::{BITS_MAX, BitWriter};
use super::code::{Column, Lengths};
use super::page::{COLUMNS_MAX, GROUP, Head, PLACE_BITS};
use super::{PAGE_BYTES, PageRef};

/// Records after which the codes are chosen again when the page seems full. Less often costs up to this many records a page,
/// more often costs time.
const TUNE_RECORDS: usize = 16;

/// Records and values of a page at most: a command that goes over all of them takes less than 1 ms.
const RECORDS_MAX: usize = 1_024;
const VALUES_MAX: usize = 4_096;
/// Records times columns of a page at most: to decode a page takes a while for each column of a record, also where it has no value.
const DECODED_MAX: usize = 16_384;

/// The records of the next page. Its size is known exactly at each record.
#[derive(Default)]
pub(super) struct Draft {
    ids: Vec<u64>,
    values: Vec<i64>,
    /// Where the values of each record end in `values`.
    ends: Vec<usize>,
    /// The code of the gaps, then of each column. The next page begins with those of the last one.
    columns: Vec<Column>,
    /// Bits of the records under these codes.
    bits: usize,
    /// How many records the codes were chosen for.
    tuned: usize,
    lengths: Vec<Lengths>,
}

impl Draft {
    /// Adds a record, if the page has room for it.
    pub(super) fn add(&mut self, id: u64, values: &[i64]) -> bool {
        debug_assert!(!values.is_empty() && values.len() <= COLUMNS_MAX);
        if self.ids.len() >= RECORDS_MAX || self.values.len() + values.len() > VALUES_MAX {
            return false;
        }
        self.ids.push(id);
        self.values.extend_from_slice(values);
        self.ends.push(self.values.len());
        let cost = self.cost_of_last();
        if let Some(cost) = cost
            && self.size(self.bits + cost) <= BITS_MAX
            && self.ids.len() * (self.columns.len() - 1) <= DECODED_MAX
        {
            self.bits += cost;
            return true;
        }
        if (cost.is_none() || self.tuned == 0 || self.ids.len() >= self.tuned + TUNE_RECORDS) && self.tune() {
            return true;
        }
        self.ids.pop();
        self.ends.pop();
        self.values.truncate(self.ends.last().copied().unwrap_or(0));
        false
    }

    /// The first and last id, and the number of records. `None`: there are none.
    pub(super) fn range(&self) -> Option<(u64, u64, u64)> {
        Some((*self.ids.first()?, *self.ids.last()?, self.ids.len() as u64))
    }

    /// The records, with their ids.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, &[i64])> {
        self.ids.iter().enumerate().map(|(record, id)| (*id, self.values_of(record)))
    }

    /// Writes the page, which is 0, and begins the next.
    pub(super) fn write(&mut self, place: PageRef, page: &mut [u8; PAGE_BYTES]) {
        let columns = self.columns.len() - 1;
        let (first, width) = (self.ids[0], self.width());
        let mut groups = BitWriter::new(page, Head::groups_at(0) - super::code::COLUMN_BITS);
        self.columns.iter().for_each(|column| column.put_code(&mut groups));
        let groups_at = groups.at();
        let mut at = groups_at + self.ids.len().div_ceil(GROUP) * (width + PLACE_BITS) as usize;
        for group in 0..self.ids.len().div_ceil(GROUP) {
            let from = group * GROUP;
            let mut entry = BitWriter::new(page, groups_at + group * (width + PLACE_BITS) as usize);
            entry.put(self.ids[from] - first, width);
            entry.put(at as u64, PLACE_BITS);
            let mut records = BitWriter::new(page, at);
            for record in from..(from + GROUP).min(self.ids.len()) {
                if record > from {
                    self.columns[0].put(&mut records, self.gap(record));
                }
                let values = self.values_of(record);
                for (number, column) in self.columns[1..].iter().enumerate() {
                    column.put(&mut records, values.get(number).copied().unwrap_or(0));
                }
            }
            at = records.at();
        }
        debug_assert_eq!(at, self.size(self.bits));
        let (records, columns, width) = (self.ids.len() as u16, columns as u16, width as u8);
        Head { place, first, records, columns, width }.seal(page);
        self.ids.clear();
        self.values.clear();
        self.ends.clear();
        (self.bits, self.tuned) = (0, 0);
    }

    /// Bits of the page with its head, if its records take this many.
    fn size(&self, bits: usize) -> usize {
        let groups = self.ids.len().div_ceil(GROUP) * (self.width() + PLACE_BITS) as usize;
        Head::groups_at(self.columns.len().saturating_sub(1)) + groups + bits
    }

    /// Bits of the offset of an id from the first one.
    fn width(&self) -> u32 {
        let span = self.ids.last().map_or(0, |last| last - self.ids[0]);
        64 - span.leading_zeros()
    }

    fn gap(&self, record: usize) -> i64 {
        (self.ids[record] - self.ids[record - 1] - 1) as i64
    }

    fn values_of(&self, record: usize) -> &[i64] {
        let from = if record == 0 { 0 } else { self.ends[record - 1] };
        &self.values[from..self.ends[record]]
    }

    /// Bits of the last record. `None`: the codes have no room for it.
    fn cost_of_last(&self) -> Option<usize> {
        let last = self.ids.len() - 1;
        let values = self.values_of(last);
        let (gaps, columns) = self.columns.split_first()?;
        if self.ids.len() > usize::from(u16::MAX) || values.len() > columns.len() {
            return None;
        }
        let gap = if last.is_multiple_of(GROUP) { 0 } else { gaps.cost(self.gap(last))? };
        let mut bits = gap as usize;
        for (number, column) in columns.iter().enumerate() {
            bits += column.cost(values.get(number).copied().unwrap_or(0))? as usize;
        }
        Some(bits)
    }

    /// Chooses the codes for the records that are there. Changes nothing and returns false if they do not fit.
    fn tune(&mut self) -> bool {
        let numbers = (0..self.ids.len()).map(|record| self.values_of(record).len()).max().unwrap_or(0);
        if self.ids.len() * numbers > DECODED_MAX {
            return false;
        }
        let mut signed = [false; COLUMNS_MAX];
        for record in 0..self.ids.len() {
            let values = self.values_of(record).iter().zip(&mut signed);
            values.for_each(|(&value, signed)| *signed |= value < 0);
        }
        let mut lengths = std::mem::take(&mut self.lengths);
        lengths.clear();
        lengths.resize(numbers + 1, [0; 65]);
        for record in 0..self.ids.len() {
            if !record.is_multiple_of(GROUP) {
                lengths[0][Column::length(self.gap(record), false) as usize] += 1;
            }
            let values = self.values_of(record);
            for number in 0..numbers {
                let value = values.get(number).copied().unwrap_or(0);
                lengths[number + 1][Column::length(value, signed[number]) as usize] += 1;
            }
        }
        let best =
            lengths.iter().enumerate().map(|(place, lengths)| Column::best(lengths, place > 0 && signed[place - 1]));
        let (columns, bits): (Vec<Column>, Vec<u64>) = best.unzip();
        self.lengths = lengths;
        let before = std::mem::replace(&mut self.columns, columns);
        let bits = bits.iter().sum::<u64>() as usize;
        if self.size(bits) > BITS_MAX || self.ids.len() > usize::from(u16::MAX) {
            self.columns = before;
            return false;
        }
        (self.bits, self.tuned) = (bits, self.ids.len());
        true
    }
}
