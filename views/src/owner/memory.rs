//! The memory of pairs, which has a bound: what callers post decides how many pairs there are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of the pairs of all partitions that this process owns.
pub(crate) struct PairsMemory {
    bytes: AtomicUsize,
    bytes_max: usize,
}

/// The part of one partition. It is free when this is dropped.
pub(crate) struct PartitionMemory<'a> {
    all: &'a PairsMemory,
    bytes: usize,
}

impl PairsMemory {
    /// No pairs yet, and at most about so many bytes.
    pub(crate) fn new(bytes_max: usize) -> PairsMemory {
        PairsMemory { bytes: AtomicUsize::new(0), bytes_max }
    }

    /// Whether there are more bytes than there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bytes_max
    }

    /// The part of a partition that has no pairs yet.
    pub(crate) fn partition(&self) -> PartitionMemory<'_> {
        PartitionMemory { all: self, bytes: 0 }
    }
}

impl PartitionMemory<'_> {
    /// Sets the bytes of the partition, and returns whether all partitions together have more than they may.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        // An addition that wraps subtracts.
        let change = bytes.wrapping_sub(self.bytes);
        self.bytes = bytes;
        let all = self.all.bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        all > self.all.bytes_max
    }
}

impl Drop for PartitionMemory<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_the_memory_of_all_partitions_has_one_bound() {
        let memory = PairsMemory::new(100);
        let (mut first, mut second) = (memory.partition(), memory.partition());
        assert_eq!((first.set(60), second.set(40), second.set(41)), (false, false, true));
        assert_eq!((first.set(59), second.set(90)), (false, true));
        assert!(memory.is_full());
        drop(first);
        assert!(!second.set(100) && !memory.is_full());
    }
}
