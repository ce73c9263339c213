//! Tables that are no longer needed, to be freed in steps. Until then they take memory, which is counted.

use crate::table::Table;

/// Segments that one step of the background frees.
const SEGMENTS_STEP: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Left {
    tables: Vec<Table>,
    /// Memory of all of them. It is counted as they come and go, because there may be many.
    bytes: usize,
}

impl Left {
    pub(crate) fn push(&mut self, table: Table) {
        self.bytes += bytes(&table);
        self.tables.push(table);
    }

    pub(crate) fn extend(&mut self, tables: impl IntoIterator<Item = Table>) {
        tables.into_iter().for_each(|table| self.push(table));
    }

    /// Frees a few segments. Returns whether there was something to free.
    pub(crate) fn free_some(&mut self) -> bool {
        self.free(SEGMENTS_STEP)
    }

    /// Frees a table of one segment, or a part of a larger one. Commands that replace a table call it: the background alone might free
    /// small tables more slowly than commands replace them, and memory would grow without a bound.
    pub(crate) fn free_little(&mut self) {
        self.free(2);
    }

    fn free(&mut self, segments: usize) -> bool {
        let Some(table) = self.tables.last_mut() else { return false };
        let before = bytes(table);
        if (0..segments).all(|_| table.free_segment()) {
            self.bytes -= before - bytes(table);
        } else {
            self.bytes -= before;
            self.tables.pop();
        }
        true
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

fn bytes(table: &Table) -> usize {
    size_of::<Table>() + table.memory_bytes()
}
