//! Writes records that are in no order, such as those of a table, as a file.

use super::{FileId, PAGE_BYTES, PageIndex, PageWriter};
use crate::record::Record;

/// Records in no order, each id once. They do not change while they are written.
pub trait Unsorted {
    /// Calls `visit` with the id of each record and its place, which only this source understands. Passes cost less where it
    /// leaves out records of zeros.
    fn visit(&self, visit: &mut dyn FnMut(u64, u64));

    /// The record at a place that `visit` has named.
    fn record(&self, id: u64, place: u64) -> Record;
}

/// Ids that are sorted at once, at least. Larger sources are sorted in at most 17 passes.
const SORTED_MIN: usize = 1 << 16;
const PASSES: usize = 16;

/// Writes all records of a source in the order of their ids. It takes about two bytes of memory for each record, at least 2 MiB.
pub fn write_sorted<E>(
    source: &(impl Unsorted + ?Sized),
    file: FileId,
    write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>,
) -> Result<PageIndex, E> {
    write_in_passes(source, file, SORTED_MIN, write)
}

fn write_in_passes<E>(
    source: &(impl Unsorted + ?Sized),
    file: FileId,
    sorted_min: usize,
    write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>,
) -> Result<PageIndex, E> {
    let mut count = 0_usize;
    source.visit(&mut |_, _| count += 1);
    let most = sorted_min.max(count.div_ceil(PASSES));
    let mut writer = PageWriter::new(file);
    let mut next = Some(0);
    let mut lowest: Vec<(u64, u64)> = Vec::with_capacity(count.min(2 * most));
    while let Some(from) = next {
        let is_last = collect_lowest(source, from, most, &mut lowest);
        for &(id, place) in &lowest {
            writer.push(id, &source.record(id, place), write)?;
        }
        next = lowest.last().filter(|_| !is_last).and_then(|(id, _)| id.checked_add(1));
    }
    writer.finish(write)
}

/// Collects the records with the lowest ids from an id on, in order: all of them (true), or `most`.
fn collect_lowest(source: &(impl Unsorted + ?Sized), from: u64, most: usize, lowest: &mut Vec<(u64, u64)>) -> bool {
    lowest.clear();
    let mut bound = None;
    source.visit(&mut |id, place| {
        if id < from || bound.is_some_and(|bound| id > bound) {
            return;
        }
        lowest.push((id, place));
        if lowest.len() == 2 * most {
            let (_, &mut (greatest, _), _) = lowest.select_nth_unstable(most - 1);
            lowest.truncate(most);
            bound = Some(greatest);
        }
    });
    lowest.sort_unstable();
    let is_last = bound.is_none() && lowest.len() <= most;
    lowest.truncate(most);
    is_last
}

#[cfg(test)]
mod tests {
    use super::super::{Page, PageRef};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    struct Plain(Vec<(u64, i64)>);

    impl Unsorted for Plain {
        fn visit(&self, visit: &mut dyn FnMut(u64, u64)) {
            self.0.iter().enumerate().for_each(|(place, &(id, _))| visit(id, place as u64));
        }

        fn record(&self, id: u64, place: u64) -> Record {
            assert_eq!(self.0[place as usize].0, id);
            Record::new(vec![self.0[place as usize].1])
        }
    }

    proptest! {
        #[test]
        fn w3_a_table_is_written_in_order(values in prop::collection::btree_map(any::<u64>(), -3..3_i64, 0..300), turn in any::<u64>(), most in 1..400_usize) {
            let mut records: Vec<(u64, i64)> = values.iter().map(|(&id, &value)| (id, value)).collect();
            records.sort_by_key(|(id, _)| id.wrapping_mul(turn | 1));
            let mut read = BTreeMap::new();
            let mut page = 0;
            let index = write_in_passes(&Plain(records), FileId(7), most, &mut |bytes| {
                let opened = Page::open(PageRef { file: FileId(7), page }, Box::new(*bytes)).unwrap();
                read.extend(opened.records().unwrap().into_iter().map(|(id, record)| (id, record.get(0))));
                page += 1;
                Ok::<(), Infallible>(())
            }).unwrap();
            let expected: BTreeMap<u64, i64> = values.into_iter().filter(|(_, value)| *value != 0).collect();
            prop_assert_eq!(index.records(), expected.len() as u64);
            prop_assert_eq!(read, expected);
        }
    }
}
