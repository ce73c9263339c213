//! Numbers in the pieces of a dump: variable-length, little-endian.

use crate::refusal::Refusal;

/// Appends numbers to a piece.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn new(kind: u8) -> Writer {
        Writer(vec![kind])
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A number that may be negative; small absolute values are short.
    pub(crate) fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Reads what a [`Writer`] wrote. Any other bytes give an error, never a panic.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

fn broken() -> Refusal {
    Refusal::invalid("this is not a piece of a dump")
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(broken)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Refusal> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            if shift == 63 && byte > 1 {
                return Err(broken());
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(broken())
    }

    /// A number that must fit a smaller type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Refusal> {
        T::try_from(self.number()?).map_err(|_| broken())
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Result<i64, Refusal> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Refusal> {
        let count = self.small()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<String, Refusal> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| broken())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn broken<T>() -> Result<T, Refusal> {
        Err(broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn w4_numbers_are_read_as_written(numbers in prop::collection::vec((any::<u64>(), any::<i64>()), 0..20)) {
            let mut writer = Writer::new(1);
            for (number, signed) in &numbers {
                writer.number(*number);
                writer.signed(*signed);
            }
            let mut reader = Reader(&writer.0[1..]);
            for (number, signed) in numbers {
                prop_assert_eq!((reader.number().unwrap(), reader.signed().unwrap()), (number, signed));
            }
            prop_assert!(reader.is_empty() && reader.number().is_err());
        }

        #[test]
        fn w4_any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader(&bytes);
            while reader.number().is_ok() && reader.bytes().is_ok() {}
        }
    }
}
