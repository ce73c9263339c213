//! Numbers of any width, packed into a page without gaps.

use super::PAGE_BYTES;

/// Bits of a page that can be used. Eight bytes at the end stay 0, so that each number can be read with one load.
pub(super) const BITS_MAX: usize = (PAGE_BYTES - 8) * 8;
/// The widest number that one load at any bit has room for.
const LOAD_BITS: u32 = 57;

/// Appends numbers to a page.
pub(super) struct BitWriter<'a> {
    page: &'a mut [u8; PAGE_BYTES],
    at: usize,
}

impl<'a> BitWriter<'a> {
    /// Writes from this bit on. The page is 0 from there.
    pub(super) fn new(page: &'a mut [u8; PAGE_BYTES], at: usize) -> BitWriter<'a> {
        BitWriter { page, at }
    }

    /// Writes the low `width` bits of a value, which has no others.
    pub(super) fn put(&mut self, value: u64, width: u32) {
        if width > LOAD_BITS {
            self.put(value & u64::from(u32::MAX), 32);
            return self.put(value >> 32, width - 32);
        }
        debug_assert!(width == 64 || value >> width == 0);
        let byte = self.at / 8;
        let mut word = [0; 8];
        word.copy_from_slice(&self.page[byte..byte + 8]);
        let word = u64::from_le_bytes(word) | value << (self.at % 8);
        self.page[byte..byte + 8].copy_from_slice(&word.to_le_bytes());
        self.at += width as usize;
    }

    /// The bit that is written next.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

/// Reads numbers of a page. A number beyond the end of the page is `None`.
#[derive(Clone)]
pub(super) struct BitReader<'a> {
    page: &'a [u8; PAGE_BYTES],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Reads from this bit on.
    pub(super) fn new(page: &'a [u8; PAGE_BYTES], at: usize) -> BitReader<'a> {
        BitReader { page, at }
    }

    /// Reads a number of at most 64 bits.
    #[inline]
    pub(super) fn take(&mut self, width: u32) -> Option<u64> {
        if width > LOAD_BITS {
            let low = self.take(32)?;
            return Some(low | self.take(width - 32)? << 32);
        }
        if self.at + width as usize > BITS_MAX {
            return None;
        }
        let word = self.page.get(self.at / 8..)?.first_chunk()?;
        let value = u64::from_le_bytes(*word) >> (self.at % 8) & ((1 << width) - 1);
        self.at += width as usize;
        Some(value)
    }

    /// Leaves out this many bits.
    #[inline]
    pub(super) fn skip(&mut self, bits: usize) {
        self.at += bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn w3_bits_return_as_they_were_written(numbers in prop::collection::vec((any::<u64>(), 0..=64_u32), 0..400), start in 0..100_usize) {
            let mut page = [0; PAGE_BYTES];
            let mut writer = BitWriter::new(&mut page, start);
            let cut = |(value, width): (u64, u32)| if width == 0 { 0 } else { value >> (64 - width) };
            numbers.iter().for_each(|&number| writer.put(cut(number), number.1));
            let end = writer.at();
            let mut reader = BitReader::new(&page, start);
            for &number in &numbers {
                prop_assert_eq!(reader.take(number.1), Some(cut(number)));
            }
            prop_assert_eq!(BitReader::new(&page, end).take(64), Some(0));
            prop_assert_eq!(BitReader::new(&page, BITS_MAX - 63).take(64), None);
            prop_assert_eq!(BitReader::new(&page, usize::MAX - 64).take(64), None);
        }
    }
}
