//! What calls cost the store. Fair shares, and the room in flight, count in this unit (docs/decisions/0070).

/// The number of bytes that cost the store about as much as one more item: Redis copies, logs and syncs them.
pub(super) const ITEM_BYTES: usize = 4_096;

/// Items, and the bytes that they carry: the payloads of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) items: usize,
    pub(super) bytes: usize,
}

impl Load {
    /// The cost, in items without payloads.
    pub(super) fn cost(self) -> usize {
        self.items + self.bytes / ITEM_BYTES
    }

    /// The load of at most this number of the items.
    pub(super) fn at_most(self, items: usize) -> Load {
        match items < self.items {
            true => Load { items, bytes: self.bytes / self.items * items },
            false => self,
        }
    }

    pub(super) fn plus(self, other: Load) -> Load {
        Load { items: self.items + other.items, bytes: self.bytes + other.bytes }
    }

    pub(super) fn minus(self, other: Load) -> Load {
        Load { items: self.items - other.items, bytes: self.bytes - other.bytes }
    }
}
