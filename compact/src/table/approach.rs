//! Searches of which only the memory matters: their cache misses overlap.

use super::{Table, groups};
use crate::hash::Hash;

impl Table {
    /// Begins a search of which only the memory matters.
    #[inline]
    pub(crate) fn approach(&self, hash: Hash) -> Approach<'_> {
        let group = hash.first_group(self.groups.geometry.groups);
        Approach { table: self, hash, group, line: self.group_line(group) }
    }

    /// The memory of the first group of a search.
    #[inline]
    pub(crate) fn first_group(&self, hash: Hash) -> &[u8] {
        let group = hash.first_group(self.groups.geometry.groups);
        self.side(group).memory(group)
    }

    /// Reads a byte of each cache line of the first group of a search.
    #[inline]
    pub(crate) fn touch_group(&self, hash: Hash) {
        let group = hash.first_group(self.groups.geometry.groups);
        self.side(group).touch(group);
    }
}

/// A search whose memory is on its way.
#[derive(Clone, Copy)]
pub(crate) struct Approach<'a> {
    table: &'a Table,
    hash: Hash,
    group: u32,
    /// The memory of the group, which begins with its tags.
    pub(crate) line: &'a [u8],
}

impl<'a> Approach<'a> {
    /// The tags are here: the memory of the slot at which the search probably ends (`Ok`), or the search of the next group.
    #[inline]
    pub(crate) fn go_on(self) -> Result<&'a [u8], Approach<'a>> {
        let Approach { table, hash, group, line } = self;
        let side = table.side(group);
        let slot = side.slot_line(line, hash.tag());
        if !slot.is_empty() || groups::has_empty(side.tags(group)) {
            return Ok(slot);
        }
        let count = table.groups.geometry.groups;
        let next = group + hash.group_step(count);
        let group = if next >= count { next - count } else { next };
        Err(Approach { group, line: table.group_line(group), ..self })
    }
}

/// Reads the tags that searches begin with, then the slots at which they probably end, so that their cache misses overlap.
pub(crate) fn touch<'a>(searches: impl Iterator<Item = Approach<'a>> + Clone) {
    touch_lines(searches.clone().map(|search| search.line));
    touch_lines(searches.map(|search| search.go_on().unwrap_or_default()));
}

/// Reads the first byte of each.
#[inline]
pub(crate) fn touch_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) {
    std::hint::black_box(lines.fold(0, |all, line| all ^ line.first().copied().unwrap_or(0)));
}
