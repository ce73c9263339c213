//! The one hash of an id, and what is taken from it.

/// The hash of an id. Each set has a separate seed, so that no client can choose ids that collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    #[inline]
    pub(crate) fn of(id: u64, seed: u64) -> Hash {
        // Both halves of a 128-bit product, so that each bit of the id reaches each bit of the hash.
        let fold = |value: u64, factor: u64| {
            let product = u128::from(value) * u128::from(factor);
            (product as u64) ^ (product >> 64) as u64
        };
        Hash(fold(fold(id ^ seed, 0x9e37_79b9_7f4a_7c15) ^ seed, 0xd1b5_4a32_d192_ed03))
    }

    /// The hash of these bits.
    #[cfg(test)]
    pub(crate) fn from_bits(bits: u64) -> Hash {
        Hash(bits)
    }

    /// `h1`: the first group of a search.
    #[inline]
    pub(crate) fn first_group(self, groups: u32) -> u32 {
        ((u64::from(self.0 as u32) * u64::from(groups)) >> 32) as u32
    }

    /// `h2`: the distance between the groups of a search; less than the number of groups.
    #[inline]
    pub(crate) fn group_step(self, groups: u32) -> u32 {
        let part = (self.0 >> 32) & 0x00ff_ffff;
        1 + ((part * u64::from(groups.saturating_sub(1))) >> 24) as u32
    }

    /// Seven bits that a slot keeps with its key; never 0, which marks an empty slot.
    #[inline]
    pub(crate) fn tag(self) -> u8 {
        ((self.0 >> 57) as u8).max(1)
    }

    /// Whether an id belongs to the upper half of a table that splits at this depth (`ORDER RANDOM`).
    #[inline]
    pub(crate) fn is_upper(self, depth: u32) -> bool {
        (self.0 >> (56 - depth)) & 1 == 1
    }

    /// A hash of the lower or the upper half of a table that splits at this depth: it leads to the half as this one leads to the table.
    pub(crate) fn in_half(self, depth: u32, is_upper: bool) -> Hash {
        let bit = 1 << (56 - depth);
        Hash(if is_upper { self.0 | bit } else { self.0 & !bit })
    }

    /// A hash that leads to the first table.
    pub(crate) fn first() -> Hash {
        Hash(0)
    }

    /// All bits, for a dictionary.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// Depth of the tables of `ORDER RANDOM` at most: deeper ones would share the bits of `h1`.
pub(crate) const DEPTH_MAX: u32 = 24;
