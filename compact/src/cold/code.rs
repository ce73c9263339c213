//! How the values of one column of a page are written: the code that takes the fewest bits for what is there.
//!
//! One code serves small values with a few large ones, and values that fill their width: chunks of `k` bits with one bit for
//! "more follows". `k` is chosen for each column of each page. Varints are the same with `k` = 7 for all.

use super::bits::{BitReader, BitWriter};

/// How often each length in bits (0 to 64) occurs in a column.
pub(super) type Lengths = [u32; 65];

/// Bits of a column's code in the head of a page.
pub(super) const COLUMN_BITS: usize = 10;

/// How the numbers of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// All in this number of bits.
    Fixed(u32),
    /// In chunks of this number of bits (1 to 63), the lowest first, each after a bit that says whether more follow.
    Chunks(u32),
    /// A bit that says whether the number is not 0, then its chunks.
    Sparse(u32),
}

impl Code {
    /// Bits of a number of this length, if the code has room for it.
    #[inline]
    fn cost(self, length: u32) -> Option<u32> {
        match self {
            Code::Fixed(width) => (length <= width).then_some(width),
            Code::Chunks(chunk) => Some(length.div_ceil(chunk).max(1) * (chunk + 1)),
            Code::Sparse(chunk) => Some(1 + length.div_ceil(chunk) * (chunk + 1)),
        }
    }

    /// The code with the fewest bits for a column, and how many.
    fn best(lengths: &Lengths) -> (Code, u64) {
        // longer[n]: how many numbers are longer than n bits.
        let mut longer = [0_u64; 65];
        for length in (0..64).rev() {
            longer[length] = longer[length + 1] + u64::from(lengths[length + 1]);
        }
        let zeros = u64::from(lengths[0]);
        let width = longer.iter().take_while(|&&count| count > 0).count();
        let mut best = (Code::Fixed(width as u32), (longer[0] + zeros) * width as u64);
        // A chunk as wide as the longest number serves a column of zeros and long numbers (`Sparse`).
        for chunk in 1..=width.min(63) {
            let chunks: u64 = longer.iter().step_by(chunk).sum();
            let bits = chunk as u64 + 1;
            let found = [
                (Code::Chunks(chunk as u32), (chunks + zeros) * bits),
                (Code::Sparse(chunk as u32), chunks * bits + longer[0] + zeros),
            ];
            best = found.into_iter().fold(best, |best, next| if next.1 < best.1 { next } else { best });
        }
        best
    }

    fn put(self, writer: &mut BitWriter<'_>, mut number: u64) {
        let chunk = match self {
            Code::Fixed(width) => return writer.put(number, width),
            Code::Chunks(chunk) => chunk,
            Code::Sparse(chunk) => {
                writer.put(u64::from(number != 0), 1);
                if number == 0 {
                    return;
                }
                chunk
            }
        };
        loop {
            let rest = number >> chunk;
            writer.put(((number & ((1 << chunk) - 1)) << 1) | u64::from(rest != 0), chunk + 1);
            if rest == 0 {
                return;
            }
            number = rest;
        }
    }

    #[inline]
    fn take(self, reader: &mut BitReader<'_>) -> Option<u64> {
        let chunk = match self {
            Code::Fixed(width) => return reader.take(width),
            Code::Chunks(chunk) => chunk,
            Code::Sparse(chunk) => {
                if reader.take(1)? == 0 {
                    return Some(0);
                }
                chunk
            }
        };
        let (mut number, mut shift) = (0, 0);
        loop {
            let word = reader.take(chunk + 1)?;
            let part = word >> 1;
            if shift > 0 && part.leading_zeros() < shift {
                return None;
            }
            number |= part << shift;
            shift += chunk;
            if word & 1 == 0 {
                return Some(number);
            }
            if shift >= 64 {
                return None;
            }
        }
    }
}

/// The code of a column, and how its values become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    code: Code,
    /// Whether values may be negative. The lowest bit of the number is the sign then.
    signed: bool,
}

impl Column {
    /// The best code for a column, and the bits of all its values.
    pub(super) fn best(lengths: &Lengths, signed: bool) -> (Column, u64) {
        let (code, bits) = Code::best(lengths);
        (Column { code, signed }, bits)
    }

    /// The length in bits of what is written for a value.
    #[inline]
    pub(super) fn length(value: i64, signed: bool) -> u32 {
        64 - Column::number(value, signed).leading_zeros()
    }

