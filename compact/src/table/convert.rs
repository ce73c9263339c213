//! A table whose slots move to another layout, group by group, while it serves (`CT.ALTER`).

use super::Table;
use super::groups::{Conversion, Groups};
use crate::hash::Hash;
use crate::layout::Layout;
use crate::schema::Schema;
use std::sync::Arc;

impl Table {
    /// Begins to move records to another layout. A conversion that is under way is completed first, by `convert_group`.
    pub(crate) fn begin_conversion(&mut self, layout: Arc<Layout>) {
        debug_assert!(self.converting.is_none());
        if *self.groups.layout != *layout {
            self.converting = Some(Conversion { groups: Groups::new(self.groups.geometry, layout), next_group: 0 });
        }
    }

    pub(crate) fn is_converting(&self) -> bool {
        self.converting.is_some()
    }

    /// Moves the next group, and drops the values of retired fields. Returns whether there are more groups.
    pub(crate) fn convert_group(&mut self, schema: &Schema, seed: u64) -> bool {
        let Some(conversion) = &mut self.converting else { return false };
        let group = conversion.next_group;
        // What was ready for new ids stays ready.
        if self.groups.bytes(group).is_some() {
            conversion.groups.preallocate_group(group);
        }
        // Slots of zeros move too: those behind them in the search need the group to stay full.
        for (slot, key, is_aux) in self.groups.slots(group).collect::<Vec<_>>() {
            let id = self.origin + key;
            let hash = Hash::of(id, seed);
            let moved = conversion.groups.take_empty(group, hash.tag(), key).expect("as many slots as before");
            let record = if is_aux { self.aux.remove(id, hash).unwrap_or_default() } else { self.groups.record(slot) };
            let record = schema.without_retired(record);
            if conversion.groups.fits(&record) {
                conversion.groups.move_in(moved, &record);
            } else {
                conversion.groups.move_out(moved);
                self.aux.insert(id, hash, record);
            }
        }
        conversion.next_group += 1;
        self.groups.free_before(group + 1);
        if conversion.next_group < self.groups.geometry.groups {
            return true;
        }
        if let Some(conversion) = self.converting.take() {
            self.groups = conversion.groups;
        }
        false
    }
}
