//! Which page of a file has an id: the first id of each page, in memory.

/// The index of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageIndex {
    firsts: Vec<u64>,
    last: u64,
    records: u64,
}

impl PageIndex {
    /// Adds the next page: its first and last id, and how many records it has.
    pub(super) fn add(&mut self, first: u64, last: u64, records: u64) {
        debug_assert!(first <= last && (self.firsts.is_empty() || first > self.last));
        self.firsts.push(first);
        self.last = last;
        self.records += records;
    }

    /// The page that has the record of this id, if the file has one.
    pub fn page_of(&self, id: u64) -> Option<u32> {
        let page = self.firsts.partition_point(|&first| first <= id);
        (page > 0 && id <= self.last).then(|| page as u32 - 1)
    }

    /// The page whose stretch an id is in ([`View`](super::fold::View)).
    pub(super) fn stretch_of(&self, id: u64) -> u32 {
        self.firsts.partition_point(|&first| first <= id).saturating_sub(1) as u32
    }

    /// The first and last id whose record may be on a page of the file.
    pub fn range(&self, page: u32) -> Option<(u64, u64)> {
        let first = *self.firsts.get(page as usize)?;
        let last = self.firsts.get(page as usize + 1).map_or(self.last, |next| next - 1);
        Some((first, last))
    }

    /// Pages of the file.
    pub fn pages(&self) -> u32 {
        self.firsts.len() as u32
    }

    /// Records of the file.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Memory of the index.
    pub fn memory_bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<u64>()
    }

    /// Gives back memory that the growing index took ahead.
    pub(super) fn shrink(&mut self) {
        self.firsts.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_the_index_knows_pages_and_their_ranges() {
        let mut index = PageIndex::default();
        assert_eq!((index.page_of(0), index.range(0)), (None, None));
        index.add(0, 9, 3);
        index.add(20, 20, 1);
        index.add(30, u64::MAX, 2);
        let pages: Vec<_> = [0, 9, 19, 20, 29, 30, u64::MAX].iter().map(|&id| index.page_of(id)).collect();
        assert_eq!(pages, [0, 0, 0, 1, 1, 2, 2].map(Some));
        assert_eq!([0, 1, 2].map(|page| index.range(page)), [Some((0, 19)), Some((20, 29)), Some((30, u64::MAX))]);
        assert_eq!((index.range(3), index.pages(), index.records()), (None, 3, 6));
        let mut short = PageIndex::default();
        short.add(5, 7, 3);
        assert_eq!([4, 5, 7, 8].map(|id| short.page_of(id)), [None, Some(0), Some(0), None]);
    }
}
