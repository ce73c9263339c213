//! The sizes of a table: slots in groups of 16, groups in segments.

/// Slots of a group: their tags are compared together.
pub(crate) const GROUP_SLOTS: usize = 16;

/// Bytes of a segment at most. Just under 256 KiB: an allocator rounds a size up to its next class, and this leaves room for its header.
pub(crate) const SEGMENT_BYTES: usize = (256 << 10) - 64;

/// The sizes of a table. They depend on the layout only by the bytes of a slot: a search passes the same groups whatever the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) groups: u32,
    /// The greatest key that a slot holds.
    pub(crate) key_max: u64,
    pub(crate) key_bytes: usize,
    segment_bytes: usize,
}

impl Geometry {
    /// Sizes for at least `slots` slots, whose keys have `key_bytes` bytes (1 to 8), in segments of at most `segment_bytes`.
    pub(crate) fn new(slots: u64, key_bytes: usize, segment_bytes: usize) -> Geometry {
        let groups = u32::try_from(slots.div_ceil(GROUP_SLOTS as u64)).expect("TABLE_SLOTS is bounded");
        Geometry { groups, key_max: u64::MAX >> (64 - 8 * key_bytes), key_bytes, segment_bytes }
    }

    pub(crate) fn slots(self) -> u64 {
        u64::from(self.groups) * GROUP_SLOTS as u64
    }
}

/// How the groups of one layout lie in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    pub(crate) slot_bytes: usize,
    pub(crate) group_bytes: usize,
    pub(crate) groups_per_segment: u32,
    pub(crate) segments: usize,
    groups: u32,
}

impl Packing {
    pub(crate) fn new(geometry: Geometry, record_bytes: usize, pad_bytes: usize) -> Packing {
        let slot_bytes = geometry.key_bytes + record_bytes;
        let group_bytes = GROUP_SLOTS * (1 + slot_bytes);
        let fitting = (geometry.segment_bytes.saturating_sub(pad_bytes) / group_bytes) as u32;
        let groups_per_segment = fitting.min(geometry.groups).max(1);
        let segments = geometry.groups.div_ceil(groups_per_segment) as usize;
        Packing { slot_bytes, group_bytes, groups_per_segment, segments, groups: geometry.groups }
    }

    /// The segment of a group, and the byte at which it begins there.
    #[inline]
    pub(crate) fn place(&self, group: u32) -> (usize, usize) {
        let segment = group / self.groups_per_segment;
        ((segment) as usize, (group - segment * self.groups_per_segment) as usize * self.group_bytes)
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self, pad_bytes: usize) -> usize {
        self.groups as usize * self.group_bytes + self.segments * pad_bytes
    }

    /// Bytes of a segment; the last one may be shorter.
    pub(crate) fn segment_bytes(&self, segment: usize, pad_bytes: usize) -> usize {
        let before = segment as u32 * self.groups_per_segment;
        let groups = (self.groups - before).min(self.groups_per_segment);
        groups as usize * self.group_bytes + pad_bytes
    }
}