    /// The bits of a value, if the code has room for it.
    #[inline]
    pub(super) fn cost(self, value: i64) -> Option<u32> {
        self.code.cost(Column::length(value, self.signed))
    }

    /// The bits of each value, if all have the same.
    pub(super) fn width(self) -> Option<u32> {
        match self.code {
            Code::Fixed(width) => Some(width),
            Code::Chunks(_) | Code::Sparse(_) => None,
        }
    }

    #[inline]
    fn number(value: i64, signed: bool) -> u64 {
        if signed { ((value << 1) ^ (value >> 63)) as u64 } else { value as u64 }
    }

    /// Writes a value.
    pub(super) fn put(self, writer: &mut BitWriter<'_>, value: i64) {
        self.code.put(writer, Column::number(value, self.signed));
    }

    /// Reads a value.
    #[inline]
    pub(super) fn take(self, reader: &mut BitReader<'_>) -> Option<i64> {
        let number = self.code.take(reader)?;
        Some(if self.signed { (number >> 1) as i64 ^ -((number & 1) as i64) } else { number as i64 })
    }

    /// Writes the code itself.
    pub(super) fn put_code(self, writer: &mut BitWriter<'_>) {
        let (kind, width) = match self.code {
            Code::Fixed(width) => (0, width),
            Code::Chunks(chunk) => (1, chunk),
            Code::Sparse(chunk) => (2, chunk),
        };
        writer.put(u64::from(self.signed) | kind << 1 | u64::from(width) << 3, COLUMN_BITS as u32);
    }

    /// Reads a code. `None`: there is no such code.
    pub(super) fn take_code(reader: &mut BitReader<'_>) -> Option<Column> {
        let word = reader.take(COLUMN_BITS as u32)?;
        let width = (word >> 3) as u32;
        let code = match (word >> 1) & 3 {
            0 if width <= 64 => Code::Fixed(width),
            1 if (1..64).contains(&width) => Code::Chunks(width),
            2 if (1..64).contains(&width) => Code::Sparse(width),
            _ => return None,
        };
        Some(Column { code, signed: word & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn w3_each_code_returns_its_values(values in prop::collection::vec((any::<i64>(), 0..=64_u32), 1..40), chunk in 1..64_u32) {
            let values: Vec<i64> = values.iter().map(|&(value, bits)| if bits == 0 { 0 } else { value >> (64 - bits) }).collect();
            let signed = values.iter().any(|&value| value < 0);
            let mut lengths = [0; 65];
            values.iter().for_each(|&value| lengths[Column::length(value, signed) as usize] += 1);
            let (best, bits) = Column::best(&lengths, signed);
            for column in [best, Column { code: Code::Chunks(chunk), signed }, Column { code: Code::Sparse(chunk), signed }] {
                let mut page = [0; PAGE_BYTES];
                let mut writer = BitWriter::new(&mut page, 0);
                column.put_code(&mut writer);
                values.iter().for_each(|&value| column.put(&mut writer, value));
                let cost: u32 = values.iter().map(|&value| column.cost(value).unwrap()).sum();
                prop_assert_eq!(writer.at(), COLUMN_BITS + cost as usize);
                prop_assert!(bits <= u64::from(cost) && (column != best || bits == u64::from(cost)));
                let mut reader = BitReader::new(&page, 0);
                let read = Column::take_code(&mut reader).unwrap();
                prop_assert_eq!(read, column);
                for &value in &values {
                    prop_assert_eq!(read.take(&mut reader), Some(value));
                }
            }
        }
    }

    #[test]
    fn w3_zeros_and_numbers_of_one_length_take_one_chunk_each() {
        let mut lengths = [0; 65];
        (lengths[0], lengths[51]) = (1, 1);
        assert_eq!(Code::best(&lengths), (Code::Sparse(51), 1 + 1 + 52));
    }

    #[test]
    fn w3_a_number_of_more_than_64_bits_is_refused() {
        let mut page = [0xff; PAGE_BYTES];
        for chunk in 1..64 {
            let column = Column { code: Code::Chunks(chunk), signed: false };
            assert_eq!(column.take(&mut BitReader::new(&page, 0)), None, "{chunk}");
        }
        page[0] = 0;
        assert_eq!(Column { code: Code::Sparse(7), signed: true }.take(&mut BitReader::new(&page, 0)), Some(0));
    }
}
