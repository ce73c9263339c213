//! The layout of slots in a shard's windows, as this process has cached it.

use super::record::read;
use std::sync::{Arc, Mutex, PoisonError};

/// The name of a slot's field: its window I5 and its number I4.
pub(super) type Field = [u8; 9];

/// How many slots a window has, from which window on. The shard changes it only for windows that have no event yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: u64,
    entries: Vec<(u64, u32)>,
}

impl Layout {
    /// Reads the value of the key `layout`.
    pub(super) fn decode(version: u64, raw: &[u8]) -> Layout {
        let entry = |entry: &[u8]| (read(&entry[..5]), read(&entry[5..]) as u32);
        Layout { version, entries: raw.chunks_exact(9).map(entry).collect() }
    }

    /// The number of slots of a window.
    pub(super) fn slots(&self, window: u64) -> u32 {
        self.entries.iter().rev().find(|(from, _)| *from <= window).map_or(1, |(_, slots)| *slots)
    }

    /// The fields that a window may have.
    pub(super) fn fields(&self, window: u64) -> impl Iterator<Item = Field> + use<> {
        (0..self.slots(window)).map(move |slot| field(window, slot))
    }
}

/// The name of a slot's field.
pub(super) fn field(window: u64, slot: u32) -> Field {
    let mut field = [0; 9];
    field[..5].copy_from_slice(&window.to_be_bytes()[3..]);
    field[5..].copy_from_slice(&slot.to_be_bytes());
    field
}

/// The window of a field.
pub(super) fn window_of(field: &Field) -> u64 {
    read(&field[..5])
}

/// The latest layout of one shard that this process has read.
#[derive(Debug, Default)]
pub(super) struct LayoutCache(Mutex<Arc<Layout>>);

impl LayoutCache {
    pub(super) fn get(&self) -> Arc<Layout> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Caches the layout that the shard sent in reply to a call with `was`. A reply to a call with an older layout than the
    /// cached one is stale and ignored.
    pub(super) fn replace(&self, was: &Arc<Layout>, is: Layout) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&cached, was) {
            *cached = Arc::new(is);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_slots_of_the_last_entry_that_begins_before_it() {
        let raw = [field(0, 16), field(100, 64), field(200, 32)].concat();
        let layout = Layout::decode(3, &raw);
        assert_eq!([0, 99, 100, 199, 200, 9_999].map(|window| layout.slots(window)), [16, 16, 64, 64, 32, 32]);
    }

    #[test]
    fn a_reply_to_the_cached_layout_replaces_it_and_a_stale_reply_does_not() {
        let cache = LayoutCache::default();
        let nothing = cache.get();
        cache.replace(&nothing, Layout::decode(3, &field(0, 64)));
        cache.replace(&nothing, Layout::decode(2, &field(0, 32)));
        let last = cache.get();
        assert_eq!(last.version, 3, "a stale reply is ignored");
        cache.replace(&last, Layout::decode(2, &field(0, 32)));
        assert_eq!(cache.get().version, 2, "the shard has lost its last change");
    }
}
